package consumer

import (
	"math/rand/v2"
	"testing"
	"time"
)

// at is a moment so many seconds after the epoch.
func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

func TestGateAccountsForEachSecondOnce(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	for _, gr := range g.Plan(at(0), ids, nil) {
		g.Delivered(at(1), gr, 10, 1000, 10, 100)
	}
	g.Awaits(at(1), ConstraintPermits)
	g.Hold(at(2), HoldStore, true)
	g.Hold(at(3), HoldReplayFull, true) // hidden behind the store
	g.Hold(at(5), HoldStore, false)
	g.Hold(at(6), HoldReplayFull, false)
	g.Awaits(at(8), ConstraintRate)
	g.Hold(at(9), HoldBreaker, true)
	g.Hold(at(10), HoldBreaker, false)
	g.Started(at(11), 10, 1000) // nothing waits any more
	g.Awaits(at(11), ConstraintNone)
	want := map[Constraint]float64{
		ConstraintNone: 2, ConstraintPermits: 3, ConstraintStore: 3, ConstraintReplayFull: 1, ConstraintRate: 2, ConstraintBreaker: 1,
		ConstraintBytes: 0,
	}
	got := g.Bound(at(12))
	for _, c := range Constraints() {
		if got[c].Seconds() != want[c] {
			t.Errorf("%s bound for %v, want %vs", c, got[c], want[c])
		}
	}
}

func TestGateSaysBytesOnceTheCeilingIsReached(t *testing.T) {
	t.Parallel()
	g, ids := testGate(1)
	grants := g.Plan(at(0), ids, nil)
	g.Delivered(at(0), grants[0], 1, 63*mib, 1, 100)
	g.Started(at(0), 1, 63*mib)
	if c := g.Constraint(); c != ConstraintBytes {
		t.Fatalf("constraint %s with 63 of 64 MiB held and nothing waiting", c)
	}
	g.Closed(at(4), 63*mib)
	if got := g.Bound(at(9))[ConstraintBytes]; got != 4*time.Second {
		t.Fatalf("bytes bound for %v, want 4s", got)
	}
}

// The sums add up to the time that passed, whatever happened in it.
func FuzzGateBoundTimesAddUp(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		g, _ := testGate(3)
		now := epoch
		naive := make(map[Constraint]time.Duration)
		for range 500 {
			step := time.Duration(rnd.IntN(1000)) * time.Millisecond
			naive[g.Constraint()] += step
			now = now.Add(step)
			switch rnd.IntN(4) {
			case 0:
				g.Hold(now, HoldReasons()[rnd.IntN(len(HoldReasons()))], rnd.IntN(2) == 0)
			case 1:
				g.Awaits(now, Constraints()[rnd.IntN(3)])
			case 2:
				g.Unstarted(now, 1, 100)
			case 3:
				if g.Level().Queued > 0 {
					g.Started(now, 1, 100)
				}
			}
		}
		got, sum := g.Bound(now), time.Duration(0)
		for _, c := range Constraints() {
			sum += got[c]
			if got[c] != naive[c] {
				t.Errorf("%s bound for %v, counted one by one %v", c, got[c], naive[c])
			}
		}
		if sum != now.Sub(epoch) {
			t.Errorf("the sums make %v of %v", sum, now.Sub(epoch))
		}
	})
}
