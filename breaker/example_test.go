package breaker_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"spillway/breaker"
)

// Three failures in a row open the breaker; after its wait one good probe closes it.
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

// A breaker on the machine's clock.
func ExampleNew() {
	b, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: "pay"}, breaker.Config{}, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, ok := b.Allow()
	if ok {
		b.Done(permit, breaker.Success) // after the call
	}
	fmt.Println(ok, b.Snapshot().Totals.Successes)
	// Output: true 1
}

// One breaker for each endpoint, at most a hundred of them.
func ExampleNewSet() {
	set, err := breaker.NewSet(breaker.Config{}, 100, nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := set.Get(breaker.Key{Service: "wallet", Endpoint: "pay"})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, ok := b.Allow()
	fmt.Println(ok, permit.Probe(), set.Len())
	// Output: true false 1
}
