package replay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
	"spillway/replay"
)

// scan does the scanner's work until the test ends: lookups first, and orders the queue forgot go back to it.
func (w *world) scan(e *replay.Engine, ended <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ended:
			return
		}
		for _, o := range w.store.claimDue() {
			next := order.Transition{
				State: o.State, Phase: o.Phase, Attempts: o.Attempts, AttemptsTotal: o.AttemptsTotal,
				NotBefore: time.Now(), Due: time.Now().Add(time.Minute),
			}
			if o.Phase == order.Unknown {
				next = w.policy.AfterLookup(&o, w.service.lookup(o.Number), time.Now(), 0)
			}
			if _, err := w.store.Settle(w.t.Context(), "scanner", []order.Settlement{o.Settle(next)}); err != nil {
				w.t.Errorf("settle: %v", err)
			}
			if next.Phase == order.Replaying {
				if err := e.Push(w.t.Context(), []order.Spilled{{Order: o, NotBefore: next.NotBefore}}); err != nil {
					w.t.Errorf("push: %v", err)
				}
			}
		}
	}
}

// dieAt makes the process fall silent at the nth time it comes to the step: nothing happens after it.
func dieAt(step string, nth int) func(string) error {
	var mu sync.Mutex
	left, dead := nth, false
	return func(at string) error {
		mu.Lock()
		defer mu.Unlock()
		if at == step {
			left--
			dead = dead || left == 0
		}
		if dead {
			return errors.New("this process is dead")
		}
		return nil
	}
}

func TestCrashAnywhereLosesNothingAndSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"claim", "begin", "submit", "settle", "finish"} {
		for _, side := range []string{" before", " after"} {
			t.Run(step+side, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { crash(t, step+side) })
			})
		}
	}
}

// crash lets a worker die at the step, starts another one and the scanner, and looks at what became of all orders.
func crash(t *testing.T, step string) {
	t.Helper()
	const n = 40
	w := newWorld(t)
	// Every other call fails politely first, so that all ways through the engine are taken.
	w.service.answer = func(_ context.Context, o *order.Order) order.Answer {
		if o.ID%2 == 0 && o.Attempts == 2 {
			return order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Sent: true}
		}
		return w.service.apply(o)
	}
	first := w.engine()
	w.spill(first, n)
	w.faults.set(dieAt(step, 5))
	stop := w.run(first)
	time.Sleep(3 * time.Second)
	stop()
	if w.store.count(order.Succeeded, order.NoPhase) == n {
		t.Fatal("it did not crash")
	}

	w.faults, w.cfg.Owner, w.reg = &faults{}, "w2", prometheus.NewRegistry()
	second := w.engine()
	ended := make(chan struct{})
	defer close(ended)
	go w.scan(second, ended)
	w.run(second)
	time.Sleep(5 * time.Minute)
	w.wantRows(n, order.Succeeded, order.NoPhase)
	w.wantEmpty()
	for id := int64(1); id <= n; id++ {
		if o := w.store.get(id); w.service.effect(o.Number) != 1 || o.Attempts > w.policy.ReplayAttempts {
			t.Errorf("%s has %d effects after %d attempts", o.Number, w.service.effect(o.Number), o.Attempts)
		}
	}
}

func TestClaimsOfADeadWorkerReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := w.engine()
		w.spill(e, 10)
		c, err := w.queue.Claim(t.Context(), "dead", 10, 1<<20, 30*time.Second)
		if err != nil || len(c.Items) != 10 {
			t.Fatal(err)
		}
		w.run(e)
		time.Sleep(29 * time.Second)
		w.wantRows(10, order.Processing, order.Replaying)
		time.Sleep(10 * time.Second)
		w.wantRows(10, order.Succeeded, order.NoPhase)
	})
}
