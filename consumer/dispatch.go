package consumer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"spillway/order"
)

// want is the dispatcher's wait for a permit.
type want struct {
	on    bool
	since time.Time // the wait's begin, or the last time an order began meanwhile
	late  *time.Timer
	fired bool // the timer is to be set again
}

// dispatchLoop gives orders a permit and starts a goroutine for each, which goes on with the next order as long as it may
// keep its permit: see carry. So the dispatcher is needed where permits are idle, and stands in line for the lane where
// they are not. It ends with taking.
func (g *generation) dispatchLoop(taking, working context.Context) {
	late := time.AfterFunc(time.Hour, g.permitLate)
	late.Stop() // acquire sets it
	defer late.Stop()
	g.mu.Lock()
	g.want.late = late
	g.mu.Unlock()
	for g.awaitReady(taking) {
		if g.cfg.Policy.Degrade == order.Hold && !g.breakerLets(taking) {
			continue
		}
		if !g.acquire(taking) {
			continue
		}
		if w := g.pick(working); w != nil {
			go g.carry(working, w)
			continue
		}
		g.attempt.Release(order.LaneLive)
	}
}

// awaitReady waits until an order may run, or returns at once while intake holds for the breaker: the orders that waited for
// it may be gone, and only the dispatcher ends that. False means that nothing will run any more.
func (g *generation) awaitReady(ctx context.Context) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		now := time.Now()
		e, until := g.line.Peek(now)
		switch {
		case e != nil:
		case g.line.Ready() > 0:
			g.gate.Awaits(now, ConstraintRate)
			g.gate.Rate(now, g.line.Ahead() > 0 && until.Sub(now) > g.permitWait())
		default:
			g.gate.Awaits(now, ConstraintNone)
		}
		held := g.gate.Holding(HoldBreaker)
		g.mu.Unlock()
		if e != nil || held {
			return true
		}
		g.pause(ctx, until)
	}
	return false
}

// pause waits for a signal of the line, or until a time that is not zero.
func (g *generation) pause(ctx context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-g.dispatch:
	case <-timer:
	case <-ctx.Done():
	}
}

// breakerLets holds intake while the breaker is open, and looks again a little later. While it recovers, orders wait for
// it without that: it lets some through all the time.
func (g *generation) breakerLets(ctx context.Context) bool {
	n, recovering := g.attempt.Room()
	g.mu.Lock()
	g.barred = n == 0
	g.mu.Unlock()
	g.hold(ctx, HoldBreaker, n == 0 && !recovering, nil)
	if n > 0 {
		return true
	}
	select {
	case <-time.After(watchHolds):
	case <-ctx.Done():
	}
	return false
}

// acquire takes a permit. When no order has begun for permits.wait meanwhile, the gate learns it.
func (g *generation) acquire(ctx context.Context) bool {
	if g.attempt.TryAcquire(order.LaneLive) {
		return true
	}
	g.mu.Lock()
	g.want.on, g.want.since, g.want.fired = true, time.Now(), false
	g.want.late.Reset(g.permitWait())
	g.gate.Awaits(g.want.since, ConstraintPermits)
	g.mu.Unlock()
	err := g.attempt.Acquire(ctx, order.LaneLive)
	g.mu.Lock()
	g.want.on = false
	g.want.late.Stop()
	g.mu.Unlock()
	return err == nil
}

func (g *generation) permitLate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.want.on {
		return
	}
	if left := g.permitWait() - time.Since(g.want.since); left > 0 {
		g.want.late.Reset(left)
		return
	}
	g.want.fired = true
	g.gate.Permit(time.Now(), true)
}

// rewait has the wait for a permit that is under way end by the length it has now.
func (g *generation) rewait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.want.on {
		g.want.late.Reset(max(g.permitWait()-time.Since(g.want.since), 0))
	}
}

