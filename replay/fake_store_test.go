package replay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/order"
)

// memStore is the record of orders in memory, on the time of its bubble.
type memStore struct {
	mu     sync.Mutex
	rows   map[int64]*row
	dead   []order.DeadRecord
	begins int // calls
}

type row struct {
	order order.Order
	owner string
	until time.Time // of the lease
}

func newMemStore() *memStore { return &memStore{rows: make(map[int64]*row)} }

// add makes n rows that wait in the replay queue after one attempt, and returns them as spilled orders.
func (s *memStore) add(route string, n int) []order.Spilled {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []order.Spilled
	for range n {
		id := int64(len(s.rows) + 1)
		o := order.Order{
			ID: id, Route: route, Number: fmt.Sprintf("T-%d", id), State: order.Processing, Phase: order.Replaying, Version: 2,
			Attempts: 1, AttemptsTotal: 1, Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded,
			Message: order.Message{
				Topic: "orders.in", Offset: id, Time: time.Now(), Key: fmt.Appendf(nil, "T-%d", id), Value: []byte(`{"amount":1250}`),
			},
		}
		o.LastAttempt, o.Due = time.Now(), time.Now().Add(time.Minute)
		s.rows[id] = &row{order: o}
		out = append(out, order.Spilled{Order: o})
	}
	return out
}

func (s *memStore) get(id int64) order.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id].order
}

// change edits a row behind the engine's back.
func (s *memStore) change(id int64, edit func(*row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.rows[id])
}

// count says how many rows stand so.
func (s *memStore) count(state order.State, phase order.Phase) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.rows {
		if r.order.State == state && r.order.Phase == phase {
			n++
		}
	}
	return n
}

func (s *memStore) letters() []order.DeadRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

func (s *memStore) Begin(_ context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begins++
	var out []order.Order
	for _, id := range ids {
		r := s.rows[id]
		if r == nil || r.order.State != order.Processing || r.order.Phase != order.Replaying {
			continue
		}
		o := &r.order
		o.Phase, o.Version, o.LastAttempt = order.InFlight, o.Version+1, time.Now()
		o.Attempts++
		o.AttemptsTotal++
		o.Due = time.Now().Add(lease)
		r.owner, r.until = owner, o.Due
		out = append(out, *o)
	}
	return out, nil
}

func (s *memStore) Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make([]bool, len(ls))
	for i, l := range ls {
		if r := s.rows[l.ID]; r.owner == owner && r.order.Version == l.Version {
			held[i] = true
			r.until = time.Now().Add(lease)
			r.order.Due = r.until
		}
	}
	return held, nil
}

func (s *memStore) Settle(_ context.Context, _ string, ss []order.Settlement) ([]order.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := make([]order.Settled, len(ss))
	for i, settlement := range ss {
		how[i] = s.apply(settlement)
	}
	return how, nil
}

func (s *memStore) apply(st order.Settlement) order.Settled {
	r := s.rows[st.ID]
	o := &r.order
	if o.Version != st.Version || o.State != order.Processing {
		if o.State.Final() && st.State.Final() && o.State != st.State {
			return order.Conflict
		}
		return order.Stale
	}
	o.State, o.Phase, o.Version = st.State, st.Phase, o.Version+1
	o.Attempts, o.AttemptsTotal, o.Lookups = st.Attempts, st.AttemptsTotal, st.Lookups
	o.Outcome, o.Reason, o.Detail, o.Due = st.Outcome, st.Reason, st.Detail, st.Due
	r.owner = ""
	return order.Applied
}

func (s *memStore) Bury(_ context.Context, ds []order.DeadRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = append(s.dead, ds...)
	return nil
}

// claimDue is what the scanner does first: rows whose lease or wait is over become its own.
func (s *memStore) claimDue() []order.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []order.Order
	for _, r := range s.rows {
		o := &r.order
		if o.State != order.Processing || time.Now().Before(o.Due) {
			continue
		}
		switch o.Phase {
		case order.InFlight:
			o.Phase, o.Reason, o.Lookups = order.Unknown, order.WorkerDied, 1
		case order.Unknown:
			o.Lookups++
		case order.Replaying:
		case order.NoPhase:
			continue
		}
		o.Version++
		o.Due = time.Now().Add(30 * time.Second)
		r.owner = "scanner"
		out = append(out, *o)
	}
	return out
}
