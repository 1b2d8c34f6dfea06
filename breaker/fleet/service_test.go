package fleet_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/redis"
	"spillway/internal/testkit"
)

// member is one worker of a fleet: a breaker and a sharer on a connection of their own.
type member struct {
	b    *breaker.Breaker
	stop func()

	mu     sync.Mutex // guards events
	events []breaker.Event
}

func key() breaker.Key { return breaker.Key{Service: "wallet", Endpoint: "submit"} }

func join(t *testing.T, url, prefix, name string, cfg breaker.Config) *member {
	t.Helper()
	m := &member{}
	var err error
	m.b, err = breaker.New(key(), cfg, nil, func(e breaker.Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := redis.Open(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	sharer, err := fleet.New(fleet.Config{Worker: name}, client.Breakers(), func() []*breaker.Breaker { return []*breaker.Breaker{m.b} }, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := sharer.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	m.stop = func() {
		cancel()
		<-ended
		_ = client.Close() // nothing is under way
	}
	t.Cleanup(func() { m.stop() })
	return m
}

// call makes one call if the breaker lets it.
func (m *member) call(r breaker.Result) bool {
	p, ok := m.b.Allow()
	if ok {
		m.b.Done(p, r)
	}
	return ok
}

func (m *member) saw(to breaker.State) []breaker.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	var seen []breaker.Event
	for _, e := range m.events {
		if e.To == to {
			seen = append(seen, e)
		}
	}
	return seen
}

// reopened counts the openings after it was half-open for the first time.
func (m *member) reopened() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, began := 0, false
	for _, e := range m.events {
		began = began || e.To == breaker.HalfOpen
		if began && e.To == breaker.Open {
			n++
		}
	}
	return n
}

// until polls a condition and returns when it first held.
func until(t *testing.T, timeout time.Duration, what string, cond func() bool) time.Time {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); ; <-tick.C {
		if cond() {
			return time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func allOf(members []*member, cond func(breaker.Snapshot) bool) func() bool {
	return func() bool {
		for _, m := range members {
			if !cond(m.b.Snapshot()) {
				return false
			}
		}
		return true
	}
}

func linked(s breaker.Snapshot) bool      { return s.Linked }
func followsOpen(s breaker.Snapshot) bool { return s.State == breaker.Open && !s.Own && s.Epoch > 0 }

// TestFleetKeepsItsWaitThroughOutagesAndRestarts opens three workers by the evidence of one, restarts another, takes
// Redis away for 20 s, and looks when each becomes half-open.
func TestFleetKeepsItsWaitThroughOutagesAndRestarts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	for name, c := range map[string]struct {
		begins time.Duration // of the outage, after the opening
		how    func(*testkit.Server) (back func())
	}{
		"within the wait":              {6 * time.Second, func(s *testkit.Server) func() { s.Stop(); return s.Start }},
		"over the end of the wait":     {15 * time.Second, func(s *testkit.Server) func() { s.Stop(); return s.Start }},
		"a frozen server":              {15 * time.Second, func(s *testkit.Server) func() { s.Pause(); return s.Resume }},
		"a server that loses its data": {4 * time.Second, func(s *testkit.Server) func() { s.Kill(); return s.Start }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testkit.StartRedis(t)
			prefix := testkit.Prefix(t)
			members := make([]*member, 3)
			for i := range members {
				members[i] = join(t, server.URL(), prefix, fmt.Sprint("w", i), breaker.Config{})
			}
			until(t, 5*time.Second, "all share", allOf(members, linked))

			for range 20 {
				members[0].call(breaker.Failure)
			}
			first := until(t, 2*time.Second, "the record opens", func() bool {
				return followsOpen(members[0].b.Snapshot()) || followsOpen(members[1].b.Snapshot()) || followsOpen(members[2].b.Snapshot())
			})
			last := until(t, 2*time.Second, "all follow", allOf(members, followsOpen))
			if d := last.Sub(first); d > time.Second {
				t.Errorf("the last worker followed after %v", d)
			}
			for i, m := range members[1:] {
				if e := m.saw(breaker.Open)[0]; e.Source != breaker.SourceShared || e.Reason != breaker.ReasonFailureRate || e.Samples != 20 || e.Failures != 20 {
					t.Errorf("worker %d opened for another reason: %+v", i+1, e)
				}
			}

			until(t, 5*time.Second, "3 s", func() bool { return time.Since(first) > 3*time.Second })
			members[2].stop()
			members[2] = join(t, server.URL(), prefix, "w2-again", breaker.Config{})
			until(t, 2*time.Second, "the restarted worker adopts the state", func() bool { return followsOpen(members[2].b.Snapshot()) })

			until(t, 20*time.Second, "the outage", func() bool { return time.Since(first) > c.begins })
			back := c.how(server)
			gone := time.Now()
			var left [3]time.Time
			watch := func() bool {
				n := 0
				for i, m := range members {
					if left[i].IsZero() && m.b.Snapshot().State != breaker.Open {
						left[i] = time.Now()
					}
					if !left[i].IsZero() {
						n++
					}
				}
				return n == len(members)
			}
			until(t, 30*time.Second, "the outage ends", func() bool { watch(); return time.Since(gone) > 20*time.Second })
			back()
			until(t, 30*time.Second, "all are half-open", watch)
			for i := range left {
				if d := left[i].Sub(first); d < 28*time.Second || d > 32*time.Second {
					t.Errorf("worker %d was half-open %v after the fleet opened, want 30 s ± 2 s", i, d)
				}
				if n := len(members[i].saw(breaker.Open)); i != 0 && n != 1 {
					t.Errorf("worker %d opened %d times: %+v", i, n, members[i].saw(breaker.Open))
				}
			}
			until(t, 5*time.Second, "all share again", allOf(members, linked))
			until(t, 10*time.Second, "the service is well and all ramp", func() bool {
				for _, m := range members {
					m.call(breaker.Success)
				}
				return allOf(members, func(s breaker.Snapshot) bool { return s.Share > 0 })()
			})
		})
	}
}

func TestWorkerWithABadNetworkOpensOnlyItself(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t), testkit.Prefix(t)
	cfg := breaker.Config{OpenWait: 2 * time.Second, RampStep: 100 * time.Millisecond}
	bad, good := join(t, url, prefix, "bad", cfg), []*member{join(t, url, prefix, "b", cfg), join(t, url, prefix, "c", cfg)}
	all := append([]*member{bad}, good...)
	until(t, 5*time.Second, "all share", allOf(all, linked))

	until(t, 5*time.Second, "the worker with the bad network opens", func() bool {
		good[0].call(breaker.Success)
		good[1].call(breaker.Success)
		bad.call(breaker.Failure)
		return bad.b.Snapshot().State == breaker.Open
	})
	opened := time.Now()
	wait := bad.b.Snapshot().OpenWait
	until(t, 5*time.Second, "its own wait is over", func() bool {
		for _, m := range good {
			if !m.call(breaker.Success) {
				t.Fatal("a worker with a good network refused a call")
			}
		}
		return bad.b.Snapshot().State != breaker.Open
	})
	if d := time.Since(opened) - wait; d.Abs() > time.Second {
		t.Errorf("its own opening of %v lasted %v more", wait, d)
	}
	until(t, 10*time.Second, "it is well again", func() bool {
		bad.call(breaker.Success)
		return bad.b.Snapshot().State == breaker.Closed
	})
	for i, m := range good {
		if e := m.saw(breaker.Open); len(e) > 0 {
			t.Errorf("worker %d opened too: %+v", i, e)
		}
	}
}

func TestOrderReachesEveryWorkerAndOutlivesThem(t *testing.T) {
	t.Parallel()
	url, prefix := testkit.Redis(t), testkit.Prefix(t)
	a, b := join(t, url, prefix, "a", breaker.Config{}), join(t, url, prefix, "b", breaker.Config{})
	until(t, 5*time.Second, "both share", allOf([]*member{a, b}, linked))
	client, err := redis.Open(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	give := func(force breaker.Force, lasts time.Duration) {
		t.Helper()
		_, err := fleet.Give(t.Context(), client.Breakers(), fleet.Order{Key: key(), Force: force, For: lasts, Operator: "kim", Reason: "a drill"})
		if err != nil {
			t.Fatal(err)
		}
	}
	forced := func(force breaker.Force) func(breaker.Snapshot) bool {
		return func(s breaker.Snapshot) bool { return s.Force == force }
	}

	give(breaker.ForceOpen, time.Hour)
	until(t, time.Second, "both are forced open", allOf([]*member{a, b}, forced(breaker.ForceOpen)))
	a.stop()
	b.stop()
	a = join(t, url, prefix, "a2", breaker.Config{})
	until(t, time.Second, "a restarted worker is forced open", allOf([]*member{a}, forced(breaker.ForceOpen)))
	if a.call(breaker.Success) {
		t.Error("a call passed")
	}
	give(breaker.ForceNone, 0)
	until(t, time.Second, "released, it is half-open", allOf([]*member{a}, func(s breaker.Snapshot) bool { return s.State == breaker.HalfOpen }))

	give(breaker.ForceClosed, time.Hour)
	until(t, time.Second, "forced closed", allOf([]*member{a}, forced(breaker.ForceClosed)))
	for range 50 {
		if !a.call(breaker.Failure) {
			t.Fatal("a call was refused")
		}
	}
	give(breaker.ForceObserve, 500*time.Millisecond)
	until(t, time.Second, "observes", allOf([]*member{a}, forced(breaker.ForceObserve)))
	until(t, 2*time.Second, "the order expires", allOf([]*member{a}, forced(breaker.ForceNone)))
	if s := a.b.Snapshot(); s.State != breaker.Closed {
		t.Errorf("it is %s then", s.State)
	}
}

// service is a downstream that takes 5 calls at once and fails the rest.
type service struct {
	ill      atomic.Bool
	running  atomic.Int64
	failures atomic.Int64
}

func (s *service) call(took time.Duration) breaker.Result {
	defer s.running.Add(-1)
	if s.running.Add(1) > 5 || s.ill.Load() {
		s.failures.Add(1)
		return breaker.Failure
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	<-timer.C
	return breaker.Success
}

// TestFleetRampsABacklogIntoARecoveringService has two workers with 250 orders each, which try one each few milliseconds,
// meet a service that is just well again and takes five calls at once.
func TestFleetRampsABacklogIntoARecoveringService(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 25 s")
	}
	url, prefix := testkit.Redis(t), testkit.Prefix(t)
	cfg := breaker.Config{OpenWait: 2 * time.Second, ProbesInFlight: 2, FirstProbes: 6}
	members := []*member{join(t, url, prefix, "a", cfg), join(t, url, prefix, "b", cfg)}
	until(t, 5*time.Second, "both share", allOf(members, linked))
	var svc service
	svc.ill.Store(true)
	until(t, 5*time.Second, "the fleet opens", func() bool {
		members[0].call(svc.call(0))
		members[1].call(svc.call(0))
		return allOf(members, followsOpen)()
	})
	svc.ill.Store(false)

	var firstProbes, mostProbes, asked, admitted, orders atomic.Int64
	orders.Store(500)
	var expected atomic.Uint64 // float bits: the sum of the shares at which calls were asked for
	var calls sync.WaitGroup
	work := func(m *member) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for orders.Load() > 0 && t.Context().Err() == nil {
			<-tick.C
			s := m.b.Snapshot()
			p, ok := m.b.Allow()
			ramp := s.State == breaker.HalfOpen && s.Share > 0
			if ramp {
				asked.Add(1)
				for old := expected.Load(); !expected.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+s.Share)); old = expected.Load() {
				}
			}
			if !ok {
				continue
			}
			if ramp {
				admitted.Add(1)
			}
			first := s.State != breaker.Closed && !ramp
			if first {
				n := firstProbes.Add(1)
				for most := mostProbes.Load(); n > most && !mostProbes.CompareAndSwap(most, n); most = mostProbes.Load() {
				}
			}
			calls.Go(func() {
				result := svc.call(10 * time.Millisecond)
				if first {
					firstProbes.Add(-1)
				}
				m.b.Done(p, result)
				if result == breaker.Success {
					orders.Add(-1)
				}
			})
		}
	}
	var workers sync.WaitGroup
	for _, m := range members {
		workers.Go(func() { work(m) })
	}
	workers.Wait()
	calls.Wait()
	until(t, 30*time.Second, "the fleet closes", allOf(members, func(s breaker.Snapshot) bool { return s.State == breaker.Closed }))

	if most := mostProbes.Load(); most > 2 {
		t.Errorf("%d first probes ran at once, the limit is 2 for the fleet", most)
	}
	want := math.Float64frombits(expected.Load())
	if got := float64(admitted.Load()); math.Abs(got-want) > 0.1*want {
		t.Errorf("of %d calls asked for %v passed, the ramp stands for %.1f", asked.Load(), got, want)
	}
	for i, m := range members {
		if n := m.reopened(); n > 1 {
			t.Errorf("worker %d reopened %d times: %+v", i, n, m.saw(breaker.Open))
		}
	}
	t.Logf("%d asked, %d admitted, %.1f expected, %d failures, at most %d first probes", asked.Load(), admitted.Load(), want, svc.failures.Load(), mostProbes.Load())
}
