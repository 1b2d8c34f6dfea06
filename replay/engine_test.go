package replay_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
	"spillway/replay"
)

func TestReplayedOrderSucceedsAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 10)
		w.run(e)
		time.Sleep(10 * time.Second)
		w.wantRows(10, order.Succeeded, order.NoPhase)
		w.wantEmpty()
		w.wantMetric("spillway_replay_pushed_total", 10)
		w.wantMetric("spillway_replay_finished_total{became=SUCCEEDED}", 10)
		w.wantMetric("spillway_replay_depth{state=ready}", 0)
		if o := w.store.get(1); o.Attempts != 2 || w.service.effect(o.Number) != 1 {
			t.Errorf("order 1 has %d attempts and %d effects", o.Attempts, w.service.effect(o.Number))
		}
	})
}

func TestThirdFailedAttemptMakesADeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answers(order.OutcomeOverloaded)
		e := w.engine()
		w.spill(e, 1) // its first attempt was made live
		w.run(e)
		time.Sleep(time.Minute)
		o := w.store.get(1)
		if o.State != order.Dead || o.Reason != order.AttemptsExhausted || o.Attempts != 3 {
			t.Errorf("it is %v, %v, after %d attempts", o.State, o.Reason, o.Attempts)
		}
		if n := len(w.service.seen()); n != 2 {
			t.Errorf("%d calls, want 2", n)
		}
		w.wantEmpty()
		w.wantMetric("spillway_replay_finished_total{became=DEAD}", 1)
		if w.log.count("became a dead letter") != 1 {
			t.Error("no line says so")
		}
	})
}

func TestPolicyThatChangesCountsForAttemptsFromThenOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answers(order.OutcomeOverloaded)
		w.policy.RetryDelayMax = time.Second // so every attempt is a second after the one before, a fifth at most more
		w.policy.ReplayAttempts = 10
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(3 * time.Second)
		if o := w.store.get(1); o.State != order.Processing {
			t.Fatalf("it is %v after %d attempts, with 10 allowed", o.State, o.Attempts)
		}
		p := w.policy
		p.ReplayAttempts = 3
		e.SetPolicy(p)
		time.Sleep(2 * time.Second)
		if o := w.store.get(1); o.State != order.Dead || o.Reason != order.AttemptsExhausted {
			t.Errorf("it is %v, %v, after %d attempts, with 3 allowed", o.State, o.Reason, o.Attempts)
		}
	})
}

func TestFailedAttemptComesAgainAfterItsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answers(order.OutcomeNotSent, order.OutcomeSucceeded)
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(time.Second) // one attempt is made; the next is 2 s off
		if d := w.queue.depths(); d.Delayed != 1 || d.Total() != 1 {
			t.Errorf("the queue holds %+v, want one delayed", d)
		}
		if has, err := e.Has(t.Context(), []int64{1, 2}); err != nil || !has[0] || has[1] {
			t.Errorf("has: %v, %v", has, err)
		}
		time.Sleep(10 * time.Second)
		w.wantRows(1, order.Succeeded, order.NoPhase)
		calls := w.service.seen()
		if len(calls) != 2 {
			t.Fatalf("%d calls, want 2", len(calls))
		}
		// The second attempt failed: 2 s, up to a fifth more, and the next look.
		if gap := calls[1].at.Sub(calls[0].at); gap < 2*time.Second || gap > 2600*time.Millisecond {
			t.Errorf("it came again after %v", gap)
		}
	})
}

func TestUnknownOutcomeLeavesTheQueueForTheCompensator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answers(order.OutcomeUnknown)
		e := w.engine()
		w.spill(e, 3)
		w.run(e)
		time.Sleep(10 * time.Second)
		w.wantRows(3, order.Processing, order.Unknown)
		w.wantEmpty()
		if n := len(w.service.seen()); n != 3 {
			t.Errorf("%d calls, want 3: an unknown outcome is never sent again first", n)
		}
	})
}

func TestReplayWaitsWhileTheBreakerRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.open.Store(true)
		e := w.engine()
		w.spill(e, 5)
		w.run(e)
		time.Sleep(30 * time.Second)
		if n := len(w.faults.tried("claim before")); n != 0 {
			t.Errorf("%d claims while the breaker was open", n)
		}
		w.wantMetric("spillway_replay_pace", 0)
		w.service.open.Store(false)
		time.Sleep(5 * time.Second)
		w.wantRows(5, order.Succeeded, order.NoPhase)
	})
}

