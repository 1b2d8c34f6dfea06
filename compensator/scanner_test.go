package compensator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestTwoScannersLookEachOrderUpOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 200*time.Millisecond))
		for id := range int64(100) {
			w.add(id, order.Unknown)
		}
		var wg sync.WaitGroup
		for i := range 2 {
			s := w.scanner(t, fmt.Sprint("w", i), nil)
			wg.Go(func() { run(t, s, 20*time.Second) })
		}
		wg.Wait()
		if n := w.count(order.Succeeded); n != 100 {
			t.Errorf("%d orders SUCCEEDED: want 100", n)
		}
		if n := w.calls.total(); n != 100 {
			t.Errorf("%d lookups: want 100", n)
		}
		if w.finals != 100 {
			t.Errorf("%d final transitions: want 100", w.finals)
		}
	})
}

// deadStore stands for the store as a killed worker sees it.
type deadStore struct {
	*fakeStore
	mu   sync.Mutex
	dead bool
}

func (d *deadStore) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
}

func (d *deadStore) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func (d *deadStore) ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error) {
	if d.gone() {
		return nil, errAway
	}
	return d.fakeStore.ClaimDue(ctx, route, owner, lease, n)
}

func (d *deadStore) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	if d.gone() {
		return nil, errAway
	}
	return d.fakeStore.Settle(ctx, owner, ss)
}

func TestClaimsOfKilledScannerAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 200*time.Millisecond))
		for id := range int64(100) {
			w.add(id, order.Unknown)
		}
		killed := &deadStore{fakeStore: w.fakeStore}
		var wg sync.WaitGroup
		a, b := w.scanner(t, "killed", killed), w.scanner(t, "left", nil)
		wg.Go(func() { run(t, a, 300*time.Millisecond) })
		time.Sleep(time.Millisecond) // so that the one to be killed has claims, whatever runs first
		wg.Go(func() { run(t, b, 2*time.Minute) })
		time.Sleep(299 * time.Millisecond)
		killed.kill()
		wg.Wait()
		its := 0
		for _, c := range w.claims {
			if c.owner == "killed" {
				its += c.got
			}
		}
		if n := w.count(order.Succeeded); n != 100 {
			t.Errorf("%d orders SUCCEEDED: want 100", n)
		}
		if n := w.calls.total(); n > 100+its || its == 0 {
			t.Errorf("%d lookups: want at most 100 and the %d claims of the killed", n, its)
		}
	})
}

func TestProcessingForEverEndsAsDeadLetterAtTheCap(t *testing.T) {
	t.Parallel()
	for _, v := range []order.Verdict{order.VerdictProcessing, order.VerdictNone} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(4, finding(v, 10*time.Millisecond))
				w.add(1, order.Unknown)
				run(t, w.scanner(t, "w", nil), 10*time.Minute)
				r := w.get(1)
				if r.State != order.Dead || r.Reason != order.LookupsExhausted || r.Lookups != 5 {
					t.Errorf("order %v %v %s after %d lookups", r.State, r.Phase, r.Reason, r.Lookups)
				}
				if n := w.calls.of(1); n != 5 {
					t.Errorf("%d lookups: want 5", n)
				}
				if n := w.queue.pushes(1); n != 0 {
					t.Errorf("pushed %d times", n)
				}
				for i := 1; i < len(w.calls.times); i++ {
					if gap := w.calls.times[i].Sub(w.calls.times[i-1]); gap < testPolicy().LookupDelay<<(i-1) {
						t.Errorf("lookup %d came %v after the one before", i+1, gap)
					}
				}
			})
		})
	}
}

func TestPolicyThatChangesCountsForLookupsFromThenOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(4, finding(order.VerdictNone, 10*time.Millisecond))
		w.add(1, order.Unknown)
		s := w.scanner(t, "w", nil)
		p := testPolicy()
		p.CompensateAttempts = 2
		time.AfterFunc(testPolicy().LookupDelay/2, func() { s.SetPolicy(p) }) // after the first, before the second
		run(t, s, 10*time.Minute)
		if r := w.get(1); r.State != order.Dead || r.Reason != order.LookupsExhausted || r.Lookups != 2 {
			t.Errorf("order %v %v %s after %d lookups, want a dead letter after 2", r.State, r.Phase, r.Reason, r.Lookups)
		}
	})
}

