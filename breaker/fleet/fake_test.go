package fleet

import (
	"context"
	"time"

	"spillway/breaker"
)

// fakeStore does in memory what the store on Redis does. Its clock is now plus what it has jumped.
type fakeStore struct {
	now     time.Duration
	record  breaker.Record
	since   time.Duration
	ends    time.Duration
	rows    map[string]fakeRow
	born    time.Duration // of rows
	notes   []Note
	moves   int
	records []breaker.Record // every record that was put in
}

type fakeRow struct {
	report   Report
	seen     time.Duration
	slots    int
	slotsEnd time.Duration
}

var _ Store = (*fakeStore)(nil)

func (s *fakeStore) view() View {
	v := View{Record: s.record}
	if s.record.Epoch > 0 {
		v.Record.Age = max(0, s.now-s.since)
	}
	if s.record.Force != breaker.ForceNone {
		v.Record.ForceLeft = max(0, s.ends-s.now)
	}
	for name, row := range s.rows {
		e := row.report.Evidence
		v.Members = append(v.Members, Member{Worker: name, Seen: max(0, s.now-row.seen), Wants: row.report.Wants, Evidence: e})
	}
	return v
}

func (s *fakeStore) Exchange(_ context.Context, worker string, reports []Report) ([]View, error) {
	views := make([]View, len(reports))
	for i, r := range reports {
		if s.rows == nil {
			s.rows, s.born = make(map[string]fakeRow), s.now
		}
		taken := 0
		for name, row := range s.rows {
			if name != worker && s.now <= row.slotsEnd+row.report.Deadline {
				taken += row.slots
			}
		}
		if r.Gone {
			delete(s.rows, worker)
			views[i] = s.view()
			continue
		}
		s.born = min(s.born, s.now) // its clock may jump
		held := r.Evidence.Slots
		held = min(held, max(0, r.Limit-taken))
		if r.Wants && taken+held < r.Limit && s.now > s.born+r.Lease+r.Deadline {
			held++
		}
		s.rows[worker] = fakeRow{report: r, seen: s.now, slots: held, slotsEnd: s.now + r.Lease}
		views[i] = s.view()
		views[i].Slots = held
	}
	return views, nil
}

func (s *fakeStore) Move(_ context.Context, moves []Move) ([]bool, error) {
	done := make([]bool, len(moves))
	for i, m := range moves {
		if m.Expect != s.record.Epoch {
			continue
		}
		done[i] = true
		s.record, s.since, s.ends = m.Record, s.now-m.Record.Age, s.now+m.Record.ForceLeft
		s.record.Age, s.record.ForceLeft = 0, 0
		s.moves++
		s.records = append(s.records, m.Record)
		if m.Note != nil {
			s.notes = append(s.notes, *m.Note)
		}
	}
	return done, nil
}

func (s *fakeStore) Look(_ context.Context, keys []breaker.Key) ([]View, error) {
	views := make([]View, len(keys))
	for i := range views {
		views[i] = s.view()
	}
	return views, nil
}

func (s *fakeStore) Audit(_ context.Context, _ breaker.Key, _ int) ([]Note, error) {
	return s.notes, nil
}
