package rate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/order"
)

var epoch = time.Unix(1_700_000_000, 0)

// greedy asks at once when it was told to, and counts what it got from start for d.
func greedy(l *Limiter, start time.Time, d time.Duration, lane order.Lane, tenant string) int {
	n, now := 0, start
	for now.Before(start.Add(d)) {
		wait := l.Pace(now, lane, tenant)
		if wait == 0 {
			n++
			wait = time.Nanosecond
		}
		now = now.Add(wait)
	}
	return n
}

func TestWithoutLimitsEverythingIsLetThrough(t *testing.T) {
	t.Parallel()
	l := New(Config{}, epoch)
	for _, lane := range []order.Lane{order.LaneLive, order.LaneReplay, order.LaneCompensate} {
		for range 10_000 {
			if d := l.Pace(epoch, lane, "a"); d != 0 {
				t.Fatalf("lane %v waits %v", lane, d)
			}
		}
	}
	if d := l.PaceTenant(epoch, "a"); d != 0 {
		t.Errorf("a tenant waits %v", d)
	}
}

func TestAGreedyLaneGetsTheRateAndNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		burst int
		most  float64 // in 60 s
	}{
		{200, 0, 60*200 + 20}, {200, 1, 60*200 + 1}, {1, 0, 61}, {1.0 / 60, 0, 2}, {3000, 5, 180_005}, {7.5, 3, 60*7.5 + 3},
	} {
		l := New(Config{Limit: c.rate, Burst: c.burst}, epoch)
		n := float64(greedy(l, epoch, time.Minute, order.LaneLive, ""))
		if n > c.most || n < c.rate*60*0.995-1 {
			t.Errorf("%v/s, burst %d: %v in a minute, want up to %v", c.rate, c.burst, n, c.most)
		}
	}
}

func TestLanesHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 1000, Replay: 50, Compensate: 5}, epoch)
	if n := greedy(l, epoch, 10*time.Second, order.LaneReplay, ""); n < 499 || n > 506 {
		t.Errorf("%d replayed in 10 s at 50/s", n)
	}
	l = New(Config{Limit: 1, Compensate: 5}, epoch)
	if n := greedy(l, epoch, 10*time.Second, order.LaneCompensate, ""); n < 50 || n > 51 {
		t.Errorf("%d lookups in 10 s at 5/s: the limit of submits is not theirs", n)
	}
}

// race lets both lanes ask whenever they may, for d, and counts what each got. Each oversleeps by up to late.
func race(l *Limiter, d, late time.Duration, rnd *rand.Rand) (got [2]int) {
	next := [2]time.Time{epoch, epoch}
	for {
		lane := 0
		if next[1].Before(next[0]) {
			lane = 1
		}
		now := next[lane]
		if !now.Before(epoch.Add(d)) {
			return got
		}
		wait := l.Pace(now, order.Lane(lane), "")
		if wait == 0 {
			got[lane]++
			wait = time.Microsecond
		} else if late > 0 {
			wait += time.Duration(rnd.Int64N(int64(late)))
		}
		next[lane] = now.Add(wait)
	}
}

func TestLiveAndReplayShareTheRateByWeight(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, rate := range []float64{3, 20, 200, 1000} {
		for _, late := range []time.Duration{0, 200 * time.Microsecond, 2 * time.Millisecond} {
			l := New(Config{Limit: rate, LiveShare: 0.7, ReplayShare: 0.2}, epoch)
			got := race(l, time.Minute, late, rnd)
			sum := got[0] + got[1]
			share := float64(got[1]) / float64(sum)
			if share < 0.15 || share > 0.3 {
				t.Errorf("%v/s, %v late: replay got %d of %d, want 2 of 9", rate, late, got[1], sum)
			}
			if float64(sum) < 0.97*60*rate || float64(sum) > 60*rate+max(1, rate/10) {
				t.Errorf("%v/s, %v late: %d in a minute", rate, late, sum)
			}
		}
	}
}