// pick gives out the order whose turn it is, for a permit that the caller holds; nil where none may run.
func (g *generation) pick(working context.Context) *work {
	var lost []*work
	defer func() { // with the lock released
		for _, w := range lost {
			g.loseLease(working, w)
		}
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.closed {
		now := time.Now()
		e, _ := g.line.Peek(now)
		if e == nil {
			return nil
		}
		w := e.Value
		expired := g.expired(now, w)
		if !expired {
			if wait, ofTenant := g.attempt.PaceLive(now, e.Tenant); ofTenant {
				g.line.Rest(now.Add(wait))
				continue
			} else if wait > 0 {
				g.line.Pause(now.Add(wait))
				return nil
			}
		}
		g.line.Take()
		g.begin(now, w)
		if expired {
			lost = append(lost, w)
			continue
		}
		g.flying++
		w.since = now
		w.order.Due = w.leasedAt.Add(g.cfg.Lease)
		return w
	}
	return nil
}

// expired reports whether an order's lease may be over before a call would be. The lock is held.
func (g *generation) expired(now time.Time, w *work) bool {
	// Both clocks are asked: the monotonic one stands still while a machine is suspended, the database's does not.
	age := max(now.Sub(w.leasedAt), now.Round(0).Sub(w.leasedAt.Round(0)))
	return w.lost || age > g.cfg.Lease-g.cfg.CallBudget
}

// begin tells the gate that an order has its permit. The lock is held.
func (g *generation) begin(now time.Time, w *work) {
	if g.want.since.IsZero() || now.Sub(g.want.since) <= g.permitWait() {
		g.gate.Permit(now, false)
	}
	g.want.since = time.Time{}
	if !g.want.on {
		g.gate.Awaits(now, ConstraintNone)
	} else {
		g.want.since = now
		if g.want.fired {
			g.want.fired = false
			g.want.late.Reset(g.permitWait())
		}
	}
	w.begun = true
	g.begun++
	g.gate.Started(now, 1, w.size)
	if g.line.Ahead() <= g.gate.Ahead(now)/2 {
		g.admit.set()
	}
	g.wake()
}

// carry makes attempts with one permit, which the caller has acquired: of the order, and then of whichever is next, as
// long as the permit may be kept. From the end of one call to the begin of the next nobody has to be woken.
func (g *generation) carry(working context.Context, w *work) {
	for w != nil {
		a := g.attempt.Submit(working, order.LaneLive, &w.order)
		if w.first == nil && !a.Untried() {
			g.retries.earn()
		}
		g.mu.Lock()
		g.flying--
		w.since = time.Time{}
		late := g.over
		if w.abandoned && !late { // it came back: the drain waits until it is written down
			w.abandoned = false
			g.abandoned--
		}
		g.mu.Unlock()
		g.cfg.Trace(StepSent, w.order.Number)
		if late {
			g.attempt.Release(order.LaneLive)
			g.settleLate(working, w, a)
			return
		}
		g.answered(w, a)
		w = g.next(working)
	}
}

// answered says what becomes of an order whose attempt is over.
func (g *generation) answered(w *work, a order.Answer) {
	// Out of permits means hold, whatever the degrade rule: the lease of a fleet's permits ended before the call began.
	full := a.Untried() && a.Reason == order.BulkheadFull
	switch {
	case full, a.Outcome == order.OutcomeRefused && g.cfg.Policy.Degrade == order.Hold:
		if g.putBack(w) {
			return
		}
		g.m.outcome(a)
		g.unsent(w)
	case a.Outcome == order.OutcomeNotSent && g.retry(w, &a):
		g.m.outcome(a)
	case a.Outcome == order.OutcomeCancelled && !a.Sent && g.isClosed():
		g.m.outcome(a)
		g.unsent(w)
	default:
		g.settleLater(w, a)
	}
}

func (g *generation) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// putBack returns an order to its place in line: it could not be tried. False means that the line is closed.
func (g *generation) putBack(w *work) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.returnLocked(w, time.Time{})
}

// retry returns an order to the line of which nothing left this machine, once, if the budget allows: the second attempt
// goes through rate, permit and breaker as the first did. It is the only place that tries anything again at once.
func (g *generation) retry(w *work, a *order.Answer) bool {
	if w.first != nil || g.cfg.RetryBudget <= 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if !g.retries.spend() {
		g.m.retries.WithLabelValues("over_budget").Inc()
		return false
	}
	if !g.policy.Load().Retry(&w.order) {
		return false
	}
	g.m.retries.WithLabelValues("made").Inc()
	w.first = a
	jitter := time.Duration(rand.Float64() * float64(g.cfg.RetryDelay) / 5) //nolint:gosec // jitter
	return g.returnLocked(w, time.Now().Add(g.cfg.RetryDelay+jitter))
}

// returnLocked puts an order back in line, not to run before a time. False means that the line is closed. The lock is held.
func (g *generation) returnLocked(w *work, notBefore time.Time) bool {
	if g.closed {
		return false
	}
	w.begun = false
	g.gate.Unstarted(time.Now(), 1, w.size)
	g.line.Return(&w.entry, notBefore)
	g.dispatch.set()
	return true
}

func (g *generation) breakerHasRoom() bool {
	n, _ := g.attempt.Room()
	return n > 0
}

// next is the order to go on with under a permit that is held; with nil the permit was given back.
func (g *generation) next(working context.Context) *work {
	if g.isClosed() || (g.cfg.Policy.Degrade == order.Hold && !g.breakerHasRoom()) {
		g.attempt.Release(order.LaneLive)
		g.dispatch.set()
		return nil
	}
	if !g.attempt.Keep(order.LaneLive) {
		return nil
	}
	w := g.pick(working)
	if w == nil {
		g.attempt.Release(order.LaneLive)
	}
	return w
}

// loseLease closes an order that is the scanner's by now: its lease is over, so it must not be sent.
func (g *generation) loseLease(ctx context.Context, w *work) {
	g.m.lost.Inc()
	g.cfg.Logger.WarnContext(ctx, "lease lost before the attempt: left to the scanner", slog.String("number", w.order.Number))
	g.close([]*work{w})
}

func (g *generation) whyStopped() order.Reason {
	select {
	case <-g.stopped:
		return order.Shutdown
	default:
		return order.Revoked
	}
}
