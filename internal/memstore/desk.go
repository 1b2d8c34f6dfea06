package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// ListOrders lists orders, the newest first, without the bytes of their records.
func (s *Store) ListOrders(ctx context.Context, f desk.OrderFilter) ([]order.Order, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	latest := s.now().Add(-f.OlderThan)
	var out []order.Order
	for _, r := range slices.Backward(s.rows) {
		if len(out) == desk.Page(f.Limit) {
			break
		}
		if (f.Route != "" && r.Route != f.Route) || (f.State != 0 && r.State != f.State) ||
			(f.Phase != order.NoPhase && r.Phase != f.Phase) || !strings.HasPrefix(r.Number, f.Prefix) ||
			(f.OlderThan > 0 && r.AdmittedAt.After(latest)) || (f.Before > 0 && r.ID >= f.Before) {
			continue
		}
		o := r.Order
		o.Message = bare(o.Message)
		out = append(out, o)
	}
	return out, nil
}

// bare leaves a record's place and time.
func bare(m order.Message) order.Message {
	m.Key, m.Value, m.Headers = nil, nil, nil
	return m
}

// ShowOrder reads one order with its record, history and dead letter. It returns [desk.ErrNotFound] where there is none.
func (s *Store) ShowOrder(ctx context.Context, route, number string) (desk.OrderView, error) {
	if err := s.begin(ctx); err != nil {
		return desk.OrderView{}, err
	}
	defer s.mu.Unlock()
	r := s.numbers[key{route, number}]
	if r == nil {
		return desk.OrderView{}, fmt.Errorf("order %q of route %q: %w", number, route, desk.ErrNotFound)
	}
	v := desk.OrderView{
		Order: r.Order, Owner: r.owner, History: slices.Clone(r.history[max(0, len(r.history)-desk.MaxHistory):]),
	}
	if r.letter != nil {
		v.Letter = r.letter.ID
	}
	return v, nil
}

// ListDeadLetters lists dead letters, the newest first, without their bytes.
func (s *Store) ListDeadLetters(ctx context.Context, f desk.LetterFilter) ([]desk.Letter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	latest := s.now().Add(-f.OlderThan)
	var out []desk.Letter
	for _, l := range slices.Backward(s.letters) {
		if len(out) == desk.Page(f.Limit) {
			break
		}
		if (f.Route != "" && l.Route != f.Route) || (f.Status != 0 && l.Status != f.Status) ||
			(f.Reason != order.NoReason && l.Reason != f.Reason) || !strings.HasPrefix(l.Number, f.Prefix) ||
			(f.OlderThan > 0 && l.CreatedAt.After(latest)) || (f.Before > 0 && l.ID >= f.Before) {
			continue
		}
		shown := *l
		shown.Message, shown.Raw = bare(l.Message), nil
		out = append(out, shown)
	}
	return out, nil
}

// ShowDeadLetter reads one dead letter with its bytes. It returns [desk.ErrNotFound] where there is none.
func (s *Store) ShowDeadLetter(ctx context.Context, id int64) (desk.Letter, error) {
	if err := s.begin(ctx); err != nil {
		return desk.Letter{}, err
	}
	defer s.mu.Unlock()
	l := s.find(id)
	if l == nil {
		return desk.Letter{}, missing(id)
	}
	return *l, nil
}

func missing(id int64) error { return fmt.Errorf("dead letter %d: %w", id, desk.ErrNotFound) }

func (s *Store) find(id int64) *desk.Letter {
	if id < 1 || id > int64(len(s.letters)) {
		return nil
	}
	return s.letters[id-1]
}

// Requeue starts a new life for dead letters: see postgres.Store.
func (s *Store) Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error) {
	return s.resolve(ctx, by, len(rs), func(i int, now time.Time) desk.Resolved {
		l := s.find(rs[i].ID)
		if l == nil {
			return desk.Resolved{ID: rs[i].ID, Err: missing(rs[i].ID)}
		}
		if err := l.Obstacle(rs[i].Number, true); err != nil {
			return desk.Resolved{ID: l.ID, OrderID: l.OrderID, Err: err}
		}
		r, err := s.revive(l, rs[i].Number, by, now)
		if err != nil {
			return desk.Resolved{ID: l.ID, OrderID: l.OrderID, Err: err}
		}
		sign(l, desk.Requeued, by, now)
		return desk.Resolved{ID: l.ID, OrderID: r.ID}
	})
}

