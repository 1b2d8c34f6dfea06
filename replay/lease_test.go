package replay_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/attempt"
	"spillway/order"
	"spillway/replay"
)

// paced is a route with a rate, which counts the rights that are out.
type paced struct {
	unlimited
	pace   func(now time.Time) time.Duration
	rights atomic.Int64
}

func (p *paced) Pace(now time.Time, _ order.Lane, _ string) time.Duration {
	wait := min(p.pace(now), time.Second)
	if wait == 0 {
		p.rights.Add(1)
	}
	return wait
}

func (p *paced) Unpace(order.Lane, string) { p.rights.Add(-1) }

// wantLeased fails where the lease of an order that was begun has run out.
func (w *world) wantLeased() {
	w.t.Helper()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	for id, r := range w.store.rows {
		if r.order.Phase == order.InFlight && time.Now().After(r.until) {
			w.t.Fatalf("the lease of order %d ran out %v ago, after %v", id, time.Since(r.until), time.Since(w.start))
		}
	}
}

// TestAnOrderThatWaitsLongerThanItsLeaseIsSent has a rate so low that each order waits in line for two leases.
func TestAnOrderThatWaitsLongerThanItsLeaseIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecovery(t)
		rate := &paced{pace: everyNth(time.Minute)}
		r.calls = attempt.New(attempt.Config{Submit: 300 * time.Millisecond, Lookup: 300 * time.Millisecond}, rate,
			r.pool, r.patient, r.submit, r.submit, nil)
		e, err := newEngine(r.world, r.calls)
		if err != nil {
			t.Fatal(err)
		}
		r.spill(e, 5)
		r.run(e)
		for range 55 {
			time.Sleep(5 * time.Second)
			r.wantLeased()
		}
		r.wantRows(5, order.Succeeded, order.NoPhase)
		if n, calls := rate.rights.Load(), r.patient.calls.Load(); calls != 5 || n != calls {
			t.Errorf("%d rights for %d calls, want 5 of each", n, calls)
		}
	})
}

// TestARightThatNoCallWasMadeWithIsGivenBack has calls that end before they begin: of a fleet's permits that are over.
func TestARightThatNoCallWasMadeWithIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := true
		w.service.answer = func(_ context.Context, o *order.Order) order.Answer {
			if first {
				first = false
				return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.BulkheadFull}
			}
			return w.service.apply(o)
		}
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(10 * time.Second)
		w.wantRows(1, order.Succeeded, order.NoPhase)
		if n := w.service.rights.Load(); n != 1 {
			t.Errorf("%d rights are out for one call", n)
		}
	})
}

// hanging is a queue whose renewals are never answered.
type hanging struct{ replay.Queue }

func (hanging) Renew(ctx context.Context, _ replay.Claim, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestRowsKeepTheirLeasesWhileRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.Lease = 6 * time.Second
		w.service.delay = 30 * time.Second
		e, err := replay.New(w.cfg, w.policy, hanging{w.queue}, w.store, w.service, discard(), w.reg)
		if err != nil {
			t.Fatal(err)
		}
		w.spill(e, 1)
		w.run(e)
		for range 29 {
			time.Sleep(time.Second)
			w.wantLeased()
			if err := e.Healthy(); err != nil && strings.Contains(err.Error(), "order store") {
				t.Fatalf("healthy says %v after %v", err, time.Since(w.start))
			}
		}
		time.Sleep(5 * time.Second)
		w.wantRows(1, order.Succeeded, order.NoPhase)
	})
}

// TestAWaitIsKeptThoughTheQueueDidNotAnswerWhenItWasTold loses the first end of a claim: its entry must not come back with the
// claim's lease, which is over sooner.
func TestAWaitIsKeptThoughTheQueueDidNotAnswerWhenItWasTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.answer = func(_ context.Context, o *order.Order) order.Answer {
			if o.AttemptsTotal == 2 {
				return order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Sent: true, RetryAfter: time.Minute}
			}
			return w.service.apply(o)
		}
		lost := 0
		w.faults.set(func(step string) error {
			if step == "finish before" && lost < 3 {
				lost++
				return errAway
			}
			return nil
		})
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(2 * time.Minute)
		w.wantRows(1, order.Succeeded, order.NoPhase)
		w.wantEmpty()
		if calls := w.service.seen(); len(calls) != 2 || calls[1].at.Sub(calls[0].at) < time.Minute {
			t.Errorf("calls %v, want two, a minute apart", calls)
		}
	})
}