func TestALaneAloneHasTheWholeRate(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 100, LiveShare: 0.9, ReplayShare: 0}, epoch)
	l.Pace(epoch, order.LaneLive, "") // it was there once
	if n := greedy(l, epoch, 10*time.Second, order.LaneReplay, ""); n < 995 || n > 1010 {
		t.Errorf("%d in 10 s at 100/s", n)
	}
	// Who comes back is owed nothing for his absence.
	start := epoch.Add(10 * time.Second)
	if n := greedy(l, start, time.Second, order.LaneLive, ""); n < 99 || n > 111 {
		t.Errorf("%d in 1 s at 100/s", n)
	}
}

func TestAClockThatGoesBackGivesNothing(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 10, Burst: 1}, epoch)
	now, n := epoch, 0
	for range 1000 { // forth and back by an hour
		for _, d := range []time.Duration{0, time.Millisecond, -time.Hour, -time.Hour + time.Millisecond} {
			if l.Pace(now.Add(d), order.LaneLive, "") == 0 {
				n++
			}
		}
	}
	// Each leap forward fills the bucket of one; none is had without one.
	if n > 1001 {
		t.Errorf("%d rights in 1000 leaps", n)
	}
	l = New(Config{Limit: 10, Burst: 1}, epoch)
	l.Pace(epoch, order.LaneLive, "")
	// Set back for good: it goes on from there.
	if n := greedy(l, epoch.Add(-time.Hour), 10*time.Second, order.LaneLive, ""); n < 98 || n > 101 {
		t.Errorf("%d in 10 s after the clock was set back", n)
	}
}

func TestARightThatIsGivenBackIsThereAgain(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 1, Burst: 1, Replay: 1, Compensate: 1, Tenant: 1}, epoch)
	for range 100 {
		for _, lane := range []order.Lane{order.LaneLive, order.LaneReplay, order.LaneCompensate} {
			if d := l.Pace(epoch, lane, "a"); d != 0 {
				t.Fatalf("lane %v waits %v", lane, d)
			}
			if d := l.Pace(epoch, lane, "a"); d == 0 {
				t.Fatalf("lane %v has two", lane)
			}
			l.Unpace(lane, "a")
		}
	}
	for range 10 { // a bucket never holds more than its burst
		l.Unpace(order.LaneLive, "a")
		l.Unpace(order.LaneLive, "who?")
	}
	if l.Pace(epoch, order.LaneLive, "a") != 0 || l.Pace(epoch, order.LaneLive, "a") == 0 {
		t.Error("giving back made more than there was")
	}
}

func TestTheShareOfTheFleetIsTheLimitWhileItIsSmaller(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 100, Shared: true}, epoch)
	if n := greedy(l, epoch, 10*time.Second, order.LaneLive, ""); n != 0 {
		t.Fatalf("%d without a share", n)
	}
	if taken, short := l.Demand(); taken != 0 || !short {
		t.Errorf("demand %d, %v", taken, short)
	}
	now := epoch.Add(10 * time.Second)
	l.SetShare(20, now)
	if n := greedy(l, now, 10*time.Second, order.LaneLive, ""); n < 199 || n > 202 {
		t.Errorf("%d in 10 s at a share of 20/s", n)
	}
	if taken, short := l.Demand(); taken < 199 || !short {
		t.Errorf("demand %d, %v", taken, short)
	}
	now = now.Add(10 * time.Second)
	l.SetShare(500, now)
	if n := greedy(l, now, 10*time.Second, order.LaneLive, ""); n < 999 || n > 1011 {
		t.Errorf("%d in 10 s at a limit of 100/s", n)
	}
	if _, short := l.Demand(); short {
		t.Error("it was the worker's own limit that refused")
	}
	if s := l.Stats(); s.Share != 500 || s.Waits[order.LaneLive][OfFleet] == 0 || s.Waits[order.LaneLive][OfRoute] == 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestLimitsChangeWhileInUse(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 10, Tenant: 10}, epoch)
	greedy(l, epoch, 10*time.Second, order.LaneLive, "a")
	now := epoch.Add(10 * time.Second)
	l.Configure(Config{Limit: 1000}, now)
	if n := greedy(l, now, time.Second, order.LaneLive, "a"); n < 995 || n > 1100 {
		t.Errorf("%d in 1 s at 1000/s", n)
	}
	now = now.Add(time.Second)
	l.Configure(Config{}, now)
	if l.Pace(now, order.LaneLive, "a") != 0 {
		t.Error("no limit is left")
	}
}

