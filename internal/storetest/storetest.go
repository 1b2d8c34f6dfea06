// Package storetest is the contract of the record of orders: one suite of tests that every store passes, the one in
// PostgreSQL and the one in memory.
package storetest

import (
	"context"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

// Store is what the suite holds a store to: all that the consumer, the replay queue, the compensator and the
// operator's desk ask of it.
type Store interface {
	Mover
	Leaser
	Reader
	Resolver
}

// Mover is what the consumer asks of a store.
type Mover interface {
	Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error)
	Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error)
	Bury(ctx context.Context, ds []order.DeadRecord) error
}

// Leaser is what whoever works on orders asks of a store.
type Leaser interface {
	Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error)
	Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error)
	ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error)
}

// Reader is what the operator's desk reads.
type Reader interface {
	ListOrders(ctx context.Context, f desk.OrderFilter) ([]order.Order, error)
	ShowOrder(ctx context.Context, route, number string) (desk.OrderView, error)
	ListDeadLetters(ctx context.Context, f desk.LetterFilter) ([]desk.Letter, error)
	ShowDeadLetter(ctx context.Context, id int64) (desk.Letter, error)
}

// Resolver is what a person does, and what the gauges show.
type Resolver interface {
	Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error)
	Discard(ctx context.Context, by desk.Sign, ids []int64) ([]desk.Resolved, error)
	Counts(ctx context.Context, route string) (desk.Counts, error)
	Tally(ctx context.Context, route string) (desk.Tally, error)
}

// hour is a lease that does not end within a test; past is one that ended when it began.
const (
	hour = time.Hour
	past = 0
)

// Run runs the suite. open returns a store that may hold other routes' rows; it is called once per test, which runs in
// parallel to the others.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for _, part := range []map[string]func(*fixture){admissions(), settlements(), leases(), deadLetters(), listings()} {
		for name, test := range part {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newFixture(t, open(t)))
			})
		}
	}
}

// fixture is a store and a route of the test's own.
type fixture struct {
	*testing.T
	s      Store
	route  string
	offset int64
}

func newFixture(t *testing.T, s Store) *fixture {
	t.Helper()
	return &fixture{T: t, s: s, route: t.Name()}
}

// admission makes an admission of a record at the next offset.
func (f *fixture) admission(number, value string) order.Admission {
	f.offset++
	return order.Admission{Number: number, Message: order.Message{
		Topic: "orders.in", Partition: 2, Offset: f.offset, Key: []byte(number), Value: []byte(value),
		Headers: []order.Header{{Key: "k", Value: []byte("a")}, {Key: "k", Value: nil}, {Key: "k", Value: []byte{}}},
		Time:    time.Date(2026, 3, 1, 12, 0, 0, 7_000_000, time.UTC),
	}}
}

// admit admits records of these numbers, each of which must be new.
func (f *fixture) admit(lease time.Duration, numbers ...string) []order.Order {
	f.Helper()
	as := make([]order.Admission, len(numbers))
	for i, n := range numbers {
		as[i] = f.admission(n, `{"order_no":"`+n+`"}`)
	}
	got, err := f.s.Admit(f.Context(), f.route, "w1", lease, as)
	f.must(err)
	if len(got) != len(as) {
		f.Fatalf("admitted %d of %d", len(got), len(as))
	}
	var out []order.Order
	for i := range got {
		if got[i].Kind != order.New {
			f.Fatalf("%s: kind %d, want New", as[i].Number, got[i].Kind)
		}
		out = append(out, got[i].Order)
	}
	return out
}

// settle applies one transition to o and returns what the store did.
func (f *fixture) settle(o order.Order, t order.Transition) order.Settled {
	f.Helper()
	got, err := f.s.Settle(f.Context(), "w1", []order.Settlement{o.Settle(t)})
	f.must(err)
	if len(got) != 1 {
		f.Fatalf("settled %d, want 1", len(got))
	}
	return got[0]
}

// move is settle where it must apply; it returns the order as it then stands.
func (f *fixture) move(o order.Order, t order.Transition) order.Order {
	f.Helper()
	if got := f.settle(o, t); got != order.Applied {
		f.Fatalf("settle %s to %s/%s: %d, want Applied", o.Number, t.State, t.Phase, got)
	}
	return f.view(o.Number).Order
}

func (f *fixture) view(number string) desk.OrderView {
	f.Helper()
	v, err := f.s.ShowOrder(f.Context(), f.route, number)
	f.must(err)
	return v
}

func (f *fixture) waiting() []desk.Letter {
	f.Helper()
	ls, err := f.s.ListDeadLetters(f.Context(), desk.LetterFilter{Route: f.route, Status: desk.Waiting})
	f.must(err)
	return ls
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// stands fails the test unless o stands there.
func (f *fixture) stands(o order.Order, state order.State, phase order.Phase, version int64) {
	f.Helper()
	if o.State != state || o.Phase != phase || o.Version != version {
		f.Errorf("%s: %s/%s version %d, want %s/%s version %d", o.Number, o.State, o.Phase, o.Version, state, phase, version)
	}
}

// counts fails the test unless o's counters are these.
func (f *fixture) counts(o order.Order, attempts, total, lookups, life int) {
	f.Helper()
	if o.Attempts != attempts || o.AttemptsTotal != total || o.Lookups != lookups || o.Life != life {
		f.Errorf("%s: attempts %d/%d, lookups %d, life %d, want %d/%d, %d, %d",
			o.Number, o.Attempts, o.AttemptsTotal, o.Lookups, o.Life, attempts, total, lookups, life)
	}
}

// Transitions that the tests settle with. Their counts are those of a first attempt.

func succeeded() order.Transition {
	return order.Transition{
		State: order.Succeeded, Attempts: 1, AttemptsTotal: 1,
		Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Detail: "200",
	}
}

func failed() order.Transition {
	return order.Transition{
		State: order.Failed, Attempts: 1, AttemptsTotal: 1,
		Outcome: order.OutcomeRejected, Reason: order.BusinessRejected, Detail: "409",
	}
}

func dead() order.Transition {
	return order.Transition{
		State: order.Dead, Attempts: 1, AttemptsTotal: 1,
		Outcome: order.OutcomeInvalid, Reason: order.RequestRejected, Detail: "400",
	}
}

func unknown(due time.Time) order.Transition {
	return order.Transition{
		State: order.Processing, Phase: order.Unknown, Attempts: 1, AttemptsTotal: 1,
		Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Detail: "no answer", Due: due,
	}
}

func replaying(due time.Time) order.Transition {
	return order.Transition{
		State: order.Processing, Phase: order.Replaying, Attempts: 1, AttemptsTotal: 1,
		Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Detail: "503", NotBefore: due, Due: due,
	}
}
