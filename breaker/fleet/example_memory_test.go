package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
)

// memory is a Store for the breakers of one process. It does what one on a database must do, in few words: its clock alone
// dates records, an exchange counts the slots of all, and a move is made if the epoch is the one expected.
type memory struct {
	mu       sync.Mutex // guards what follows
	breakers map[breaker.Key]*remembered
}

type remembered struct {
	record  breaker.Record
	since   time.Time // when the record's state began
	ends    time.Time // when its force ends
	members map[string]statement
	notes   []fleet.Note
}

type statement struct {
	report fleet.Report
	at     time.Time
	slots  int
}

func (m *memory) of(key breaker.Key) *remembered {
	if m.breakers == nil {
		m.breakers = make(map[breaker.Key]*remembered)
	}
	r := m.breakers[key]
	if r == nil {
		r = &remembered{members: make(map[string]statement)}
		m.breakers[key] = r
	}
	return r
}

func (r *remembered) view(now time.Time) fleet.View {
	v := fleet.View{Record: r.record}
	v.Record.Age = now.Sub(r.since)
	v.Record.ForceLeft = max(0, r.ends.Sub(now))
	for worker, s := range r.members {
		v.Members = append(v.Members, fleet.Member{Worker: worker, Seen: now.Sub(s.at), Wants: s.report.Wants, Evidence: s.report.Evidence})
	}
	return v
}

// Exchange implements fleet.Store.
func (m *memory) Exchange(_ context.Context, worker string, reports []fleet.Report) ([]fleet.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	views := make([]fleet.View, len(reports))
	for i, report := range reports {
		r := m.of(report.Key)
		taken := 0
		for name, s := range r.members {
			// A silent worker's probe may still be running: its slots are free after lease and deadline.
			if name != worker && now.Sub(s.at) <= s.report.Lease+s.report.Deadline {
				taken += s.slots
			}
		}
		slots := min(report.Evidence.Slots, max(0, report.Limit-taken))
		if report.Wants && taken+slots < report.Limit {
			slots++
		}
		if delete(r.members, worker); !report.Gone {
			r.members[worker] = statement{report: report, at: now, slots: slots}
		}
		views[i] = r.view(now)
		views[i].Slots = slots
	}
	return views, nil
}

// Move implements fleet.Store.
func (m *memory) Move(_ context.Context, moves []fleet.Move) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	done := make([]bool, len(moves))
	for i, move := range moves {
		r := m.of(move.Key)
		if done[i] = r.record.Epoch == move.Expect; !done[i] {
			continue
		}
		r.record, r.since, r.ends = move.Record, now.Add(-move.Record.Age), now.Add(move.Record.ForceLeft)
		if move.Note != nil {
			note := *move.Note
			note.At = now
			r.notes = append([]fleet.Note{note}, r.notes...)
		}
	}
	return done, nil
}

// Look implements fleet.Store.
func (m *memory) Look(_ context.Context, keys []breaker.Key) ([]fleet.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	views := make([]fleet.View, len(keys))
	for i, key := range keys {
		views[i] = m.of(key).view(time.Now())
	}
	return views, nil
}

// Audit implements fleet.Store.
func (m *memory) Audit(_ context.Context, key breaker.Key, n int) ([]fleet.Note, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	notes := m.of(key).notes
	return notes[:min(n, len(notes))], nil
}

// Two workers share a breaker over a store of one's own. Both see the service fail: the fleet opens.
func ExampleStore() {
	store := &memory{}
	key := breaker.Key{Service: "wallet", Endpoint: "pay"}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var breakers []*breaker.Breaker
	opened := make(chan breaker.Event, 10)
	for _, worker := range []string{"worker-1", "worker-2"} {
		b, err := breaker.New(key, breaker.Config{ConsecutiveFailures: 3}, nil, func(e breaker.Event) {
			if e.Source == breaker.SourceShared {
				opened <- e
			}
		})
		if err != nil {
			fmt.Println(err)
			break
		}
		sharer, err := fleet.New(fleet.Config{Worker: worker}, store, func() []*breaker.Breaker { return []*breaker.Breaker{b} }, nil)
		if err != nil {
			fmt.Println(err)
			break
		}
		breakers = append(breakers, b)
		running.Go(func() {
			if err := sharer.Run(ctx); err != nil {
				fmt.Println(err)
			}
		})
	}
	for _, b := range breakers {
		for range 3 {
			if permit, ok := b.Allow(); ok {
				b.Done(permit, breaker.Failure)
			}
		}
	}
	for range breakers {
		e := <-opened
		fmt.Println(e.To, e.Reason, e.Source)
	}
	cancel()
	running.Wait()
	// Output:
	// open quorum shared
	// open quorum shared
}