func TestRefusalsSayWhenToAskAgain(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		cfg := Config{
			Limit: math.Exp(rnd.Float64()*18 - 4), Replay: rnd.Float64() * 100, Compensate: rnd.Float64() * 100,
			Tenant: rnd.Float64() * 50, Tenants: 1 + rnd.IntN(5), Burst: rnd.IntN(20), Shared: rnd.IntN(2) == 0,
		}
		l := New(cfg, epoch)
		now := epoch
		for range 2000 {
			lane := order.Lane(rnd.IntN(order.Lanes))
			tenant := fmt.Sprint(rnd.IntN(8))
			wait := l.Pace(now, lane, tenant)
			if rnd.IntN(3) == 0 {
				wait = l.PaceTenant(now, tenant)
			}
			if wait < 0 || wait > time.Second || wait > 0 && wait < 50*time.Microsecond {
				t.Fatalf("%+v: wait %v", cfg, wait)
			}
			if wait == 0 && rnd.IntN(10) == 0 {
				l.Unpace(lane, tenant)
			}
			if rnd.IntN(100) == 0 {
				l.SetShare(rnd.Float64()*100-5, now)
			}
			now = now.Add(time.Duration(rnd.Int64N(int64(100*time.Millisecond))) - 2*time.Millisecond)
		}
	}
}

// TestNoWindowHoldsMoreThanTheRate looks at every window of a random history.
func TestNoWindowHoldsMoreThanTheRate(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		rate, burst := 5+rnd.Float64()*200, 1+rnd.IntN(30)
		l := New(Config{Limit: rate, Burst: burst}, epoch)
		var took []time.Duration
		for at := time.Duration(0); at < 10*time.Second; at += time.Duration(rnd.Int64N(int64(30 * time.Millisecond))) {
			lane := order.Lane(rnd.IntN(2))
			if l.Pace(epoch.Add(at), lane, "") == 0 {
				took = append(took, at)
			}
		}
		for i := range took {
			for j := i; j < len(took); j++ {
				if n, most := j-i+1, rate*(took[j]-took[i]).Seconds()+float64(burst); float64(n) > most+1e-6 {
					t.Fatalf("seed %d: %d in %v at %v/s, burst %d", seed, n, took[j]-took[i], rate, burst)
				}
			}
		}
	}
}

func TestAFloodingTenantKeepsToItsRate(t *testing.T) {
	t.Parallel()
	l := New(Config{Tenant: 10, Tenants: 3}, epoch)
	got := map[string]int{}
	for ms := range 10_000 {
		now := epoch.Add(time.Duration(ms) * time.Millisecond)
		if l.Pace(now, order.LaneLive, "flood") == 0 {
			got["flood"]++
		}
		if ms%200 == 0 {
			for _, calm := range []string{"a", "b"} {
				if l.Pace(now, order.LaneLive, calm) == 0 {
					got[calm]++
				}
			}
		}
	}
	if got["flood"] < 99 || got["flood"] > 102 || got["a"] != 50 || got["b"] != 50 {
		t.Errorf("got %v in 10 s at 10/s each, offered 1000/s, 5/s and 5/s", got)
	}
}

func TestARefusalSaysWhetherItIsTheTenantsOwn(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 20, Tenant: 10}, epoch) // two at once, and one of each tenant
	for i, want := range []struct {
		tenant     string
		waits, own bool
	}{{"a", false, false}, {"a", true, true}, {"b", false, false}, {"c", true, false}, {"a", true, true}} {
		if wait, own := l.PaceLive(epoch, want.tenant); wait > 0 != want.waits || own != want.own {
			t.Errorf("%d: tenant %s waits %v, for its own limit %v: want %+v", i, want.tenant, wait, own, want)
		}
	}
	if wait, own := New(Config{Limit: 1, Shared: true}, epoch).PaceLive(epoch, "a"); wait == 0 || own {
		t.Errorf("without a share: waits %v, for its own limit %v", wait, own)
	}
}

