// Package memstore keeps the record of orders in memory, with the rules of the one in PostgreSQL: both pass the suite
// in internal/storetest. It is for tests and the simulation. Nothing in it waits, starts a goroutine or reads a clock
// but the one it is given; called from one goroutine it always does the same.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// Store is the record of orders in memory. Its methods may be called concurrently; each is one step.
type Store struct {
	now func() time.Time

	mu      sync.Mutex // guards what follows
	rows    []*row     // by ID, from 1
	numbers map[key]*row
	live    map[int64]*row // the PROCESSING ones
	letters []*desk.Letter // by ID, from 1
}

type key struct{ route, number string }

// row is an order as the store has it.
type row struct {
	order.Order
	owner   string
	history []desk.Event
	letter  *desk.Letter // that waits
}

// New returns an empty store. now is its clock, which leases and due times go by.
func New(now func() time.Time) *Store {
	return &Store{now: now, numbers: map[key]*row{}, live: map[int64]*row{}}
}

// row returns the order with this ID, or nil.
func (s *Store) row(id int64) *row {
	if id < 1 || id > int64(len(s.rows)) {
		return nil
	}
	return s.rows[id-1]
}

// begin checks the context, which a store that waits for nothing would otherwise never look at, and takes the lock.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	return nil
}

// Admit makes orders of records: see postgres.Store.
func (s *Store) Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error) {
	for i := range as {
		if err := order.CheckNumber(as[i].Number); err != nil {
			return nil, fmt.Errorf("admit record %d of the batch: %w", i, err)
		}
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	out := make([]order.Admitted, len(as))
	for i := range as {
		a := &as[i]
		if r := s.numbers[key{route, a.Number}]; r != nil {
			if s.takeBack(r, a, owner, now.Add(lease), now) {
				out[i] = order.Admitted{Kind: order.New, Order: fresh(r)}
				continue
			}
			out[i] = s.known(r, a)
			continue
		}
		r := &row{owner: owner, Order: order.Order{
			Route: route, Number: a.Number, Message: clone(a.Message),
			State: order.Processing, Phase: order.InFlight, Version: 1, Attempts: 1, AttemptsTotal: 1,
			AdmittedAt: now, LastAttempt: now, Due: now.Add(lease), UpdatedAt: now,
		}}
		s.insert(r)
		out[i] = order.Admitted{Kind: order.New, Order: fresh(r)}
	}
	return out, nil
}

func fresh(r *row) order.Order {
	o := r.Order
	o.Fresh = true
	return o
}

// takeBack begins the first attempt of an order that an earlier reader of the same record had withdrawn.
func (s *Store) takeBack(r *row, a *order.Admission, owner string, due, now time.Time) bool {
	was, is := &r.Message, &a.Message
	if !order.Withdrawn(&r.Order) || was.Topic != is.Topic || was.Partition != is.Partition || was.Offset != is.Offset ||
		!same(was.Value, is.Value) {
		return false
	}
	r.Attempts, r.AttemptsTotal, r.Lookups, r.LastAttempt, r.owner = 1, 1, 0, now, owner
	r.Outcome, r.Reason, r.Detail = order.NoOutcome, order.NoReason, ""
	s.move(r, order.Processing, order.InFlight, due, now)
	return true
}

func (s *Store) insert(r *row) {
	r.ID = int64(len(s.rows)) + 1
	s.rows = append(s.rows, r)
	s.numbers[key{r.Route, r.Number}] = r
	s.live[r.ID] = r
}

// known tells a duplicate from a clash, and buries the record of the latter.
func (s *Store) known(r *row, a *order.Admission) order.Admitted {
	got := order.Admitted{Kind: order.Duplicate, Order: order.Order{
		ID: r.ID, Route: r.Route, Number: r.Number, State: r.State, Phase: r.Phase, Version: r.Version,
	}}
	if !same(r.Message.Value, a.Message.Value) {
		got.Kind = order.Clash
		s.bury(&order.DeadRecord{
			Route: r.Route, Number: a.Number, Message: a.Message, Reason: order.PayloadConflict,
			Detail: fmt.Sprintf("order %d has another value under this business number", r.ID),
		})
	}
	return got
}

// Settle applies transitions: see postgres.Store.
func (s *Store) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	out := make([]order.Settled, len(ss))
	for i := range ss {
		out[i] = s.settle(owner, &ss[i], now)
	}
	for i := range ss { // what missed is looked at when all others are done, as in the database
		if r := s.row(ss[i].ID); r != nil && out[i] != order.Applied {
			out[i] = s.late(r, owner, &ss[i], now)
		}
	}
	return out, nil
}

func (s *Store) settle(owner string, t *order.Settlement, now time.Time) order.Settled {
	r := s.row(t.ID)
	if r == nil || r.Version != t.Version || r.State != order.Processing {
		return order.Stale
	}
	r.Attempts, r.AttemptsTotal, r.Lookups = t.Attempts, t.AttemptsTotal, t.Lookups
	r.Outcome, r.Reason, r.Detail = t.Outcome, t.Reason, desk.Fit(t.Detail)
	if r.Phase == order.InFlight && t.Phase == order.Unknown {
		r.LastAttempt = now // it may have begun until now
	}
	due := t.Due
	if due.IsZero() {
		due = now
	}
	r.owner = ""
	if t.Phase == order.InFlight {
		r.owner = owner
	}
	s.move(r, t.State, t.Phase, due, now)
	if !t.Straight || t.State == order.Dead {
		s.tell(r, order.Processing, owner, now)
	}
	if r.State == order.Dead {
		s.letter(&desk.Letter{
			OrderID: r.ID, Route: r.Route, Number: r.Number, Message: r.Message, Reason: r.Reason, Detail: r.Detail,
			AttemptsTotal: r.AttemptsTotal, Life: r.Life,
		}, now)
		r.letter = s.letters[len(s.letters)-1]
	}
	return order.Applied
}

