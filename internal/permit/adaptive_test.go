package permit

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/adapt"
	"spillway/order"
)

// drive keeps a pool busy for d with calls to c servers that take 20 ms each, and tells it how they went.
func drive(p *Pool, servers int, d time.Duration) (peak int) {
	var wg sync.WaitGroup
	served := make(chan struct{}, servers)
	end := time.Now().Add(d)
	for range 100 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if p.Acquire(noContext{}, order.LaneLive) != nil {
					return
				}
				began := time.Now()
				served <- struct{}{}
				time.Sleep(20 * time.Millisecond)
				<-served
				p.Learn(began, time.Now(), order.OutcomeSucceeded, order.NoReason)
				p.Release(order.LaneLive)
			}
		})
	}
	wg.Wait()
	return p.HighWater()
}

// noContext is a context that does not end; in a bubble it needs no timer.
type noContext struct{}

func (noContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noContext) Done() <-chan struct{}       { return nil }
func (noContext) Err() error                  { return nil }
func (noContext) Value(any) any               { return nil }

func TestEnforcedLimitFollowsTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 8, Mode: Enforce, Min: 2, Max: 80})
		drive(p, 20, 30*time.Second)
		if got := p.Adaptive(); got < 18 || got > 22 {
			t.Errorf("it settled at %d of 20 servers", got)
		}
		if p.HighWater() > 80 || p.InUse() != 0 {
			t.Errorf("%d were in use at once, and %d are", p.HighWater(), p.InUse())
		}
	})
}

func TestObservedLimitStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Limit: 8, Mode: Observe, Min: 2, Max: 80})
		if peak := drive(p, 4, 20*time.Second); p.Limit() != 8 || peak != 8 {
			t.Errorf("limit %d, %d in use at once, want 8 as configured", p.Limit(), peak)
		}
		for range 100 {
			p.Learn(time.Now(), time.Now(), order.OutcomeOverloaded, order.UpstreamOverloaded)
			time.Sleep(50 * time.Millisecond)
		}
		if p.Limit() != 8 || p.Adaptive() >= 8 {
			t.Errorf("limit %d, learnt %d, want 8 and less", p.Limit(), p.Adaptive())
		}
	})
}

func TestFixedLimitLearnsNothing(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 8})
	for range 1000 {
		p.Learn(time.Now(), time.Now(), order.OutcomeOverloaded, order.UpstreamOverloaded)
	}
	if p.Limit() != 8 || p.Adaptive() != 8 {
		t.Errorf("limit %d, learnt %d, want 8", p.Limit(), p.Adaptive())
	}
}

func TestReconfiguringKeepsWhatWasLearntUnlessTheStartOrTheModeChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := Config{Limit: 40, Mode: Enforce, Min: 2, Max: 80}
		p := New(base)
		drive(p, 10, 20*time.Second)
		learnt := p.Adaptive()
		if learnt > 15 {
			t.Fatalf("it settled at %d of 10 servers", learnt)
		}
		for _, c := range []struct {
			name   string
			change func(*Config)
			want   int
		}{
			{"shares alone", func(c *Config) { c.Live, c.Replay, c.Compensate = 0.5, 0.3, 0.2 }, learnt},
			{"a higher ceiling", func(c *Config) { c.Max = 100 }, learnt},
			{"a floor above it", func(c *Config) { c.Min = 20 }, 20},
			{"another start", func(c *Config) { c.Limit = 50 }, 50},
			{"out of force", func(c *Config) { c.Mode = Fixed }, 50},
			{"in force again", func(c *Config) { c.Mode = Enforce }, 50},
		} {
			c.change(&base)
			if err := p.Configure(base); err != nil {
				t.Fatal(err)
			}
			if p.Adaptive() != c.want {
				t.Errorf("%s: learnt %d, want %d", c.name, p.Adaptive(), c.want)
			}
		}
	})
}

func TestAdaptiveBoundsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Limit: 5, Mode: Enforce, Min: 1, Max: 5}, ""},
		{Config{Limit: 5, Min: 9, Max: 2}, ""}, // in a fixed pool they count for nothing
		{Config{Limit: 5, Mode: Observe, Max: 5}, "permits: Min is 0, accepted: 1 to Limit 5"},
		{Config{Limit: 5, Mode: Enforce, Min: 6, Max: 9}, "permits: Min is 6, accepted: 1 to Limit 5"},
		{Config{Limit: 5, Mode: Enforce, Min: 1, Max: 4}, "permits: Max is 4, accepted: Limit 5 to 100000"},
		{Config{Limit: 5, Mode: 7, Min: 1, Max: 5}, "permits: Mode is 7, accepted: Fixed, Observe or Enforce"},
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

func TestOutcomesSayWhatTheyShowOfTheServicesRoom(t *testing.T) {
	t.Parallel()
	for _, o := range order.Outcomes() {
		want := adapt.Ignored
		switch o { //nolint:exhaustive // the others
		case order.OutcomeSucceeded, order.OutcomeRejected:
			want = adapt.Answered
		case order.OutcomeOverloaded:
			want = adapt.Dropped
		}
		if got := kind(o, order.NoReason); got != want {
			t.Errorf("%v is %v, want %v", o, got, want)
		}
	}
	if kind(order.OutcomeUnknown, order.UpstreamTimeout) != adapt.Dropped || kind(order.OutcomeUnknown, order.Upstream5xx) != adapt.Ignored {
		t.Error("of what is UNKNOWN only a timeout says that there was too much")
	}
}

func TestLearningAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	p := New(Config{Limit: 8, Mode: Enforce, Min: 1, Max: 100})
	n := testing.AllocsPerRun(5000, func() {
		if p.TryAcquire(order.LaneLive) {
			now := time.Now()
			p.Learn(now.Add(-20*time.Millisecond), now, order.OutcomeSucceeded, order.NoReason)
			p.Release(order.LaneLive)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