func TestTenantsThatFindNoRoomShareOneLimit(t *testing.T) {
	t.Parallel()
	l := New(Config{Tenant: 10, Tenants: 100}, epoch)
	n := 0
	for i := range 10_000 { // all at once, each a new one
		if l.Pace(epoch, order.LaneLive, fmt.Sprint("t", i)) == 0 {
			n++
		}
	}
	if s := l.Stats(); n != 101 || s.Tenants != 100 || s.Overflow != 9900 {
		t.Errorf("%d let through, %+v; want one of each of 100 and one of the rest", n, s)
	}
	// Those that were quiet until their buckets are full again make room.
	n = 0
	for i := range 10 {
		if l.Pace(epoch.Add(time.Second), order.LaneLive, fmt.Sprint("late", i)) == 0 {
			n++
		}
	}
	if s := l.Stats(); n != 10 || s.Tenants != 100 {
		t.Errorf("%d let through, %+v", n, s)
	}
}

// TestTheTableOfTenantsAgreesWithAMap compares it with buckets that are never evicted, which nobody can tell from one
// whose full buckets are.
func TestTheTableOfTenantsAgreesWithAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		l := New(Config{Tenant: 20, Tenants: 40}, epoch)
		naive := map[string]*bucket{}
		now := epoch
		for range 3000 {
			name := fmt.Sprint(rnd.IntN(40)) // as many as there is room for
			if naive[name] == nil {
				naive[name] = &bucket{}
				naive[name].set(now, true, 20, 2, 2)
			}
			b := naive[name]
			b.fill(now)
			want := b.lacks(1)
			if want == 0 {
				b.take()
			}
			if got := l.PaceTenant(now, name); got != want {
				t.Fatalf("seed %d: tenant %s waits %v, want %v", seed, name, got, want)
			}
			now = now.Add(time.Duration(rnd.Int64N(int64(4 * time.Millisecond))))
		}
	}
}

func TestAskingAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun forbids it
	l := New(Config{Limit: 1000, Replay: 100, Compensate: 100, Tenant: 100, Tenants: 10, Shared: true}, epoch)
	names := make([]string, 20)
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
		l.Pace(epoch, order.LaneLive, names[i])
	}
	now, i := epoch, 0
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Millisecond)
		l.Pace(now, order.LaneLive, names[i%20])
		l.Unpace(order.LaneLive, names[i%20])
		l.Pace(now, order.LaneReplay, "")
		l.PaceTenant(now, names[i%10])
		l.Pace(now, order.LaneCompensate, "")
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLimiterIsSafeForManyAtOnce(t *testing.T) {
	t.Parallel()
	l := New(Config{Limit: 1000, Burst: 1, Tenant: 1000, Tenants: 4}, epoch)
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		n  int
	)
	for g := range 4 {
		wg.Go(func() {
			got := 0
			for i := range 5000 {
				if l.Pace(epoch.Add(time.Duration(i)*200*time.Microsecond), order.Lane(g%2), fmt.Sprint(g)) == 0 {
					got++
				}
				l.Stats()
			}
			mu.Lock()
			n += got
			mu.Unlock()
		})
	}
	wg.Wait()
	if n > 1001 || n < 900 {
		t.Errorf("%d in 1 s at 1000/s", n)
	}
}

func TestNumbersOutOfRangeAreNamed(t *testing.T) {
	t.Parallel()
	err := Config{Limit: -1, Burst: 2e6, Replay: math.NaN(), Tenant: math.Inf(1), Tenants: -3, LiveShare: 2}.Validate()
	for _, want := range []string{"Limit is -1", "Burst is 2e+06", "Replay is NaN", "Tenant is +Inf", "Tenants is -3", "LiveShare is 2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if err := (Config{Limit: 5, Burst: 1, Tenants: 10}).Validate(); err != nil {
		t.Error(err)
	}
}

func BenchmarkPace(b *testing.B) {
	l := New(Config{Limit: 1e6, Tenant: 1e6, Tenants: 1000}, epoch)
	now := epoch
	for b.Loop() {
		now = now.Add(time.Microsecond)
		l.Pace(now, order.LaneLive, "a")
	}
}
