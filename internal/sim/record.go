package sim

import (
	"context"
	"time"

	"spillway/internal/desk"
	"spillway/internal/memstore"
	"spillway/order"
)

// record is the store as the workers reach it: away now and then, and watched by the checker at every statement.
type record struct {
	*world
	rows      *memstore.Store
	awayUntil time.Time
}

func newRecord(s *world) *record {
	return &record{world: s, rows: memstore.New(func() time.Time { return s.now })}
}

func (r *record) away() bool { return r.now.Before(r.awayUntil) }

// Admit makes orders of records.
func (r *record) Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error) {
	if r.away() {
		return nil, errAway
	}
	out, err := r.rows.Admit(ctx, route, owner, lease, as)
	for i, a := range out {
		switch a.Kind {
		case order.New:
			r.checker.lease(owner, a.Order)
			r.checker.observe(ctx, as[i].Number)
			if a.Order.Version > 1 {
				r.count("taken back")
			}
		case order.Duplicate:
			r.count("admitted again")
		case order.Clash:
			r.checker.readLetters(ctx)
		}
	}
	return out, err
}

// Settle applies transitions.
func (r *record) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	if r.away() {
		return nil, errAway
	}
	out, err := r.rows.Settle(ctx, owner, ss)
	for i, s := range ss {
		switch out[i] {
		case order.Applied:
			r.checker.settled(ctx, owner, s)
		case order.Stale:
			r.count("settled too late")
			if r.options.Bug == AckWithoutLease {
				out[i] = r.force(ctx, owner, s)
			}
		case order.Conflict:
			r.checker.conflict(ctx, owner, s)
		}
	}
	return out, err
}

// force is the deliberate mistake of a worker that does not look at its lease.
func (r *record) force(ctx context.Context, owner string, s order.Settlement) order.Settled {
	v, err := r.rows.ShowOrder(ctx, route, r.checker.names[s.ID])
	if err != nil {
		return order.Stale
	}
	s.Version = v.Order.Version
	out, err := r.rows.Settle(ctx, owner, []order.Settlement{s})
	if err != nil || out[0] != order.Applied {
		return order.Stale
	}
	r.checker.settled(ctx, owner, s)
	return order.Applied
}

// Renew lengthens leases.
func (r *record) Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	if r.away() {
		return nil, errAway
	}
	out, err := r.rows.Renew(ctx, owner, lease, ls)
	for _, l := range ls {
		r.checker.observe(ctx, r.checker.names[l.ID])
	}
	return out, err
}

// Bury writes dead letters of records.
func (r *record) Bury(ctx context.Context, ds []order.DeadRecord) error {
	if r.away() {
		return errAway
	}
	err := r.rows.Bury(ctx, ds)
	r.checker.readLetters(ctx)
	return err
}

// Begin starts the next attempt of orders that wait in the replay queue.
func (r *record) Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	if r.away() {
		return nil, errAway
	}
	out, err := r.rows.Begin(ctx, owner, lease, ids)
	for _, o := range out {
		r.checker.lease(owner, o)
		r.checker.observe(ctx, o.Number)
	}
	return out, err
}

// ClaimDue leases orders that are due.
func (r *record) ClaimDue(ctx context.Context, owner string, lease time.Duration, n int) ([]order.Order, error) {
	if r.away() {
		return nil, errAway
	}
	out, err := r.rows.ClaimDue(ctx, route, owner, lease, n)
	for _, o := range out {
		r.checker.lease(owner, o)
		r.checker.observe(ctx, o.Number)
	}
	return out, err
}

// operator looks at the dead letters from time to time: one is sent back, few are given up.
func (s *world) operator() {
	if s.calmed || !s.requeue {
		return
	}
	s.after(s.between(time.Second, 4*time.Second), s.operator)
	ctx, by := context.Background(), desk.Sign{Operator: "op"}
	letters, err := s.store.rows.ListDeadLetters(ctx, desk.LetterFilter{Route: route, Status: desk.Waiting, Limit: desk.MaxPage})
	if err != nil {
		s.violate("I8", "dead letters cannot be listed: %v", err)
		return
	}
	for _, l := range letters {
		if l.OrderID == 0 || !s.chance(0.5) {
			continue
		}
		var done []desk.Resolved
		what := "requeue"
		if s.chance(0.1) {
			what = "discard"
			done, err = s.store.rows.Discard(ctx, by, []int64{l.ID})
		} else {
			done, err = s.store.rows.Requeue(ctx, by, []desk.Requeue{{ID: l.ID}})
		}
		if err != nil || done[0].Err != nil {
			s.violate("I8", "%s of dead letter %d: %v, %v", what, l.ID, err, done)
			return
		}
		s.count(what)
		s.note("operator: %s %s", what, l.Number)
		s.checker.observe(ctx, l.Number)
		return
	}
}
