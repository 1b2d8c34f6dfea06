package permit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

var lanes = []order.Lane{order.LaneLive, order.LaneReplay, order.LaneCompensate}

func TestGuaranteesFollowTheSharesAndNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want [order.Lanes]int
	}{
		{Config{Limit: 1}, [3]int{0, 0, 0}},
		{Config{Limit: 2}, [3]int{0, 0, 0}},
		{Config{Limit: 3}, [3]int{1, 1, 1}},
		{Config{Limit: 4}, [3]int{2, 1, 1}},
		{Config{Limit: 10}, [3]int{7, 2, 1}},
		{Config{Limit: 16}, [3]int{11, 3, 1}},
		{Config{Limit: 100}, [3]int{70, 20, 10}},
		{Config{Limit: 100, Live: 0.5}, [3]int{50, 1, 1}},
		{Config{Limit: 10, Live: 1}, [3]int{8, 1, 1}},
		{Config{Limit: 10, Live: 0.1, Replay: 0.1, Compensate: 0.8}, [3]int{1, 1, 8}},
		{Config{Limit: 0}, [3]int{0, 0, 0}},
		{Config{Limit: 10, Live: 9, Replay: math.NaN(), Compensate: -1}, [3]int{8, 1, 1}},
	} {
		p := New(c.cfg)
		var got [order.Lanes]int
		sum := 0
		for _, l := range lanes {
			got[l] = p.Guarantee(l)
			sum += got[l]
		}
		if got != c.want || sum > p.Limit() || p.Limit() < 1 {
			t.Errorf("%+v: guarantees %v of %d, want %v", c.cfg, got, p.Limit(), c.want)
		}
	}
}

func TestConfigNamesWhatItRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Limit: 1}, ""},
		{Config{Limit: 100, Live: 0.7, Replay: 0.2, Compensate: 0.1}, ""},
		{Config{}, "permits: Limit is 0, accepted: 1 to 100000"},
		{Config{Limit: 5, Live: -0.1}, "permits: Live is -0.1, accepted: 0 to 1"},
		{Config{Limit: 5, Replay: math.NaN()}, "permits: Replay is NaN, accepted: 0 to 1"},
		{Config{Limit: 5, Live: 0.75, Replay: 0.5}, "permits: Live, Replay and Compensate add up to 1.25, accepted: at most 1"},
		{Config{Limit: -1, Compensate: 2}, "permits: Limit is -1, accepted: 1 to 100000\n" +
			"permits: Compensate is 2, accepted: 0 to 1\npermits: Live, Replay and Compensate add up to 2, accepted: at most 1"},
	} {
		got := ""
		if err := c.cfg.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
	}
}

func TestIdlePermitsAreLentToAnyLane(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 10})
	for i := range 10 {
		if free := p.Free(order.LaneCompensate); free != 10-i {
			t.Fatalf("%d free, want %d", free, 10-i)
		}
		if !p.TryAcquire(order.LaneCompensate) {
			t.Fatalf("permit %d of 10 was not lent", i)
		}
	}
	if p.TryAcquire(order.LaneLive) || p.InUse() != 10 || p.InUseLane(order.LaneCompensate) != 10 {
		t.Errorf("an eleventh permit was given, or the counts are wrong: %d, %d", p.InUse(), p.InUseLane(order.LaneCompensate))
	}
	for range 10 {
		p.Release(order.LaneCompensate)
	}
	if p.InUse() != 0 || p.HighWater() != 10 {
		t.Errorf("%d in use after all were released, high water %d", p.InUse(), p.HighWater())
	}
}

func TestReleaseOfAPermitNotHeldIsIgnored(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 3})
	p.TryAcquire(order.LaneLive)
	p.Release(order.LaneReplay)
	p.Release(order.LaneLive)
	p.Release(order.LaneLive)
	if p.InUse() != 0 || p.Free(order.LaneLive) != 3 {
		t.Errorf("%d in use, %d free, want 0 and 3", p.InUse(), p.Free(order.LaneLive))
	}
}

func TestUnknownLaneGetsNothing(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 3})
	for _, l := range []order.Lane{-1, order.Lanes} {
		if p.TryAcquire(l) || p.Acquire(t.Context(), l) == nil || p.Free(l) != 0 || p.InUseLane(l) != 0 || p.Guarantee(l) != 0 {
			t.Errorf("%v was served", l)
		}
		p.Release(l)
	}
	if p.InUse() != 0 {
		t.Errorf("%d in use", p.InUse())
	}
}

