package drill

import (
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

// TestAnOutageWithAKillInEachPhaseBuriesAndDoublesNothing is the benchmark's story in short: healthy, slow, 503, applied
// without an answer, healthy again, with a worker that is killed in each and started again at once.
func TestAnOutageWithAKillInEachPhaseBuriesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const (
		each  = 3 * time.Second // a phase
		steps = 30              // of production in a phase
		some  = 20              // orders a step
	)
	r := newRig(t, world{partitions: 6})
	phases := []wallet.Mode{
		wallet.Healthy(10 * time.Millisecond),
		wallet.Healthy(100 * time.Millisecond),
		wallet.Failing(503).RefuseLookups(503),
		wallet.Timeouts(1, 0, 0),
		wallet.Healthy(10 * time.Millisecond),
	}
	p := r.work()
	r.addr(p)
	begin := time.Now()
	for i, mode := range phases {
		r.wallet.SetMode(mode)
		for step := range steps {
			<-time.After(time.Until(begin.Add(time.Duration(i)*each + time.Duration(step)*each/steps)))
			r.produce(some)
			if step == steps/2 {
				p.Kill()
				p = r.work()
			}
		}
	}
	orders := len(phases) * steps * some
	r.awaitFinal(orders, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	tally := r.tally()
	if n := tally.State(order.Dead); n != 0 {
		t.Errorf("%d orders were buried by an outage: %+v", n, tally)
	}
	if c := r.wallet.Counts(); c.MaxFlight > 50 {
		t.Errorf("%d requests in flight, want at most the 50 permits", c.MaxFlight)
	}
	t.Logf("final %v after recovery; wallet %+v", time.Since(begin.Add(time.Duration(len(phases)-1)*each)), r.wallet.Counts())
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { return r.wallet.Counts().InFlight == 0, "requests hang" })
}