// revive puts the order of a letter to work again, or makes one.
func (s *Store) revive(l *desk.Letter, number string, by desk.Sign, now time.Time) (*row, error) {
	r := s.row(l.OrderID)
	if r == nil {
		if taken := s.numbers[key{l.Route, number}]; taken != nil {
			return nil, l.Taken(taken.Order)
		}
		r = &row{Order: order.Order{
			Route: l.Route, Number: number, Message: l.Message, State: order.Processing, Phase: order.Replaying, Version: 1,
			Life: l.Life + 1, Reason: order.Requeued, Detail: desk.Fit(by.Note),
			AdmittedAt: now, Due: now, UpdatedAt: now,
		}}
		s.insert(r)
		s.tell(r, order.Dead, by.Operator, now)
		return r, nil
	}
	t := order.Policy{}.Requeue(now)
	r.letter, r.Life = nil, r.Life+1
	r.Attempts, r.AttemptsTotal, r.Lookups = 0, 0, 0
	r.Outcome, r.Reason, r.Detail = t.Outcome, t.Reason, desk.Fit(by.Note)
	s.move(r, t.State, t.Phase, t.Due, now)
	s.tell(r, order.Dead, by.Operator, now)
	return r, nil
}

// Discard gives dead letters up: see postgres.Store.
func (s *Store) Discard(ctx context.Context, by desk.Sign, ids []int64) ([]desk.Resolved, error) {
	return s.resolve(ctx, by, len(ids), func(i int, now time.Time) desk.Resolved {
		l := s.find(ids[i])
		if l == nil {
			return desk.Resolved{ID: ids[i], Err: missing(ids[i])}
		}
		if err := l.Obstacle("", false); err != nil {
			return desk.Resolved{ID: l.ID, OrderID: l.OrderID, Err: err}
		}
		if r := s.row(l.OrderID); r != nil {
			r.letter, r.Reason, r.Detail = nil, order.DiscardedByOperator, desk.Fit(by.Note)
			s.move(r, order.Discarded, order.NoPhase, now, now)
			s.tell(r, order.Dead, by.Operator, now)
		}
		sign(l, desk.Discarded, by, now)
		return desk.Resolved{ID: l.ID, OrderID: l.OrderID}
	})
}

// sign closes a letter.
func sign(l *desk.Letter, status desk.LetterStatus, by desk.Sign, now time.Time) {
	l.Status, l.ResolvedAt, l.ResolvedBy, l.Note = status, now, by.Operator, desk.Fit(by.Note)
}

func (s *Store) resolve(ctx context.Context, by desk.Sign, n int, one func(i int, now time.Time) desk.Resolved) ([]desk.Resolved, error) {
	if n > desk.MaxPage {
		return nil, fmt.Errorf("resolve %d dead letters: want at most %d in one call", n, desk.MaxPage)
	}
	if err := by.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]desk.Resolved, n)
	for i := range out {
		out[i] = one(i, s.now())
	}
	return out, nil
}

// Counts reads what the gauges of a route show.
func (s *Store) Counts(ctx context.Context, route string) (desk.Counts, error) {
	if err := s.begin(ctx); err != nil {
		return desk.Counts{}, err
	}
	defer s.mu.Unlock()
	c := desk.Counts{Processing: make(map[order.Phase]int64)}
	for _, p := range order.Phases() {
		c.Processing[p] = 0
	}
	now := s.now()
	for _, r := range s.live {
		if r.Route == route {
			c.Processing[r.Phase]++
			c.Oldest = max(c.Oldest, now.Sub(r.AdmittedAt))
		}
	}
	for _, l := range s.letters {
		if l.Route == route && l.Status == desk.Waiting {
			c.DeadWaiting++
		}
	}
	return c, nil
}

// Tally counts all of a route's rows.
func (s *Store) Tally(ctx context.Context, route string) (desk.Tally, error) {
	if err := s.begin(ctx); err != nil {
		return desk.Tally{}, err
	}
	defer s.mu.Unlock()
	t := desk.NewTally()
	for _, r := range s.rows {
		if r.Route == route {
			t.Orders[desk.Place{State: r.State, Phase: r.Phase}]++
		}
	}
	for _, l := range s.letters {
		switch {
		case l.Route != route:
		case l.OrderID == 0:
			t.Letters[l.Status]++
		default:
			t.OrderLetters[l.Status]++
		}
	}
	return t, nil
}
