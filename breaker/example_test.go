package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"spillway/breaker"
)

var errRefused = errors.New("not called: the breaker is open")

// pay calls a service under a breaker. The caller says what each answer shows of the service: that it is well, ill, or
// nothing.
func pay(ctx context.Context, b *breaker.Breaker, url string) error {
	permit, ok := b.Allow()
	if !ok {
		return errRefused
	}
	result := breaker.Ignored // what is not decided below, a panic included, gives the permit back and counts for nothing
	defer func() { b.Done(permit, result) }()

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // shorter than Config.PermitDeadline
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		result = breaker.Failure
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only its status matters
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests:
		result = breaker.Failure
	case resp.StatusCode >= 400:
		result = breaker.Ignored // our own mistake shows nothing of the service
	default:
		result = breaker.Success // a refusal for business reasons too: the service works
	}
	return nil
}

// The whole of it: ask, call, report.
func Example() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer service.Close()

	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "pay"}, breaker.Config{ConsecutiveFailures: 3}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(pay(context.Background(), b, service.URL), b.Snapshot().State)
	}
	// Output:
	// <nil> closed
	// <nil> closed
	// <nil> open
	// not called: the breaker is open open
}

// A configuration of zeros is a good one; what is set is checked, every field at once.
func ExampleNew() {
	key := breaker.Key{Service: "wallet", Endpoint: "pay"}
	b, err := breaker.New(key, breaker.Config{}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Snapshot().State, b.Config().OpenWait)

	_, err = breaker.New(key, breaker.Config{FailureRate: 50, OpenWait: -time.Second}, nil, nil)
	fmt.Println(err)
	// Output:
	// closed 30s
	// breaker wallet/pay: breaker: FailureRate is 50, accepted: more than 0, at most 1, or negative for off
	// breaker: OpenWait is -1s, accepted: 1ms to 24h
}

// A permit that was not used after all is given back with Ignored, so that a probe's place is free at once.
func ExampleBreaker_Done() {
	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "pay"}, breaker.Config{}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if permit, ok := b.Allow(); ok {
		b.Done(permit, breaker.Success) // after the call
	}
	if permit, ok := b.Allow(); ok {
		b.Done(permit, breaker.Ignored) // no call was made
	}
	totals := b.Snapshot().Totals
	fmt.Println(totals.Admitted, totals.Successes, totals.Ignored)
	// Output: 2 1 1
}

// A caller that has the time already passes it, which spares the clock; tests pass whatever time they like. Three failures
// in a row open the breaker here; after its wait one good probe closes it. The listener hears of every move.
func ExampleNewAt() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cfg := breaker.Config{ConsecutiveFailures: 3, OpenWait: 5 * time.Second, OpenJitter: -1, SuccessesToClose: 1}
	key := breaker.Key{Service: "wallet", Endpoint: "pay"}
	b, err := breaker.NewAt(now, key, cfg, rand.New(rand.NewPCG(1, 2)), func(e breaker.Event) {
		fmt.Printf("%s %s: %s -> %s (%s)\n", e.At.Format(time.TimeOnly), e.Key, e.From, e.To, e.Reason)
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 3 {
		if permit, ok := b.AllowAt(now); ok {
			b.DoneAt(now, permit, breaker.Failure)
		}
	}
	_, ok := b.AllowAt(now)
	fmt.Println("admitted while open:", ok)

	now = now.Add(5 * time.Second)
	if permit, ok := b.AllowAt(now); ok {
		fmt.Println("probe:", permit.Probe())
		b.DoneAt(now, permit, breaker.Success)
	}
	fmt.Println("now:", b.SnapshotAt(now).State)
	// Output:
	// 12:00:00 wallet/pay: closed -> open (consecutive-failures)
	// admitted while open: false
	// 12:00:05 wallet/pay: open -> half-open (wait-over)
	// probe: true
	// 12:00:05 wallet/pay: half-open -> closed (probes-succeeded)
	// now: closed
}

// A listener is told the rule behind a move, what it saw and what it wanted. It runs outside the breaker's lock, in the
// goroutine whose call caused the move.
func ExampleEvent() {
	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "pay"}, breaker.Config{}, nil, func(e breaker.Event) {
		fmt.Printf("%s: %s, because of %s: %d of %d failed in %v, %.0f %%; threshold %.0f %%\n",
			e.Key, e.To, e.Reason, e.Failures, e.Samples, e.Window, 100*e.Rate, 100*e.Threshold)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 20 {
		if permit, ok := b.Allow(); ok {
			b.Done(permit, []breaker.Result{breaker.Success, breaker.Failure}[i%2])
		}
	}
	// Output: wallet/pay: open, because of failure-rate: 10 of 20 failed in 10s, 50 %; threshold 50 %
}

// Answers that come too late open a breaker as failures do, by a window, a rate and a minimum of their own.
func ExampleConfig_slowCalls() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cfg := breaker.Config{SlowCall: 500 * time.Millisecond, SlowRate: 0.8, SlowMinCalls: 5, SlowWindow: 30 * time.Second}
	b, err := breaker.NewAt(now, breaker.Key{Service: "wallet", Endpoint: "pay"}, cfg, nil, func(e breaker.Event) {
		fmt.Println(e.To, e.Reason, e.Slow, "of", e.Samples)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		permit, _ := b.AllowAt(now)
		now = now.Add(600 * time.Millisecond) // the call
		b.DoneAt(now, permit, breaker.Success)
	}
	// Output: open slow-rate 5 of 5
}

// An operator's order stands above what the breaker sees, until it ends.
func ExampleBreaker_Force() {
	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "pay"}, breaker.Config{}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.Force(breaker.ForceOpen, 15*time.Minute); err != nil {
		fmt.Println(err)
	}
	_, ok := b.Allow()
	fmt.Println(ok, b.Snapshot().Force)

	fmt.Println(b.Force(breaker.ForceClosed, 0)) // a force must end
	if err := b.Force(breaker.ForceNone, 0); err != nil {
		fmt.Println(err)
	}
	fmt.Println(b.Snapshot().State, b.Snapshot().Force)
	// Output:
	// false open
	// breaker: Force duration is 0s, accepted: 1ms to 720h
	// half-open none
}

// One breaker for each endpoint, at most a hundred of them. Get one for each call: an idle one may be forgotten.
func ExampleNewSet() {
	set, err := breaker.NewSet(breaker.Config{ConsecutiveFailures: 1}, 100, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []breaker.Key{{Service: "wallet", Endpoint: "pay"}, {Service: "wallet", Endpoint: "refund"}} {
		b, err := set.Get(key)
		if err != nil {
			fmt.Println(err) // breaker.ErrSetFull: every breaker of the set is in use
			return
		}
		if permit, ok := b.Allow(); ok {
			b.Done(permit, map[string]breaker.Result{"pay": breaker.Failure, "refund": breaker.Success}[key.Endpoint])
		}
	}
	for _, s := range set.Snapshots() {
		fmt.Println(s.Key, s.State)
	}
	// Output:
	// wallet/pay open
	// wallet/refund closed
}
