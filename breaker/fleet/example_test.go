package fleet_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/redis"
)

// A worker runs a Sharer for its breakers. An order that somebody gives anywhere reaches all of them.
func ExampleSharer() {
	server, err := miniredis.Run() // stands for Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client, err := redis.Open(redis.Config{URL: "redis://" + server.Addr()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	moves := make(chan breaker.Event, 10)
	wallet := breaker.Key{Service: "wallet", Endpoint: "submit"}
	b, err := breaker.New(wallet, breaker.Config{}, nil, func(e breaker.Event) { moves <- e })
	if err != nil {
		fmt.Println(err)
		return
	}
	sharer, err := fleet.New(fleet.Config{Worker: "worker-1"}, client.Breakers(), func() []*breaker.Breaker { return []*breaker.Breaker{b} }, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- sharer.Run(ctx) }()

	_, err = fleet.Give(ctx, client.Breakers(), fleet.Order{
		Key: wallet, Force: breaker.ForceOpen, For: time.Hour, Operator: "kim", Reason: "the wallet is moved to another site",
	})
	e := <-moves
	_, ok := b.Allow()
	fmt.Println(err, e.To, e.Reason, ok)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// <nil> open forced false
	// <nil>
}