// queue starts calls of Acquire one after the other, each waiting before the next starts, and returns what they get
// in the order they get it.
func queue(t *testing.T, p *Pool, names ...string) *[]string {
	t.Helper()
	var mu sync.Mutex
	got := &[]string{}
	for _, name := range names {
		go func() {
			if err := p.Acquire(t.Context(), laneOf(name)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			mu.Lock()
			*got = append(*got, name)
			mu.Unlock()
		}()
		synctest.Wait()
	}
	return got
}

// laneOf reads the lane from a name like "r2".
func laneOf(name string) order.Lane {
	return order.Lane(strings.IndexByte("lrc", name[0]))
}

func TestReleasedPermitGoesFirstToALaneBelowItsGuarantee(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		limit    int
		held     string // lanes that hold the permits
		waiters  []string
		releases string
		want     []string
	}{
		{"within a lane, in the order they came", 3, "lll", []string{"l1", "l2", "l3"}, "lll", []string{"l1", "l2", "l3"}},
		// Live holds all ten; each release goes to the lanes owed one, oldest first, then to live, at 7 owed and more held.
		{"owed lanes before the oldest", 10, "llllllllll", []string{"l1", "r1", "c1", "r2", "r3"}, "lllll", []string{"r1", "c1", "r2", "l1", "r3"}},
		{"a lane above its share waits for the others", 4, "crrl", []string{"r1", "l1"}, "rr", []string{"l1", "r1"}},
		{"without guarantees the oldest of all is next", 2, "ll", []string{"l1", "c1", "l2", "r1"}, "lllc", []string{"l1", "c1", "l2", "r1"}},
		{"a single permit goes round", 1, "r", []string{"l1", "r1", "l2"}, "rlr", []string{"l1", "r1", "l2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Limit: c.limit})
				for _, l := range c.held {
					if !p.TryAcquire(laneOf(string(l))) {
						t.Fatal("a permit of the start was refused")
					}
				}
				got := queue(t, p, c.waiters...)
				if p.Waiting() != len(c.waiters) {
					t.Fatalf("%d wait, want %d", p.Waiting(), len(c.waiters))
				}
				for _, l := range c.releases {
					p.Release(laneOf(string(l)))
					synctest.Wait()
					if p.TryAcquire(order.LaneLive) {
						t.Fatal("a permit was idle while somebody waited or all were taken")
					}
				}
				if !slices.Equal(*got, c.want) {
					t.Errorf("served %v, want %v", *got, c.want)
				}
			})
		})
	}
}

func TestCancelledWaitHoldsNoPermitAndKeepsTheQueue(t *testing.T) {
	t.Parallel()
	for cancelled := range 3 { // the first, the middle and the last of the lane
		t.Run(fmt.Sprint(cancelled), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := New(Config{Limit: 1})
				p.TryAcquire(order.LaneLive)
				got := make([]error, 3)
				var served []int
				cancels := make([]context.CancelFunc, 3)
				for i := range 3 {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					cancels[i] = cancel
					go func() {
						if got[i] = p.Acquire(ctx, order.LaneLive); got[i] == nil {
							served = append(served, i)
						}
					}()
					synctest.Wait()
				}
				cancels[cancelled]()
				synctest.Wait()
				if !errors.Is(got[cancelled], context.Canceled) || p.Waiting() != 2 || p.InUse() != 1 {
					t.Fatalf("after the cancel: %v, %d wait, %d in use", got[cancelled], p.Waiting(), p.InUse())
				}
				for range 3 {
					p.Release(order.LaneLive)
					synctest.Wait()
				}
				want := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == cancelled })
				if !slices.Equal(served, want) || p.InUse() != 0 || p.Waiting() != 0 {
					t.Errorf("served %v, want %v; %d in use, %d wait", served, want, p.InUse(), p.Waiting())
				}
			})
		})
	}
}

// TestPermitGivenToACancelledWaiterIsHandedOn ends a wait and releases a permit at the same moment, many times: which
// comes first is open, but the permit must never be lost.
func TestPermitGivenToACancelledWaiterIsHandedOn(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 1})
	for range 3000 {
		if !p.TryAcquire(order.LaneReplay) {
			t.Fatal("the permit was lost")
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- p.Acquire(ctx, order.LaneLive) }()
		for p.Waiting() == 0 {
			runtime.Gosched()
		}
		var both sync.WaitGroup
		both.Go(cancel)
		both.Go(func() { p.Release(order.LaneReplay) })
		both.Wait()
		if err := <-result; err == nil {
			p.Release(order.LaneLive)
		} else if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if p.InUse() != 0 {
			t.Fatalf("%d in use after both ended", p.InUse())
		}
	}
}

