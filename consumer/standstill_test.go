package consumer

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// While a fleet's permits are not to be had there are none, and records that came meanwhile must not be forgotten.
func TestLaneGoesOnOnceItHasPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 5
		var limit atomic.Int64
		a := newAttempter(2, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		for range 2 { // none is left
			a.TryAcquire(order.LaneLive)
		}
		b := startLane(t, records, a, func(c *Config) { c.PermitLimit = func() int { return int(limit.Load()) } })
		time.Sleep(5 * time.Second)
		if s := b.lane.Level(); s.Constraint != ConstraintPermits {
			t.Errorf("constraint %s without a permit", s.Constraint)
		}
		limit.Store(2)
		for range 2 {
			a.Release(order.LaneLive)
		}
		time.Sleep(5 * time.Second)
		if calls, _ := a.made(); calls != records {
			t.Errorf("%d calls of %d", calls, records)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// The last order waits for an open breaker, which closes; a call that ends just then takes the order along before the
// dispatcher looks again. Intake must not stand still for that.
func TestLaneResumesThoughTheLastOrderThatWaitedIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, 0, order.Answer{})
		refused := false // by one call after the other
		a.answer = func(o *order.Order) order.Answer {
			switch {
			case o.Number == "T-0":
				time.Sleep(1010 * time.Millisecond)
				a.setOpen(false)
			case !refused:
				refused = true
				a.setOpen(true)
				return order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
			}
			return order.Answer{Outcome: order.OutcomeSucceeded}
		}
		b := startLane(t, 2, a, func(c *Config) { c.Policy.Degrade = order.Hold })
		time.Sleep(500 * time.Millisecond)
		if s := b.lane.Level(); s.Constraint != ConstraintBreaker {
			t.Errorf("constraint %s with an open breaker", s.Constraint)
		}
		time.Sleep(time.Second)
		if s := b.lane.Level(); len(s.Holds) != 0 {
			t.Errorf("intake holds for %v, and nothing is left that could end it", s.Holds)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