func TestStoreAwayBetweenLookupAndWriteForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"within the lease": 20 * time.Second, "beyond the lease": 90 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var w *world
				w = newWorld(4, func(context.Context, *order.Order) order.Finding {
					if w.calls.total() == 1 {
						w.setAway(true) // between the answer and the write
						time.AfterFunc(away, func() { w.setAway(false) })
					}
					return order.Finding{Verdict: order.VerdictSucceeded, Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}
				})
				w.add(1, order.Unknown)
				run(t, w.scanner(t, "w", nil), 5*time.Minute)
				if r := w.get(1); r.State != order.Succeeded {
					t.Errorf("order %v %v %s", r.State, r.Phase, r.Reason)
				}
				if n := w.queue.pushes(1); n != 0 {
					t.Errorf("pushed for a resend %d times", n)
				}
				if n := w.calls.of(1); n > 2 || away < 30*time.Second && n != 1 {
					t.Errorf("%d lookups", n)
				}
				if n := strings.Count(w.log.String(), "does not answer"); n != 1 {
					t.Errorf("the log says %d times that the store is away:\n%s", n, w.log.String())
				}
				if n := strings.Count(w.log.String(), "answers again"); n != 1 {
					t.Errorf("the log says %d times that the store is back", n)
				}
			})
		})
	}
}

func TestNotFoundIsBelievedAfterGraceAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(4, finding(order.VerdictNotFound, 0))
		r := w.add(1, order.Unknown)
		sent := time.Now()
		r.LastAttempt = sent
		run(t, w.scanner(t, "w", nil), 29*time.Second)
		if got := w.get(1); got.Phase != order.Unknown || got.Lookups != 0 || w.queue.pushes(1) != 0 {
			t.Errorf("within the grace period: %v, %d lookups counted, %d pushes", got.Phase, got.Lookups, w.queue.pushes(1))
		}
		run(t, w.scanner(t, "w2", nil), 3*time.Second)
		got := w.get(1)
		if got.Phase != order.Replaying || got.Reason != order.NotFound || w.queue.pushes(1) != 1 {
			t.Errorf("after it: %v %s, %d pushes", got.Phase, got.Reason, w.queue.pushes(1))
		}
		if p := w.queue.last[1]; p.Order.Version != got.Version || p.Order.Phase != order.Replaying || p.Order.Attempts != 1 {
			t.Errorf("pushed %+v, the row is %+v", p.Order, got.Order)
		}
		if last := w.calls.times[len(w.calls.times)-1]; last.Sub(sent) < testPolicy().Grace {
			t.Errorf("believed %v after the attempt", last.Sub(sent))
		}
	})
}

// A slow answer, or a process that stood still, must not make a lookup younger than it is.
func TestNotFoundCountsFromWhenTheLookupWasBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(4, finding(order.VerdictNotFound, 5*time.Second))
		w.add(1, order.Unknown).LastAttempt = time.Now().Add(-28 * time.Second) // the grace ends in 2s
		run(t, w.scanner(t, "w", nil), 6*time.Second)
		if r := w.get(1); r.Phase != order.Unknown || w.queue.pushes(1) != 0 {
			t.Errorf("believed: %v, %d pushes", r.Phase, w.queue.pushes(1))
		}
	})
}

func TestDeadWorkersOrdersAreLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(4, finding(order.VerdictSucceeded, 0))
		w.add(1, order.InFlight)
		run(t, w.scanner(t, "w", nil), 2*time.Second)
		if r := w.get(1); r.State != order.Succeeded || r.Lookups != 1 {
			t.Errorf("order %v after %d lookups", r.State, r.Lookups)
		}
	})
}