func TestAcquireWithAnEndedContextTakesNothing(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 3})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Acquire(ctx, order.LaneLive); !errors.Is(err, context.Canceled) || p.InUse() != 0 {
		t.Errorf("%v with %d in use", err, p.InUse())
	}
}

func TestAcquireWaitsNoLongerThanItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 1})
		p.TryAcquire(order.LaneLive)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := p.Acquire(ctx, order.LaneLive)
		if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited != 20*time.Millisecond {
			t.Errorf("%v after %v, want a deadline after 20ms", err, waited)
		}
	})
}

func TestUncontendedUseAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	p := New(Config{Limit: 4})
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		if p.TryAcquire(order.LaneLive) {
			p.Release(order.LaneLive)
		}
		if p.Acquire(ctx, order.LaneReplay) == nil {
			p.Release(order.LaneReplay)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestNoLaneStarvesWhileAnotherFloods keeps two lanes at full pressure and checks that the third gets its guaranteed
// share all the same.
func TestNoLaneStarvesWhileAnotherFloods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 10})
		ctx, cancel := context.WithCancel(t.Context())
		var served [order.Lanes]atomic.Int64
		var wg sync.WaitGroup
		for lane, callers := range [order.Lanes]int{50, 50, 2} {
			for range callers {
				wg.Go(func() {
					for p.Acquire(ctx, order.Lane(lane)) == nil {
						served[lane].Add(1)
						time.Sleep(10 * time.Millisecond)
						p.Release(order.Lane(lane))
					}
				})
			}
		}
		time.Sleep(10 * time.Second)
		cancel()
		wg.Wait()
		// 10 permits of 10 ms are 10,000 calls; a lane under pressure is owed its share of them, give or take the start.
		for lane, least := range [order.Lanes]int64{6900, 1900, 900} {
			if n := served[lane].Load(); n < least {
				t.Errorf("lane %v: %d calls in 10 s, owed about %d", order.Lane(lane), n, least)
			}
		}
	})
}

// TestPoolHoldsUnderStress is for the race detector: never more than the limit in use, every waiter served or
// cancelled, and nothing held at the end.
func TestPoolHoldsUnderStress(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			p := New(Config{Limit: limit})
			var held, peak atomic.Int64
			var wg sync.WaitGroup
			for w := range 12 {
				rnd := rand.New(rand.NewPCG(uint64(w), uint64(limit)))
				wg.Go(func() {
					for range 400 {
						l := lanes[rnd.IntN(len(lanes))]
						if !acquire(t, p, l, rnd) {
							continue
						}
						now := held.Add(1)
						for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
						}
						if n := p.InUse(); n > limit {
							t.Errorf("%d in use, limit %d", n, limit)
						}
						held.Add(-1)
						p.Release(l)
					}
				})
			}
			wg.Wait()
			if peak.Load() > int64(limit) || p.HighWater() > limit {
				t.Errorf("%d held at once, high water %d, limit %d", peak.Load(), p.HighWater(), limit)
			}
			if p.InUse() != 0 || p.Waiting() != 0 || p.Free(order.LaneLive) != limit {
				t.Errorf("at the end %d in use, %d wait", p.InUse(), p.Waiting())
			}
		})
	}
}

// acquire takes a permit in one of the three ways there are: trying, waiting, and waiting a little.
func acquire(t *testing.T, p *Pool, l order.Lane, rnd *rand.Rand) bool {
	t.Helper()
	switch rnd.IntN(3) {
	case 0:
		return p.TryAcquire(l)
	case 1:
		if err := p.Acquire(t.Context(), l); err != nil {
			t.Errorf("a wait without end failed: %v", err)
			return false
		}
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(200))*time.Microsecond)
	defer cancel()
	return p.Acquire(ctx, l) == nil
}

func BenchmarkTryAcquireRelease(b *testing.B) {
	p := New(Config{Limit: 8})
	b.ReportAllocs()
	for b.Loop() {
		if p.TryAcquire(order.LaneLive) {
			p.Release(order.LaneLive)
		}
	}
}
