package replay_test

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
	"spillway/replay"
)

// claims counts the looks from a to b after the start.
func (w *world) claims(a, b time.Duration) (n int) {
	for _, at := range w.faults.tried("claim before") {
		if d := at.Sub(w.start); d >= a && d < b {
			n++
		}
	}
	return n
}

// elsewhere queues an order past the engine, as another worker does, and returns its id.
func (w *world) elsewhere() int64 {
	w.t.Helper()
	o := w.store.add(w.cfg.Route, 1)[0].Order
	item := replay.NewItem(&o, time.Now())
	data, err := item.Encode()
	if err == nil {
		err = w.queue.Push(w.t.Context(), []replay.Entry{{ID: o.ID, Data: data}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return o.ID
}

// within fails unless the order has succeeded once d is over.
func (w *world) within(d time.Duration, id int64) {
	w.t.Helper()
	time.Sleep(d)
	if o := w.store.get(id); o.State != order.Succeeded {
		w.t.Errorf("order %d is %v %v after %v", id, o.State, o.Phase, d)
	}
}

func TestAnEmptyQueueIsLookedAtOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(w.engine())
		time.Sleep(time.Minute)
		if n := w.claims(0, time.Minute); n < 58 || n > 65 {
			t.Errorf("%d looks in a minute, want about one a second", n)
		}
	})
}

func TestWhatAnotherWorkerQueuesIsFoundWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(w.engine())
		time.Sleep(30 * time.Second)
		w.within(1010*time.Millisecond, w.elsewhere())
	})
}

func TestWhatTheWorkerItselfQueuesIsFoundAtOnceAndWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.run(e)
		time.Sleep(30 * time.Second)
		w.spill(e, 1)
		w.within(10*time.Millisecond, 1)
		time.Sleep(30 * time.Second)
		const delay = 12345 * time.Millisecond
		late := w.store.add(w.cfg.Route, 1)
		late[0].NotBefore = time.Now().Add(delay)
		if err := e.Push(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay)
		w.within(110*time.Millisecond, late[0].Order.ID)
		// Then it is quiet again.
		time.Sleep(30 * time.Second)
		since := time.Since(w.start)
		time.Sleep(20 * time.Second)
		if n := w.claims(since, since+20*time.Second); n > 21 {
			t.Errorf("%d looks in 20 s at an empty queue", n)
		}
	})
}

func TestASecondAttemptIsMadeWhenItIsDueThoughTheQueueIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.RetryDelay = 10 * time.Second
		w.service.answers(order.OutcomeOverloaded, order.OutcomeSucceeded)
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(30 * time.Second)
		calls := w.service.seen()
		if len(calls) != 2 {
			t.Fatalf("%d calls, want 2", len(calls))
		}
		// The delay doubles: 20 s, up to a fifth more, and the next look.
		if gap := calls[1].at.Sub(calls[0].at); gap < 20*time.Second || gap > 24*time.Second+110*time.Millisecond {
			t.Errorf("it came again after %v", gap)
		}
	})
}

func TestTheQueueIsLookedAtAsSoonAsTheBreakerCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run(w.engine())
		time.Sleep(10 * time.Second)
		w.service.open.Store(true)
		time.Sleep(30 * time.Second)
		id := w.elsewhere()
		time.Sleep(1050 * time.Millisecond)
		w.service.open.Store(false)
		w.within(110*time.Millisecond, id)
	})
}
