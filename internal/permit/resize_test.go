package permit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestShrinkingLimitLetsPermitsInUseDrain(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 10})
	for range 10 {
		p.TryAcquire(order.LaneLive)
	}
	if err := p.Configure(Config{Limit: 4}); err != nil {
		t.Fatal(err)
	}
	for used := 10; used > 4; used-- {
		if p.InUse() != used || p.Limit() != 4 || p.TryAcquire(order.LaneReplay) {
			t.Fatalf("%d of %d in use, want %d of 4 and nothing handed out", p.InUse(), p.Limit(), used)
		}
		p.Release(order.LaneLive)
	}
	if p.TryAcquire(order.LaneReplay) {
		t.Fatal("a fifth permit was handed out")
	}
	if free := p.Free(order.LaneReplay); free != 1 {
		t.Errorf("%d free for replay, want the 1 it is owed", free)
	}
	p.Release(order.LaneLive)
	if !p.TryAcquire(order.LaneReplay) {
		t.Error("an idle permit was refused")
	}
}

func TestGrowingLimitServesThoseWhoWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 2})
		p.TryAcquire(order.LaneLive)
		p.TryAcquire(order.LaneLive)
		got := queue(t, p, "l1", "r1", "l2", "c1", "l3")
		if err := p.Configure(Config{Limit: 5}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// Of 5, live is owed 3 and holds 2: l1, then one each of the lanes that hold none.
		if len(*got) != 3 || p.InUse() != 5 || p.Waiting() != 2 {
			t.Fatalf("served %v, %d in use, %d wait", *got, p.InUse(), p.Waiting())
		}
		for _, name := range *got {
			if name != "l1" && name != "r1" && name != "c1" {
				t.Errorf("served %v, want l1, r1 and c1", *got)
			}
		}
		p.setLimit(7)
		synctest.Wait()
		if len(*got) != 5 || p.Waiting() != 0 {
			t.Errorf("served %v", *got)
		}
	})
}

func TestCapHoldsTheLimitDownWhateverIsConfigured(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 10})
	p.SetCap(4)
	if err := p.Configure(Config{Limit: 20}); err != nil {
		t.Fatal(err)
	}
	p.setLimit(30)
	if p.Limit() != 4 || p.Guarantee(order.LaneLive) != 2 {
		t.Errorf("limit %d, live is owed %d, want 4 and 2", p.Limit(), p.Guarantee(order.LaneLive))
	}
	p.SetCap(NoCap)
	if p.Limit() != 30 || p.Guarantee(order.LaneLive) != 21 {
		t.Errorf("limit %d, live is owed %d, want 30 and 21", p.Limit(), p.Guarantee(order.LaneLive))
	}
	p.setLimit(3)
	p.SetCap(5)
	if p.Limit() != 3 {
		t.Errorf("limit %d, want 3: the cap only lowers", p.Limit())
	}
}

func TestNobodyGetsAPermitUnderACapOfZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 10})
		p.SetCap(0)
		for _, l := range lanes {
			if p.TryAcquire(l) || p.Free(l) != 0 {
				t.Errorf("lane %v: a permit was handed out or promised", l)
			}
		}
		got := queue(t, p, "l1", "c1")
		time.Sleep(time.Minute)
		if len(*got) != 0 || p.Limit() != 0 {
			t.Fatalf("served %v of %d", *got, p.Limit())
		}
		p.SetCap(1)
		synctest.Wait()
		p.Release(order.LaneLive)
		synctest.Wait()
		if len(*got) != 2 {
			t.Errorf("served %v once there was a permit", *got)
		}
		p.Release(order.LaneCompensate)
	})
}

func TestRefusedConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 10})
	for _, cfg := range []Config{{}, {Limit: -1}, {Limit: 5, Live: 2}, {Limit: maxLimit + 1}} {
		if err := p.Configure(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
	if p.Limit() != 10 || p.Guarantee(order.LaneLive) != 7 {
		t.Errorf("limit %d, live is owed %d, want 10 and 7 as before", p.Limit(), p.Guarantee(order.LaneLive))
	}
}

func TestMovingTheLimitAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	p := New(Config{Limit: 50})
	n := testing.AllocsPerRun(1000, func() {
		p.setLimit(40)
		p.SetCap(30)
		p.SetCap(NoCap)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestPoolHoldsWhileTheLimitMovesUnderStress is for the race detector, and for what no single step shows: with the limit
// moving between 0 and 8 no more than 8 are ever in use, and at the end everybody was served and nothing is held.
func TestPoolHoldsWhileTheLimitMovesUnderStress(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 8})
	var held, peak atomic.Int64
	var wg, mover sync.WaitGroup
	done := make(chan struct{})
	mover.Go(func() {
		for rnd := rand.New(rand.NewPCG(1, 2)); ; {
			select {
			case <-done:
				return
			default:
				p.SetCap(rnd.IntN(10) - 1)
				p.setLimit(1 + rnd.IntN(8))
			}
		}
	})
	for w := range 12 {
		rnd := rand.New(rand.NewPCG(uint64(w), 3))
		wg.Go(func() {
			for range 400 {
				l := lanes[rnd.IntN(len(lanes))]
				if !acquire(t, p, l, rnd) {
					continue
				}
				now := held.Add(1)
				for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
				}
				held.Add(-1)
				p.Release(l)
			}
		})
	}
	wg.Wait()
	close(done)
	mover.Wait()
	if peak.Load() > 8 || p.HighWater() > 8 || p.InUse() != 0 || p.Waiting() != 0 {
		t.Errorf("%d held at once, high water %d; at the end %d in use, %d wait", peak.Load(), p.HighWater(), p.InUse(), p.Waiting())
	}
}