func TestReplayQueueThatForgotIsReminded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(4, finding(order.VerdictNone, 0))
		w.add(1, order.Replaying)
		w.add(2, order.Replaying)
		w.queue.queued[2] = 1
		run(t, w.scanner(t, "w", nil), 110*time.Second)
		for id, want := range map[int64]int{1: 1, 2: 1} {
			r := w.get(id)
			if n := w.queue.pushes(id); n != want {
				t.Errorf("order %d: %d pushes, want %d", id, n, want)
			}
			if r.Phase != order.Replaying || r.history != 0 || r.Lookups != 0 || r.Attempts != 1 {
				t.Errorf("order %d: %+v", id, r)
			}
		}
		if w.queue.asked != 1 {
			t.Errorf("asked the queue %d times: want once a patience", w.queue.asked)
		}
		if n := w.calls.total(); n != 0 {
			t.Errorf("%d lookups of orders that wait for a replay", n)
		}
	})
}

func TestReplayQueueAwayOrFullHoldsNothingElseUp(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"away": errAway, "full": fmt.Errorf("route r: %w", order.ErrQueueFull)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(16, finding(order.VerdictSucceeded, 10*time.Millisecond))
				for id := range int64(500) {
					w.add(id, order.Replaying)
				}
				time.Sleep(time.Millisecond)
				w.add(1000, order.Unknown) // due behind all of them
				w.queue.fail(err)
				run(t, w.scanner(t, "w", nil), 10*time.Second)
				if r := w.get(1000); r.State != order.Succeeded {
					t.Errorf("the unknown order is %v", r.State)
				}
				if n := len(w.claims); n > 40 {
					t.Errorf("%d claims in 10s: a hot loop", n)
				}
				w.queue.fail(nil)
				run(t, w.scanner(t, "w2", nil), 3*time.Minute)
				for id := range int64(500) {
					if w.queue.pushes(id) != 1 {
						t.Fatalf("order %d: %d pushes once the queue was back", id, w.queue.pushes(id))
					}
				}
				if n := strings.Count(w.log.String(), "does not answer"); n > 1 || (name == "full") != (n == 0) {
					t.Errorf("the log says %d times that the queue is away", n)
				}
			})
		})
	}
}

func TestOpenBreakerSlowsTheScannerAndCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 10*time.Millisecond))
		for id := range int64(200) {
			w.add(id, order.Unknown)
		}
		w.add(1000, order.Replaying).Due = time.Now().Add(-time.Second)
		w.calls.setOpen(true)
		s := w.scanner(t, "w", nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.mu.Lock()
		if n := len(w.claims); n > 30 {
			t.Errorf("%d claims in 10 min of an open breaker", n)
		}
		for id := range int64(200) {
			if r := w.rows[id]; r.State != order.Processing || r.Lookups != 0 && r.owner == "" || r.history != 0 {
				t.Errorf("order %d: %v, %d lookups counted, %d history rows", id, r.State, r.Lookups, r.history)
			}
		}
		w.mu.Unlock()
		if n := w.queue.pushes(1000); n != 1 {
			t.Errorf("the forgotten order was pushed %d times", n)
		}
		w.calls.setOpen(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := w.count(order.Succeeded); n != 200 {
			t.Errorf("%d orders SUCCEEDED a minute after the breaker closed", n)
		}
		if n := w.calls.total(); n != 200 {
			t.Errorf("%d lookups: want 200", n)
		}
	})
}

func TestRecoveryBeginsWithOneLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 100*time.Millisecond))
		for id := range int64(64) {
			w.add(id, order.Unknown)
		}
		w.calls.setOpen(true)
		time.AfterFunc(3500*time.Millisecond, func() { w.calls.setOpen(false) })
		run(t, w.scanner(t, "w", nil), 30*time.Second)
		first := 0
		for _, at := range w.calls.times {
			if at.Sub(w.calls.times[0]) < 100*time.Millisecond {
				first++
			}
		}
		if first != 1 {
			t.Errorf("%d lookups at once after the breaker closed: want 1", first)
		}
		if n := w.count(order.Succeeded); n != 64 {
			t.Errorf("%d orders SUCCEEDED", n)
		}
	})
}

func TestEndWaitsForLookupsUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2, finding(order.VerdictSucceeded, 2*time.Second))
		for id := range int64(8) {
			w.add(id, order.Unknown)
		}
		took := run(t, w.scanner(t, "w", nil), time.Second)
		if took > 2*time.Second {
			t.Errorf("ended %v after the signal", took)
		}
		if n := w.count(order.Succeeded); n != 2 {
			t.Errorf("%d orders SUCCEEDED: want the 2 under way", n)
		}
		if n := w.calls.total(); n != 2 {
			t.Errorf("%d lookups: want none begun after the signal", n)
		}
		for id := range int64(8) {
			if r := w.get(id); r.State == order.Processing && (r.owner != "" || r.Lookups != 0 || r.Due.After(time.Now())) {
				t.Errorf("order %d was not given back: owner %q, %d lookups, due in %v", id, r.owner, r.Lookups, time.Until(r.Due))
			}
		}
	})
}

func TestEndCutsLookupsThatHangAtTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2, finding(order.VerdictSucceeded, time.Hour))
		w.add(1, order.Unknown)
		took := run(t, w.scanner(t, "w", nil), time.Second)
		if took > 5*time.Second || took < 3*time.Second {
			t.Errorf("ended %v after the signal: want within the grace of 5s", took)
		}
		if r := w.get(1); r.Lookups != 0 || r.owner != "" || r.Phase != order.Unknown || r.Due.After(time.Now()) {
			t.Errorf("order %+v: want it given back, uncounted", r)
		}
	})
}

func TestEndWithTheStoreAwayKeepsTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2, finding(order.VerdictSucceeded, 500*time.Millisecond))
		w.add(1, order.Unknown)
		w.onSettle = func() { w.setAway(true) }
		if took := run(t, w.scanner(t, "w", nil), time.Second); took > 5500*time.Millisecond {
			t.Errorf("ended %v after the signal", took)
		}
	})
}

func TestFailingOrdersDoNotStarveFreshOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad, good := finding(order.VerdictNone, 300*time.Millisecond), finding(order.VerdictSucceeded, 10*time.Millisecond)
		w := newWorld(2, func(ctx context.Context, o *order.Order) order.Finding {
			if o.ID < 1000 {
				return bad(ctx, o)
			}
			return good(ctx, o)
		})
		for id := range int64(100) {
			w.add(id, order.Unknown)
		}
		s := w.scanner(t, "w", nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		for id := range int64(20) {
			time.Sleep(3 * time.Second)
			w.add(1000+id, order.Unknown)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := w.count(order.Succeeded); n != 20 {
			t.Errorf("%d of 20 fresh orders SUCCEEDED beside 100 that fail", n)
		}
	})
}

func TestClaimsFitThePermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3, finding(order.VerdictSucceeded, 300*time.Millisecond))
		for id := range int64(60) {
			w.add(id, order.Unknown)
		}
		run(t, w.scanner(t, "w", nil), 30*time.Second)
		for _, c := range w.claims {
			if c.n > 12 {
				t.Errorf("claimed %d orders with 3 permits", c.n)
			}
		}
		if w.calls.most > 3 {
			t.Errorf("%d lookups at once with 3 permits", w.calls.most)
		}
		if n := w.count(order.Succeeded); n != 60 {
			t.Errorf("%d orders SUCCEEDED", n)
		}
		// Full claims follow each other at once: 60 lookups of 300 ms by 3 permits are 6 s.
		if last := w.calls.times[59].Sub(w.calls.times[0]); last > 8*time.Second {
			t.Errorf("60 lookups took %v", last)
		}
	})
}

func TestNoPermitsNoClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, finding(order.VerdictSucceeded, 0))
		w.add(1, order.Unknown)
		<-w.calls.permits
		run(t, w.scanner(t, "w", nil), 10*time.Second)
		if len(w.claims) != 0 {
			t.Errorf("%d claims without a permit", len(w.claims))
		}
	})
}

func TestStoreAwayIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, finding(order.VerdictSucceeded, 0))
		w.add(1, order.Unknown)
		w.setAway(true)
		s := w.scanner(t, "w", nil)
		time.AfterFunc(5*time.Minute, func() { w.setAway(false) })
		run(t, s, 6*time.Minute)
		if w.errors > 20 {
			t.Errorf("%d tries in 5 min", w.errors)
		}
		if r := w.get(1); r.State != order.Succeeded {
			t.Errorf("order %v after the store came back", r.State)
		}
		if n := strings.Count(w.log.String(), "\n"); n != 2 {
			t.Errorf("%d lines in the log, want one per change:\n%s", n, w.log.String())
		}
	})
}
