package replay_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// wantTries fails unless the step was tried about once a second at most from a to b after the start, and at least
// sometimes. A call that succeeds meanwhile, such as a renewal, lets everybody try once.
func (w *world) wantTries(step string, a, b time.Duration) {
	w.t.Helper()
	n := 0
	for _, at := range w.faults.tried(step) {
		if d := at.Sub(w.start); d >= a && d < b {
			n++
		}
	}
	if most := int((b - a) / time.Second); n > most+most/4 || n < most/4 {
		w.t.Errorf("%d tries of %q in %v, want about one a second", n, step, b-a)
	}
}

func TestNothingIsBegunWhilePostgresIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 50)
		w.faults.set(failing(errAway, "begin", "settle", "bury", "renew row"))
		w.run(e)
		time.Sleep(19500 * time.Millisecond) // between two tries
		if n := len(w.service.seen()); n != 0 {
			t.Errorf("%d calls, want none", n)
		}
		w.wantTries("begin before", 0, 20*time.Second)
		if err := e.Healthy(); err == nil || !errors.Is(err, errAway) || !strings.Contains(err.Error(), "order store") {
			t.Errorf("healthy says %v", err)
		}
		if d := w.queue.depths(); d.Ready != 50 || w.queue.queued() != 50 {
			t.Errorf("the queue holds %+v, want all 50 ready", d)
		}
		w.faults.set(nil)
		time.Sleep(10 * time.Second)
		w.wantRows(50, order.Succeeded, order.NoPhase)
		if err := e.Healthy(); err != nil {
			t.Errorf("healthy says %v", err)
		}
		if a, b := w.log.count("does not answer"), w.log.count("answers again"); a != 1 || b != 1 {
			t.Errorf("%d lines say it went, %d that it came back, want one each", a, b)
		}
	})
}

func TestEngineForgetsPostgresWasAwayWhenAnotherWorkerEmptiedTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 1)
		w.faults.set(failing(errAway, "begin"))
		w.run(e)
		time.Sleep(5 * time.Second)
		w.queue.wipe()
		time.Sleep(5 * time.Second)
		if err := e.Healthy(); err != nil {
			t.Errorf("healthy says %v of a store nobody asks", err)
		}
	})
}

func TestAnswersAreKeptUntilPostgresTakesThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 5)
		w.faults.set(failing(errAway, "settle", "renew row"))
		w.run(e)
		time.Sleep(20 * time.Second)
		w.wantTries("settle before", 5*time.Second, 20*time.Second)
		w.faults.set(nil)
		time.Sleep(5 * time.Second)
		w.wantRows(5, order.Succeeded, order.NoPhase)
		for _, c := range w.service.seen() {
			if n := w.service.effect(c.number); n != 1 {
				t.Errorf("%s has %d effects", c.number, n)
			}
		}
		w.wantEmpty()
	})
}

func TestOrderStaysQueuedWhenTheAnswerOfItsSettlementWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answers(order.OutcomeOverloaded, order.OutcomeSucceeded)
		lost := 0
		w.faults.set(func(step string) error {
			if step == "settle after" && lost == 0 {
				lost++
				return errAway
			}
			return nil
		})
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(20 * time.Second) // less than the scanner's patience: the queue alone must bring it back
		w.wantRows(1, order.Succeeded, order.NoPhase)
		w.wantEmpty()
	})
}

func TestRedisAwayIsTriedOnceASecondAndSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 20)
		w.faults.set(failing(errAway, "push", "has", "depths", "probe", "claim", "finish", "renew claim"))
		w.run(e)
		later := w.store.add("pay", 1)
		for range 200 { // what a live lane in a hurry would do
			if err := e.Push(t.Context(), later); !errors.Is(err, errAway) {
				t.Fatalf("push: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		// Taking looks first, once a second, and so does adding.
		if n := len(w.faults.tried("depths before")) + len(w.faults.tried("push before")); n > 42 || n < 20 {
			t.Errorf("%d tries in 20 s, want one a second for taking and one for adding", n)
		}
		if n := len(w.faults.tried("push before")) + len(w.faults.tried("probe before")); n > 21 {
			t.Errorf("%d tries to write in 20 s", n)
		}
		if n := len(w.faults.tried("claim before")); n > 1 {
			t.Errorf("%d claims though the server does not even answer a look", n)
		}
		if _, err := e.Has(t.Context(), []int64{1}); !errors.Is(err, errAway) {
			t.Errorf("has: %v", err)
		}
		if err := e.Healthy(); !errors.Is(err, errAway) {
			t.Errorf("healthy says %v", err)
		}
		w.faults.set(nil)
		time.Sleep(5 * time.Second)
		if err := e.Healthy(); err != nil {
			t.Errorf("healthy says %v", err)
		}
		if err := e.Push(t.Context(), later); err != nil {
			t.Errorf("push: %v", err)
		}
		time.Sleep(5 * time.Second)
		w.wantRows(21, order.Succeeded, order.NoPhase)
		// Adding and taking are followed each by itself.
		if a, b := w.log.count("does not answer"), w.log.count("answers again"); a != 2 || b != 2 {
			t.Errorf("%d lines say it went, %d that it came back, want two each", a, b)
		}
	})
}

func TestQueueThatOnlyRefusesWritesIsUnhealthyAndStillWorkedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 20)
		errOOM := errors.New("OOM command not allowed when used memory > 'maxmemory'")
		w.faults.set(failing(errOOM, "push", "probe")) // what a server without memory refuses
		w.run(e)
		time.Sleep(10 * time.Second)
		w.wantRows(20, order.Succeeded, order.NoPhase)
		if err := e.Healthy(); !errors.Is(err, errOOM) || !strings.Contains(err.Error(), "adding") {
			t.Errorf("healthy says %v", err)
		}
		w.faults.set(nil)
		time.Sleep(3 * time.Second) // nobody pushes: it finds out by itself
		if err := e.Healthy(); err != nil {
			t.Errorf("healthy says %v", err)
		}
	})
}

func TestUnfinishedClaimComesBackAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 10)
		w.faults.set(failing(errAway, "finish"))
		w.run(e)
		time.Sleep(20 * time.Second)
		w.faults.set(nil)
		time.Sleep(2 * time.Minute)
		w.wantRows(10, order.Succeeded, order.NoPhase)
		w.wantEmpty()
		if n := len(w.service.seen()); n != 10 {
			t.Errorf("%d calls, want 10", n)
		}
	})
}
