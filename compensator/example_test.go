package compensator_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"spillway/compensator"
	"spillway/internal/memstore"
	"spillway/order"
)

// oneByOne looks orders up with one permit, and ends the example after the first. A worker gives the scanner its
// route's attempter.
type oneByOne struct {
	ask  func(number string) order.Verdict
	done func()
}

func (oneByOne) Pace(time.Time, order.Lane, string) time.Duration { return 0 }
func (oneByOne) Unpace(order.Lane, string)                        {}

func (oneByOne) Free(order.Lane) int                             { return 1 }
func (oneByOne) Acquire(ctx context.Context, _ order.Lane) error { return ctx.Err() }
func (oneByOne) LookupRoom() (int, bool)                         { return 1000, false }

func (c oneByOne) Lookup(_ context.Context, _ order.Lane, o *order.Order) order.Finding {
	defer c.done()
	return order.Finding{Verdict: c.ask(o.Number), Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}
}

func ExampleNew() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	store := memstore.New(time.Now)
	// A worker admitted an order, and died: its lease is over.
	_, err := store.Admit(ctx, "payments", "worker-1", 0, []order.Admission{{Number: "T-1001", Message: order.Message{Value: []byte("{}")}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := oneByOne{ask: func(string) order.Verdict { return order.VerdictSucceeded }, done: stop}
	scanner, err := compensator.New(compensator.Config{Route: "payments", Owner: "worker-2"}, order.Policy{CompensateAttempts: 5},
		store, calls, &queue{queued: map[int64]bool{}}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := scanner.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	view, err := store.ShowOrder(context.Background(), "payments", "T-1001")
	fmt.Println(view.Order.State, view.Order.Lookups, err)
	// Output: SUCCEEDED 1 <nil>
}