// late is what a settlement is worth that did not find its row as it was read.
func (s *Store) late(r *row, owner string, t *order.Settlement, now time.Time) order.Settled {
	kind := desk.LateAnswer(r.State, t.State)
	if kind == "" {
		return order.Stale
	}
	r.history = append(r.history, desk.Event{
		Kind: kind, Version: r.Version, At: now, From: r.State, To: t.State, Outcome: t.Outcome, Reason: t.Reason,
		Detail: desk.Fit(t.Detail), AttemptsTotal: t.AttemptsTotal, Lookups: t.Lookups, Life: r.Life, Actor: owner,
	})
	if kind == desk.Conflict {
		return order.Conflict
	}
	return order.Stale
}

// move puts a row where it now stands.
func (s *Store) move(r *row, state order.State, phase order.Phase, due, now time.Time) {
	r.State, r.Phase, r.Due, r.UpdatedAt = state, phase, due, now
	r.Version++
	if state == order.Processing {
		s.live[r.ID] = r
		return
	}
	r.Due, r.owner = time.Time{}, ""
	delete(s.live, r.ID)
}

// tell writes the row's last transition to its history.
func (s *Store) tell(r *row, from order.State, actor string, now time.Time) {
	r.history = append(r.history, desk.Event{
		Kind: desk.Transition, Version: r.Version, At: now, From: from, To: r.State, Phase: r.Phase, Outcome: r.Outcome,
		Reason: r.Reason, Detail: r.Detail, AttemptsTotal: r.AttemptsTotal, Lookups: r.Lookups, Life: r.Life, Actor: actor,
	})
}

// Renew makes leases end one lease from now: see postgres.Store.
func (s *Store) Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	out := make([]bool, len(ls))
	for i, l := range ls {
		r := s.row(l.ID)
		if r == nil || r.Version != l.Version || r.State != order.Processing || r.owner != owner {
			continue
		}
		r.Due, out[i] = s.now().Add(lease), true
	}
	return out, nil
}

// Begin starts the next attempt of orders that wait in the replay queue: see postgres.Store.
func (s *Store) Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []order.Order
	for _, id := range ids {
		r := s.row(id)
		if r == nil || r.State != order.Processing || r.Phase != order.Replaying {
			continue
		}
		now := s.now()
		r.Attempts++
		r.AttemptsTotal++
		r.Lookups, r.owner, r.LastAttempt = 0, owner, now
		s.move(r, order.Processing, order.InFlight, now.Add(lease), now)
		out = append(out, r.Order)
	}
	return out, nil
}

// ClaimDue takes what is due: see postgres.Store.
func (s *Store) ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	var due []*row
	for _, r := range s.live {
		if r.Route == route && !r.Due.After(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *row) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	var out []order.Order
	for _, r := range due[:min(max(n, 0), len(due))] {
		s.claim(r, owner, now.Add(lease), now)
		out = append(out, r.Order)
	}
	return out, nil
}

func (s *Store) claim(r *row, owner string, due, now time.Time) {
	switch r.Phase {
	case order.InFlight:
		r.LastAttempt = now // it may have begun until its lease was over
		r.Lookups, r.Outcome, r.Reason = 1, order.OutcomeUnknown, order.WorkerDied
		r.Detail = desk.Fit("the lease of " + r.owner + " ran out")
		r.owner = owner
		s.move(r, order.Processing, order.Unknown, due, now)
		s.tell(r, order.Processing, owner, now)
		return
	case order.Unknown:
		r.Lookups++
	case order.Replaying, order.NoPhase:
	}
	r.owner = owner
	s.move(r, order.Processing, r.Phase, due, now)
}

// Bury writes records that could not become orders to the dead letters: see postgres.Store.
func (s *Store) Bury(ctx context.Context, ds []order.DeadRecord) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i := range ds {
		s.bury(&ds[i])
	}
	return nil
}

func (s *Store) bury(d *order.DeadRecord) {
	for _, l := range s.letters {
		if l.OrderID == 0 && l.Route == d.Route && sameRecord(l, d) && (d.Raw == nil || l.Status == desk.Waiting) {
			return
		}
	}
	l := &desk.Letter{
		Route: d.Route, Number: desk.Fit(d.Number), Message: clone(d.Message), Raw: bytes.Clone(d.Raw),
		Unreadable: d.Raw != nil, Reason: d.Reason, Detail: desk.Fit(d.Detail),
	}
	s.letter(l, s.now())
}

func (s *Store) letter(l *desk.Letter, now time.Time) {
	l.ID, l.CreatedAt, l.Status = int64(len(s.letters))+1, now, desk.Waiting
	s.letters = append(s.letters, l)
}

func sameRecord(l *desk.Letter, d *order.DeadRecord) bool {
	a, b := &l.Message, &d.Message
	return same(l.Raw, d.Raw) && a.Topic == b.Topic && a.Partition == b.Partition && a.Offset == b.Offset &&
		a.Time.Equal(b.Time) && same(a.Key, b.Key) && same(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y order.Header) bool { return x.Key == y.Key && same(x.Value, y.Value) })
}

// same compares bytes; null is not empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// clone makes the record the store's own, as a database's is.
func clone(m order.Message) order.Message {
	m.Key, m.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
	m.Headers = slices.Clone(m.Headers)
	for i := range m.Headers {
		m.Headers[i].Value = bytes.Clone(m.Headers[i].Value)
	}
	return m
}
