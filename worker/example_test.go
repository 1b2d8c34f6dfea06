package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"spillway/order"
	"spillway/worker"
)

// bank is where the orders go. It keeps the business number of each payment, so that it can tell what became of an
// order; and it is safe for concurrent use, for Spillway makes up to permits.limit calls at once.
type bank struct {
	mu    sync.Mutex // guards what follows
	funds int
	paid  map[string]int
}

// Submit makes one payment and says what happened. Whatever may have been applied must be OutcomeUnknown.
func (b *bank) Submit(_ context.Context, o *order.Order) order.Answer {
	var payment struct{ Amount int }
	if err := json.Unmarshal(o.Message.Value, &payment); err != nil {
		return order.Answer{Outcome: order.OutcomeInvalid, Reason: order.Undecodable, Detail: err.Error()}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if payment.Amount > b.funds {
		return order.Answer{Outcome: order.OutcomeRejected, Reason: order.BusinessRejected, Detail: "no funds", Sent: true}
	}
	b.funds -= payment.Amount
	b.paid[o.Number] = payment.Amount
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true}
}

// Lookup says what became of an order, without changing anything.
func (b *bank) Lookup(_ context.Context, o *order.Order) order.Finding {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, paid := b.paid[o.Number]; !paid {
		return order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}
	}
	return order.Finding{Verdict: order.VerdictSucceeded, Reason: order.Confirmed}
}

// serve works until the process is told to stop; then it drains, commits and leaves the group.
func serve(ctx context.Context, settings string, h order.Handler) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := worker.Load(settings, nil) // os.Environ() for the overrides
	if err != nil {
		return err
	}
	w, err := worker.New(ctx, cfg, worker.Options{
		Handlers: map[string]order.Handler{"wallet": h}, // by the route's name
		Logger:   slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// A program that embeds Spillway gives a route a handler of its own in place of the HTTP downstream. Mistakes in the
// settings are told all at once, with their places, before anything is connected to.
func Example() {
	b := &bank{funds: 10, paid: map[string]int{}}
	ctx := context.Background()
	for number, value := range []string{`{"amount": 7}`, `{"amount": 7}`, `{"amount"`} {
		o := &order.Order{Number: fmt.Sprint("A-", number), Message: order.Message{Value: []byte(value)}}
		fmt.Println(o.Number, b.Submit(ctx, o).Outcome, b.Lookup(ctx, o).Verdict)
	}
	if err := serve(ctx, "testdata/example.yaml", b); err != nil {
		fmt.Println(err)
	}
	// Output:
	// A-0 SUCCEEDED SUCCEEDED
	// A-1 REJECTED NOT_FOUND
	// A-2 INVALID NOT_FOUND
	// testdata/example.yaml:11:22: routes.wallet.permits.limit: 0 is too small; accepted: a whole number, 1 to 10000
}
