package replay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestRunFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 3 * time.Second
		e := w.engine()
		w.spill(e, 10)
		stop := w.run(e)
		time.Sleep(5 * time.Second) // the second is under way
		before := time.Now()
		stop()
		if took := time.Since(before); took > time.Second+100*time.Millisecond {
			t.Errorf("it took %v to end, the call had 1 s to go", took)
		}
		w.wantRows(2, order.Succeeded, order.NoPhase)
		w.wantRows(8, order.Processing, order.Replaying)
		if d := w.queue.depths(); d.InFlight != 0 || d.Ready != 8 {
			t.Errorf("the queue holds %+v, want eight ready", d)
		}
	})
}

func TestRunCancelsCallsWhenItsGraceIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = time.Hour
		e := w.engine()
		w.spill(e, 3)
		stop := w.run(e)
		time.Sleep(time.Second)
		before := time.Now()
		stop()
		if took := time.Since(before); took != 5*time.Second {
			t.Errorf("it took %v to end, want the grace of 5 s", took)
		}
		// It was sent, so nobody knows: the compensator's.
		w.wantRows(1, order.Processing, order.Unknown)
		w.wantRows(2, order.Processing, order.Replaying)
		if d := w.queue.depths(); d.Total() != 2 {
			t.Errorf("the queue holds %+v, want two", d)
		}
	})
}

func TestRunEndsThoughPostgresIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 3)
		w.faults.set(failing(errAway, "settle"))
		stop := w.run(e)
		time.Sleep(time.Second)
		before := time.Now()
		stop()
		if took := time.Since(before); took != 7*time.Second {
			t.Errorf("it took %v to end, want grace and tail: 7 s", took)
		}
		// The leases of what was begun will run out, and the scanner looks it up. Nothing is sent twice.
		if n := w.store.count(order.Processing, order.InFlight) + w.store.count(order.Processing, order.Replaying); n != 3 {
			t.Errorf("%d orders are PROCESSING, want 3", n)
		}
		if calls := w.service.seen(); len(calls) < 1 || len(calls) > 3 {
			t.Errorf("%d calls, want at most one for each order", len(calls))
		}
	})
}

func TestNothingIsClaimedAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 2 * time.Second
		e := w.engine()
		w.spill(e, 10)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = e.Run(ctx)
		}()
		time.Sleep(time.Second)
		cancel()
		claims := len(w.faults.tried("claim before"))
		<-ended
		if n := len(w.faults.tried("claim before")); n != claims {
			t.Errorf("%d claims after the end", n-claims)
		}
	})
}

func TestLeasesAreRenewedWhileACallRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = 3 * time.Minute
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		for range 17 {
			time.Sleep(10 * time.Second)
			if due := w.store.claimDue(); len(due) != 0 {
				t.Fatalf("the lease of order %d ran out after %v", due[0].ID, time.Since(w.start))
			}
			if c, err := w.queue.Claim(t.Context(), "w2", 10, 1<<20, time.Minute); err != nil || len(c.Items) != 0 {
				t.Fatalf("another worker claimed it: %v, %v", c, err)
			}
		}
		time.Sleep(time.Minute)
		w.wantRows(1, order.Succeeded, order.NoPhase)
	})
}

func TestCallIsCancelledWhenItsRowIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.delay = time.Hour
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(time.Second)
		w.store.change(1, func(r *row) { // the scanner took it
			r.owner, r.order.Phase = "scanner", order.Unknown
			r.order.Version++
		})
		time.Sleep(11 * time.Second)
		if n := w.service.spare() + w.service.heldNow(); n != 0 {
			t.Error("the call goes on")
		}
		if o := w.store.get(1); o.Phase != order.Unknown {
			t.Errorf("it is %v: who lost the lease has settled", o.Phase)
		}
		w.wantMetric("spillway_replay_finished_total{became=stale}", 1)
	})
}
