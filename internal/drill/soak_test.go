package drill

import (
	"flag"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/wallet"
	"spillway/order"
)

var (
	soakOrders = flag.Int("drill.orders", 200_000, "orders of the soak")
	soakSeed   = flag.Uint64("drill.seed", 0, "seed of the soak's kills and modes; 0 draws one")
)

// soakKilling is how long the worker is killed again and again, at least ten times in all.
const soakKilling = 90 * time.Second

// moods are the ways the wallet misbehaves in the soak, some seconds each.
func moods() []wallet.Mode {
	return []wallet.Mode{
		wallet.Healthy(2 * time.Millisecond),
		wallet.Slow(40 * time.Millisecond),
		wallet.Healthy(2 * time.Millisecond),
		wallet.Failing(503),
		wallet.Healthy(2 * time.Millisecond),
		wallet.Timeouts(0.5, 0.2, 400*time.Millisecond),
		wallet.Healthy(2 * time.Millisecond),
		wallet.Resets(0.5),
		wallet.Healthy(2 * time.Millisecond),
		wallet.Failing(500),
		wallet.Mix(
			wallet.Behaviour{Kind: wallet.Answer, Latency: wallet.Duration(2 * time.Millisecond), Weight: 90},
			wallet.Behaviour{Kind: wallet.Reset, Applied: 0.5, Weight: 3},
			wallet.Behaviour{Kind: wallet.Cut, Applied: 0.5, Weight: 3},
			wallet.Behaviour{Kind: wallet.Answer, Status: 500, Applied: 0.5, Weight: 4},
		),
	}
}

// TestEveryOrderEndsOnceThoughTheWorkerIsKilledAndTheWalletMisbehaves drives 200,000 orders over 12 partitions to
// final states with a wallet that applies every POST it gets, while the worker is killed with SIGKILL at least ten times.
func TestEveryOrderEndsOnceThoughTheWorkerIsKilledAndTheWalletMisbehaves(t *testing.T) { //nolint:paralleltest // it takes the whole machine
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -drill.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, world{partitions: 12, route: `
    permits: {limit: 100}
    prefetch: {records: 20000}
`})
	orders := *soakOrders
	var moody atomic.Bool
	moody.Store(true)
	moodsDone := make(chan struct{})
	go func() {
		defer close(moodsDone)
		for i := 0; moody.Load(); i++ {
			r.wallet.SetMode(moods()[i%len(moods())])
			for range 30 {
				if moody.Load() {
					<-time.After(100 * time.Millisecond) // a mood lasts three seconds
				}
			}
		}
		r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	}()
	for r.number < orders {
		r.produce(min(20_000, orders-r.number))
	}
	kills, started := 0, time.Now()
	p := r.command()
	for {
		life := 3*time.Second + time.Duration(rnd.Int64N(int64(5*time.Second)))
		select {
		case <-p.Done():
			t.Fatalf("the worker ended by itself:\n%s", tail(p.Output()))
		case <-time.After(life):
		}
		final := r.tally().State(order.Succeeded)
		if kills >= 10 && (final >= int64(orders)*3/4 || time.Since(started) > soakKilling) {
			break
		}
		p.Kill()
		kills++
		t.Logf("kill %d after %s of life: %d final, %d effects", kills, life.Round(time.Millisecond), final, r.wallet.Counts().Effects)
		p = r.command()
	}
	moody.Store(false)
	<-moodsDone
	r.awaitFinal(orders, 5*time.Minute)
	r.awaitCommitted(30 * time.Second)
	t.Logf("%d orders, %d kills, %s", orders, kills, time.Since(started).Round(time.Second))
	r.conserved(orders)
	p.Kill()
}
