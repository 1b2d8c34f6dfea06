package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// memory is a store of orders: the contract's transitions over a map.
type memory struct {
	now      func() time.Time
	rows     map[int64]*stored
	byNumber map[string]*stored
	letters  []desk.Letter
}

type stored struct {
	order.Order
	owner string
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, rows: map[int64]*stored{}, byNumber: map[string]*stored{}}
}

func (m *memory) Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error) {
	out := make([]order.Admitted, len(as))
	for i, a := range as {
		r := m.byNumber[a.Number]
		switch {
		case r == nil:
			now := m.now()
			r = &stored{owner: owner, Order: order.Order{
				ID: int64(len(m.rows) + 1), Route: route, Number: a.Number, Message: a.Message,
				State: order.Processing, Phase: order.InFlight, Version: 1, Attempts: 1, AttemptsTotal: 1,
				AdmittedAt: now, LastAttempt: now, Due: now.Add(lease), UpdatedAt: now,
			}}
			m.rows[r.ID], m.byNumber[a.Number] = r, r
			out[i] = order.Admitted{Kind: order.New, Order: r.Order}
		case bytes.Equal(r.Message.Value, a.Message.Value):
			out[i] = order.Admitted{Kind: order.Duplicate, Order: r.Order}
		default:
			out[i] = order.Admitted{Kind: order.Clash, Order: r.Order}
			if err := m.Bury(ctx, []order.DeadRecord{{
				Route: route, Number: a.Number, Message: a.Message, Reason: order.PayloadConflict,
				Detail: "another value under this business number",
			}}); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (m *memory) Settle(_ context.Context, _ string, ss []order.Settlement) ([]order.Settled, error) {
	out := make([]order.Settled, len(ss))
	for i, s := range ss {
		r := m.rows[s.ID]
		if r == nil {
			out[i] = order.Stale
			continue
		}
		if r.State != order.Processing || r.Version != s.Version {
			out[i] = order.Stale
			if desk.LateAnswer(r.State, s.State) == desk.Conflict {
				out[i] = order.Conflict
			}
			continue
		}
		if r.Phase == order.InFlight && s.Phase == order.Unknown {
			r.LastAttempt = m.now()
		}
		r.State, r.Phase, r.Version, r.owner = s.State, s.Phase, r.Version+1, ""
		r.Attempts, r.AttemptsTotal, r.Lookups = s.Attempts, s.AttemptsTotal, s.Lookups
		r.Outcome, r.Reason, r.Detail, r.Due, r.UpdatedAt = s.Outcome, s.Reason, s.Detail, s.Due, m.now()
		if r.State == order.Dead {
			m.letters = append(m.letters, desk.Letter{
				ID: int64(len(m.letters) + 1), OrderID: r.ID, Route: r.Route, Number: r.Number, Message: r.Message,
				Reason: r.Reason, Detail: r.Detail, Life: r.Life, CreatedAt: m.now(), Status: desk.Waiting,
			})
		}
	}
	return out, nil
}

func (m *memory) Renew(_ context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	out := make([]bool, len(ls))
	for i, l := range ls {
		r := m.rows[l.ID]
		if out[i] = r != nil && r.State == order.Processing && r.Version == l.Version && r.owner == owner; out[i] {
			r.Due = m.now().Add(lease)
		}
	}
	return out, nil
}

func (m *memory) Bury(_ context.Context, ds []order.DeadRecord) error {
	for _, d := range ds {
		if slices.ContainsFunc(m.letters, func(l desk.Letter) bool {
			return l.OrderID == 0 && l.Message.Partition == d.Message.Partition && l.Message.Offset == d.Message.Offset
		}) {
			continue
		}
		m.letters = append(m.letters, desk.Letter{
			ID: int64(len(m.letters) + 1), Route: d.Route, Number: d.Number, Message: d.Message,
			Reason: d.Reason, Detail: d.Detail, CreatedAt: m.now(), Status: desk.Waiting,
		})
	}
	return nil
}

func (m *memory) Begin(_ context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	var out []order.Order
	for _, id := range ids {
		r := m.rows[id]
		if r == nil || r.State != order.Processing || r.Phase != order.Replaying {
			continue
		}
		now := m.now()
		r.Phase, r.Version, r.owner = order.InFlight, r.Version+1, owner
		r.Attempts, r.AttemptsTotal, r.Lookups = r.Attempts+1, r.AttemptsTotal+1, 0
		r.LastAttempt, r.Due, r.UpdatedAt = now, now.Add(lease), now
		out = append(out, r.Order)
	}
	return out, nil
}

func (m *memory) ClaimDue(_ context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error) {
	var due []*stored
	now := m.now()
	for id := range int64(len(m.rows)) {
		if r := m.rows[id+1]; r.Route == route && r.State == order.Processing && !r.Due.After(now) {
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *stored) int { return a.Due.Compare(b.Due) })
	out := make([]order.Order, 0, n)
	for _, r := range due[:min(n, len(due))] {
		switch r.Phase {
		case order.InFlight:
			r.LastAttempt = now
			r.Phase, r.Lookups, r.Outcome, r.Reason = order.Unknown, 1, order.OutcomeUnknown, order.WorkerDied
		case order.Unknown:
			r.Lookups++
		case order.Replaying, order.NoPhase:
		}
		r.Version, r.owner, r.Due, r.UpdatedAt = r.Version+1, owner, now.Add(lease), now
		out = append(out, r.Order)
	}
	return out, nil
}

func (m *memory) ShowOrder(_ context.Context, _, number string) (desk.OrderView, error) {
	r := m.byNumber[number]
	if r == nil {
		return desk.OrderView{}, fmt.Errorf("order %q: %w", number, desk.ErrNotFound)
	}
	v := desk.OrderView{Order: r.Order, Owner: r.owner}
	for _, l := range m.letters {
		if l.OrderID == r.ID && l.Status == desk.Waiting {
			v.Letter = l.ID
		}
	}
	return v, nil
}

func (m *memory) ListDeadLetters(_ context.Context, _ desk.LetterFilter) ([]desk.Letter, error) {
	return slices.Clone(m.letters), nil
}

func (m *memory) Requeue(_ context.Context, _ desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error) {
	for _, q := range rs {
		l := &m.letters[q.ID-1]
		r := m.rows[l.OrderID]
		if l.Status != desk.Waiting || r == nil || r.State != order.Dead {
			continue
		}
		l.Status = desk.Requeued
		r.State, r.Phase, r.Version, r.Life = order.Processing, order.Unknown, r.Version+1, r.Life+1
		r.Attempts, r.AttemptsTotal, r.Lookups, r.Reason = 0, 0, 0, order.Requeued
		r.Due, r.UpdatedAt = m.now(), m.now()
	}
	return nil, nil
}
