package replay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"spillway/order"
	"spillway/replay"
)

// An order that the downstream refused for load is pushed, and comes through at its next attempt.
func ExampleNew() {
	store, service := newMemStore(), newService(&testing.T{}, 4)
	engine, err := replay.New(replay.Config{Route: "pay", Owner: "worker-1"}, policy(), newMemQueue(1000), store, service,
		discard(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := engine.Push(ctx, store.add("pay", 1)); err != nil {
		fmt.Println(err)
		return
	}
	if err := engine.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	o := store.get(1)
	fmt.Println(o.State, "after", o.Attempts, "attempts;", store.count(order.Processing, order.Replaying), "wait")
	// Output: SUCCEEDED after 2 attempts; 0 wait
}
