package permit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestALeaseEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 10})
		p.Lease(2, time.Now().Add(time.Second))
		if !p.TryAcquire(order.LaneLive) || !p.TryAcquire(order.LaneReplay) || p.TryAcquire(order.LaneLive) {
			t.Fatal("two are leased")
		}
		time.Sleep(time.Second)
		if !p.Leased(time.Now()) || !p.Keep(order.LaneLive) {
			t.Fatal("it lasts to the end of the second")
		}
		time.Sleep(time.Nanosecond)
		if p.Leased(time.Now()) {
			t.Error("a call may begin after the end")
		}
		if p.Keep(order.LaneLive) {
			t.Error("a permit was kept after the end")
		}
		p.Release(order.LaneReplay)
		if p.TryAcquire(order.LaneLive) || p.Limit() != 0 || p.Free(order.LaneLive) != 0 {
			t.Error("a permit was had after the end")
		}
		p.Lease(1, time.Now().Add(time.Second))
		if !p.Leased(time.Now()) || !p.TryAcquire(order.LaneLive) {
			t.Error("the next lease gives one")
		}
		p.SetCap(NoCap)
		time.Sleep(time.Hour)
		if !p.Leased(time.Now()) || !p.TryAcquire(order.LaneLive) {
			t.Error("without a cap there is no end")
		}
	})
}

func TestWhoWaitsIsServedByTheNextLeaseAndNotByAReleaseAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 10})
		p.Lease(1, time.Now().Add(time.Second))
		p.TryAcquire(order.LaneLive)
		got := make(chan error, 1)
		go func() { got <- p.Acquire(t.Context(), order.LaneLive) }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		p.Release(order.LaneLive)
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("a release after the end served the one who waits")
		}
		p.Lease(1, time.Now().Add(time.Second))
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}

// Whoever moved the limit served those who wait without a look at the lease, and their calls were cancelled.
func TestNothingServesWhoWaitsAfterTheEndOfALease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		limit, leased int
		move          func(p *Pool)
	}{
		{"a lease that is over when it comes", 10, 1, func(p *Pool) { p.Lease(5, time.Now().Add(-time.Second)) }},
		{"a configuration", 1, 5, func(p *Pool) { _ = p.Configure(Config{Limit: 20}) }},
		{"a limit that is learnt", 1, 5, func(p *Pool) { p.setLimit(20) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{Limit: c.limit})
			p.Lease(c.leased, time.Now().Add(time.Second))
			p.TryAcquire(order.LaneLive)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() { got <- p.Acquire(ctx, order.LaneLive) }()
			synctest.Wait()
			time.Sleep(2 * time.Second)
			c.move(p)
			synctest.Wait()
			if p.InUse() != 1 || p.Limit() != 0 {
				t.Errorf("%s: %d permits in use of %d, want the one taken before", c.name, p.InUse(), p.Limit())
			}
			cancel()
			if err := <-got; err == nil {
				t.Errorf("%s: whoever waited has a permit", c.name)
			}
		})
	}
}

func TestALeaseIsJudgedByTheWallClockToo(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 10})
	now := time.Now()
	p.Lease(2, now.Add(time.Hour).Round(0).Add(-2*time.Hour)) // as after two hours of sleep: only the wall clock went on
	if p.Leased(now) || p.TryAcquire(order.LaneLive) {
		t.Error("a lease that is over by the wall clock counts")
	}
}

func TestUseTellsWhatIsHeldAndWhatIsMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 10})
		want := func(held, peak, limit int, short bool) {
			t.Helper()
			if h, pk, l, s := p.Use(time.Now()); h != held || pk != peak || l != limit || s != short {
				t.Errorf("held %d, peak %d, limit %d, short %v; want %d, %d, %d, %v", h, pk, l, s, held, peak, limit, short)
			}
		}
		want(0, 0, 10, false) // no cap
		p.Lease(4, time.Now().Add(time.Second))
		want(4, 0, 10, false)
		for range 3 {
			p.TryAcquire(order.LaneLive)
		}
		p.Release(order.LaneLive)
		want(4, 3, 10, false)
		want(4, 2, 10, false)
		p.TryAcquire(order.LaneLive)
		p.TryAcquire(order.LaneLive)
		want(4, 4, 10, true)
		p.Lease(1, time.Now().Add(time.Second))
		want(4, 4, 10, true) // until calls have ended
		p.Release(order.LaneLive)
		want(3, 4, 10, true)
		time.Sleep(2 * time.Second)
		want(3, 3, 10, true)
		for range 3 {
			p.Release(order.LaneLive)
		}
		want(0, 3, 10, true)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Acquire(ctx, order.LaneLive) }()
		synctest.Wait()
		want(0, 0, 10, true)
		cancel()
		synctest.Wait()
		p.Lease(50, time.Now().Add(time.Second))
		for range 10 {
			p.TryAcquire(order.LaneLive)
		}
		want(50, 10, 10, false) // it is the limit that binds
	})
}

func TestALeaseCostsNoAllocation(t *testing.T) { //nolint:paralleltest // AllocsPerRun forbids it
	p := New(Config{Limit: 10})
	p.Lease(4, time.Now().Add(time.Hour))
	if n := testing.AllocsPerRun(1000, func() {
		p.TryAcquire(order.LaneLive)
		p.Leased(time.Now())
		p.Keep(order.LaneLive)
		p.Release(order.LaneLive)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