func TestReplayRisesNoHigherThanThePermitsThereAreNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 100 * time.Millisecond
		var permits atomic.Int64
		permits.Store(4)
		w.cfg.PermitLimit = func() int { return int(permits.Load()) }
		e := w.engine()
		w.spill(e, 2000)
		w.run(e)
		time.Sleep(10 * time.Second)
		for _, limit := range []int{4, 8, 2} {
			permits.Store(int64(limit))
			time.Sleep(5 * time.Second)
			from := time.Since(w.start)
			time.Sleep(5 * time.Second)
			if n := w.service.between(w.start, from, from+5*time.Second); n > 51*limit || n < 45*limit {
				t.Errorf("%d attempts in 5 s with %d permits, want about %d", n, limit, 50*limit)
			}
		}
	})
}

func TestReplayRampsFromOneInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 100 * time.Millisecond
		e := w.engine()
		w.spill(e, 2000)
		w.run(e)
		// One in flight takes 10 a second, then 2, 4, …; the first second's step may end up to a call late.
		limit := 1
		for second := range 6 {
			time.Sleep(time.Second)
			from := time.Duration(second) * time.Second
			n := w.service.between(w.start, from, from+time.Second)
			if most := 11 * limit; n > most || n < 5*limit {
				t.Errorf("second %d has %d attempts, want %d to %d", second, n, 5*limit, most)
			}
			limit *= 2
		}
		time.Sleep(time.Minute)
		if got := w.service.peak(); got != 64 {
			t.Errorf("%d were in flight at most, want the default bound 64", got)
		}
		w.wantRows(2000, order.Succeeded, order.NoPhase)
	})
}

func TestRampStartsOverAfterTheBreakerOpened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 100 * time.Millisecond
		e := w.engine()
		w.spill(e, 5000)
		w.run(e)
		time.Sleep(6 * time.Second)
		w.service.open.Store(true)
		time.Sleep(2 * time.Second)
		w.service.open.Store(false)
		time.Sleep(900 * time.Millisecond)
		if n := w.service.between(w.start, 8*time.Second, 8900*time.Millisecond); n < 3 || n > 11 {
			t.Errorf("%d attempts in the first 0.9 s after the breaker closed, want one at a time", n)
		}
	})
}

func TestNoMoreIsClaimedThanCanBeCalledSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service = newService(t, 3)
		w.service.delay = 50 * time.Millisecond
		e := w.engine()
		w.spill(e, 400)
		w.queue.watch(func(n int) {
			begun := w.store.count(order.Succeeded, order.NoPhase) // first, so that none counts twice
			begun += w.store.count(order.Processing, order.InFlight)
			// What has been called and waits to be written down is in nobody's way. Three calls that end at once give their
			// permits to three others before they count as over: six under way, twice as many and one wanted, and one waiting.
			if claimed := begun - w.service.ended() + n; claimed > 2*6+1+1 {
				t.Errorf("a claim of %d makes %d for 3 permits", n, claimed)
			}
		})
		w.run(e)
		time.Sleep(30 * time.Second)
		if got := w.service.peak(); got != 3 {
			t.Errorf("%d in flight at most, want 3", got)
		}
		w.wantRows(400, order.Succeeded, order.NoPhase)
	})
}

func TestReplayHoldsWhenPermitsRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service = newService(t, 0)
		e := w.engine()
		w.spill(e, 4)
		w.run(e)
		time.Sleep(10 * time.Second)
		if n := w.store.count(order.Processing, order.InFlight); n > 1 {
			t.Errorf("%d orders begun without a permit, want one that stands in line", n)
		}
		w.service.mu.Lock()
		w.service.permits = 2
		w.service.mu.Unlock()
		time.Sleep(3 * time.Second)
		w.wantRows(4, order.Succeeded, order.NoPhase)
	})
}

func TestOrderThatMovedOnIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 3)
		w.store.change(1, func(r *row) { r.order.State, r.order.Phase = order.Succeeded, order.NoPhase })
		w.store.change(2, func(r *row) { r.order.Phase = order.Unknown })
		w.run(e)
		time.Sleep(5 * time.Second)
		if calls := w.service.seen(); len(calls) != 1 || calls[0].number != "T-3" {
			t.Errorf("calls %v, want T-3 alone", calls)
		}
		w.wantEmpty()
		w.wantMetric("spillway_replay_dropped_total", 2)
	})
}

func TestEntryQueuedTwiceIsAttemptedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 50 * time.Millisecond
		e := w.engine()
		w.spill(e, 500)
		w.run(e)
		time.Sleep(20 * time.Second) // by now many are claimed together
		w.wantRows(500, order.Succeeded, order.NoPhase)
		twice := w.store.add("pay", 1)
		item := replay.NewItem(&twice[0].Order, time.Now())
		data, err := item.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			w.queue.raw(string(data))
		}
		time.Sleep(10 * time.Second)
		if n := w.service.effect(item.Number); n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
		w.wantEmpty()
		w.wantMetric("spillway_replay_dropped_total", 39)
	})
}

func TestIdleReplayKeepsPermitsFromNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 50 * time.Millisecond
		e := w.engine()
		w.spill(e, 500)
		stop := w.run(e)
		time.Sleep(20 * time.Second)
		looks := 0
		w.queue.watch(func(n int) {
			looks++
			if n != 1 {
				t.Errorf("a look into the empty queue held %d permits", n)
			}
		})
		time.Sleep(10 * time.Second)
		stop()
		if looks < 8 || looks > 15 {
			t.Errorf("%d looks in 10 s, want about one a second", looks)
		}
	})
}

func TestOrderOfAnotherRouteIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		foreign := w.store.add("refund", 1)
		foreign[0].Order.Route = "pay" // the entry says ours, the row does not
		if err := e.Push(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		w.run(e)
		time.Sleep(5 * time.Second)
		if n := len(w.service.seen()); n != 0 {
			t.Errorf("%d calls, want none", n)
		}
		w.wantEmpty()
		if o := w.store.get(1); o.Phase != order.Replaying || o.Attempts != 1 {
			t.Errorf("it is %v after %d attempts, want it as it was", o.Phase, o.Attempts)
		}
	})
}

func TestUnreadableEntriesBecomeDeadLettersAndHoldNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		junk := []string{"", "null", "[]", "{}", `{"v":1}xx`, `{"v":99,"id":7}`, strings.Repeat("a", 1<<20)}
		w.queue.raw(junk...)
		w.spill(e, 1)
		w.faults.set(failing(errAway, "bury"))
		w.run(e)
		time.Sleep(20 * time.Second)
		// Postgres takes no dead letters: all of it stays, tried at most once a second.
		if n, d := len(w.faults.tried("bury before")), w.queue.depths(); n > 21 || d.Total() < 7 {
			t.Errorf("%d tries to bury in 20 s; the queue holds %+v", n, d)
		}
		w.faults.set(nil)
		time.Sleep(5 * time.Second)
		w.wantRows(1, order.Succeeded, order.NoPhase)
		letters := w.store.letters()
		if len(letters) != len(junk) {
			t.Fatalf("%d dead letters, want %d", len(letters), len(junk))
		}
		for _, want := range junk {
			found := false
			for _, l := range letters {
				if string(l.Raw) == want && l.Raw != nil {
					found = l.Reason == order.QueueItemUnreadable && l.Detail != "" && l.Route == "pay"
				}
			}
			if !found {
				t.Errorf("no dead letter holds %.20q with its reason", want)
			}
		}
		w.wantEmpty()
		w.wantMetric("spillway_replay_unreadable_total", 7)
	})
}

func TestUnreadableEntryWithAnIDIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 1)
		w.queue.ready[0] = append(w.queue.ready[0], "xx"...)
		w.run(e)
		time.Sleep(5 * time.Second)
		if has, err := e.Has(t.Context(), []int64{1}); err != nil || has[0] {
			t.Errorf("has: %v, %v; nobody would ever push it again", has, err)
		}
	})
}

func TestWipedQueueIsFilledAgainFromTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.open.Store(true)
		e := w.engine()
		spilled := w.store.add("pay", 1000)
		if err := e.Push(t.Context(), spilled); err != nil {
			t.Fatal(err)
		}
		w.run(e)
		w.queue.wipe()
		w.service.open.Store(false)
		has, err := e.Has(t.Context(), []int64{1, 500, 1000})
		if err != nil || fmt.Sprint(has) != "[false false false]" {
			t.Fatalf("has: %v, %v", has, err)
		}
		if err := e.Push(t.Context(), spilled); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.wantRows(1000, order.Succeeded, order.NoPhase)
	})
}

func TestNewRefusesNumbersOutOfBounds(t *testing.T) {
	t.Parallel()
	good := replay.Config{Route: "pay", Owner: "w1"}
	for name, edit := range map[string]func(*replay.Config){
		"no route":        func(c *replay.Config) { c.Route = "" },
		"no owner":        func(c *replay.Config) { c.Owner = "" },
		"negative lease":  func(c *replay.Config) { c.Lease = -1 },
		"batch too large": func(c *replay.Config) { c.Batch = replay.MaxClaim + 1 },
		"negative bytes":  func(c *replay.Config) { c.Bytes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			edit(&cfg)
			if _, err := replay.New(cfg, policy(), newMemQueue(1), newMemStore(), newService(t, 1), discard(), nil); err == nil {
				t.Error("it was taken")
			}
		})
	}
}
