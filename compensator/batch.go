package compensator

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"spillway/order"
)

// retrySettle is the pause before findings that could not be written are written again.
const retrySettle = 500 * time.Millisecond

// batch is one claim on its way. One goroutine owns its fields, but for refused.
type batch struct {
	*Scanner
	claimed   time.Time // just before the claim: the lease ends no earlier than one lease after it
	replaying []order.Order
	unknown   []order.Order

	refused atomic.Bool   // the breaker is open: no use to try the others
	landed  chan struct{} // one slot: a lookup has ended
	failed  bool          // the store did not answer
	looked  int           // lookups that were made

	room  int  // lookups that the breaker lets begin before it must be asked again; dispatch owns both
	begun bool // one was begun
	away  bool // the replay queue took nothing
}

// result is what a lookup of one order showed.
type result struct {
	order   *order.Order
	finding order.Finding
	began   time.Time
	at      time.Time // when what is to be settled was decided
	next    order.Transition
}

func newBatch(s *Scanner, orders []order.Order, claimed time.Time, open bool) *batch {
	b := &batch{Scanner: s, claimed: claimed, landed: make(chan struct{}, 1)}
	b.refused.Store(open)
	for i := range orders {
		s.metrics.claimed.WithLabelValues(orders[i].Phase.String()).Inc()
		if orders[i].Phase == order.Replaying {
			b.replaying = append(b.replaying, orders[i])
		} else {
			b.unknown = append(b.unknown, orders[i])
		}
	}
	if len(b.unknown) == 0 {
		b.refused.Store(false) // nothing was to be looked up, so nothing was refused
	}
	return b
}

// rescue puts those orders into the replay queue again that it does not have, and puts all of them off by the route's
// patience. Whatever goes wrong here, they are due again.
func (b *batch) rescue(ctx context.Context) {
	if len(b.replaying) == 0 {
		return
	}
	ids := make([]int64, len(b.replaying))
	leases := make([]order.Lease, len(b.replaying))
	for i := range b.replaying {
		ids[i] = b.replaying[i].ID
		leases[i] = order.Lease{ID: ids[i], Version: b.replaying[i].Version}
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	has, err := b.queue.Has(bounded, ids)
	cancel()
	b.replays.note(ctx, err)
	if err == nil {
		now := time.Now()
		var forgotten []order.Spilled
		for i := range b.replaying {
			if !has[i] {
				forgotten = append(forgotten, order.Spilled{Order: b.replaying[i], NotBefore: now})
			}
		}
		if b.push(ctx, forgotten) {
			b.metrics.rescued.Add(float64(len(forgotten)))
		}
	} else {
		b.away = true
	}
	bounded, cancel = context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	_, err = b.store.Renew(bounded, b.cfg.Owner, b.policy.Load().ReplayPatience, leases)
	b.records.note(ctx, err)
	b.failed = b.failed || err != nil
}

// push hands orders to the replay queue and reports whether it took them. A full queue is healthy.
func (b *batch) push(ctx context.Context, spilled []order.Spilled) bool {
	if len(spilled) == 0 {
		return true
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	err := b.queue.Push(bounded, spilled)
	if errors.Is(err, order.ErrQueueFull) {
		b.replays.note(ctx, nil)
	} else {
		b.replays.note(ctx, err)
	}
	b.away = b.away || err != nil
	return err == nil
}

// look looks up what is unknown and settles the findings as they come. taking is Run's own context: once it has ended,
// no further lookup is begun. calls ends those under way, tail everything.
func (b *batch) look(taking, calls, tail context.Context) {
	if len(b.unknown) == 0 {
		return
	}
	results := make(chan result, len(b.unknown)) // room for all, so that no lookup waits
	var wg sync.WaitGroup
	half, cancel := context.WithDeadline(taking, b.claimed.Add(b.cfg.Lease/2))
	defer cancel()
	wg.Go(func() { b.dispatch(taking, half, calls, results, &wg) })
	for waiting := len(b.unknown); waiting > 0; {
		ready := []result{<-results}
		for more := true; more; {
			select {
			case r := <-results:
				ready = append(ready, r)
			default:
				more = false
			}
		}
		waiting -= len(ready)
		b.decide(ready)
		b.settle(tail, ready)
	}
	wg.Wait()
}

// dispatch begins the lookups, each once it has a permit, and gives back what there is no time for: half ends with taking
// or in the middle of the lease.
func (b *batch) dispatch(taking, half, calls context.Context, results chan<- result, wg *sync.WaitGroup) {
	for i := range b.unknown {
		r := result{order: &b.unknown[i], began: time.Now(), finding: order.Finding{Verdict: order.VerdictRefused}}
		if b.refused.Load() {
			r.finding.Outcome, r.finding.Reason = order.OutcomeRefused, order.CircuitOpen
			results <- r
			continue
		}
		why := b.turn(half)
		if why == order.NoReason {
			why = b.permit(half)
		}
		if why != order.NoReason {
			r.finding.Outcome, r.finding.Reason = order.OutcomeRefused, why
			if taking.Err() != nil {
				r.finding.Outcome, r.finding.Reason = order.OutcomeCancelled, order.Shutdown
			}
			results <- r
			continue
		}
		wg.Go(func() {
			r.began, r.finding = b.lookup(half, calls, r.order)
			results <- r
			select {
			case b.landed <- struct{}{}:
			default:
			}
		})
	}
}

// lookup makes a lookup with the permit that the caller has, and says when it began. Where a recovering breaker let
// somebody else through first, it waits for the next permit as long as half lasts.
func (b *batch) lookup(half, calls context.Context, o *order.Order) (began time.Time, f order.Finding) {
	for {
		began = time.Now()
		f = b.calls.Lookup(calls, order.LaneCompensate, o)
		switch {
		case f.Outcome == order.OutcomeCancelled && f.Verdict == order.VerdictNone:
			f.Verdict = order.VerdictRefused // cut short by our own end: not counted
			return began, f
		case f.Verdict != order.VerdictRefused || f.Reason != order.CircuitOpen:
			return began, f
		}
		b.calls.Unpace(order.LaneCompensate, "")
		if b.breaker(half) != order.NoReason || b.permit(half) != order.NoReason {
			return began, f
		}
	}
}

// roomLook bounds how late the next step of a breaker's ramp is seen while no lookup ends.
const roomLook = 100 * time.Millisecond

// breaker waits until a recovering breaker has room again, or says that it is open or ctx has ended.
func (b *batch) breaker(ctx context.Context) order.Reason {
	for ctx.Err() == nil {
		room, recovering := b.calls.LookupRoom()
		switch {
		case room > 0:
			return order.NoReason
		case !recovering:
			b.refused.Store(true)
			return order.CircuitOpen
		}
		b.await(ctx)
	}
	return order.CircuitOpen
}

// turn does the same for the one who begins lookups: he goes by the room he saw last, because what he has just begun the
// breaker may not have counted.
func (b *batch) turn(ctx context.Context) order.Reason {
	if b.room == 0 {
		if _, recovering := b.calls.LookupRoom(); recovering && b.begun {
			b.await(ctx)
		}
		if why := b.breaker(ctx); why != order.NoReason {
			return why
		}
		b.room, _ = b.calls.LookupRoom()
	}
	b.room, b.begun = max(b.room-1, 0), true
	return order.NoReason
}

// permit waits for the right to make a lookup and for a permit, or says what there was none of before ctx ended.
func (b *batch) permit(ctx context.Context) order.Reason {
	why := order.BulkheadFull
	for ctx.Err() == nil {
		if d := b.calls.Pace(time.Now(), order.LaneCompensate, ""); d > 0 {
			why = order.RateLimited
			wait(ctx, d)
			continue
		}
		if b.calls.Acquire(ctx, order.LaneCompensate) != nil {
			b.calls.Unpace(order.LaneCompensate, "")
			return order.BulkheadFull
		}
		return order.NoReason
	}
	return why
}

// await waits until a lookup has ended, or for a little.
func (b *batch) await(ctx context.Context) {
	t := time.NewTimer(roomLook)
	defer t.Stop()
	select {
	case <-b.landed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// decide asks the policy what follows. It is told when the lookup began: an answer "not found" from before the end of
// the grace period is not believed for having been read after it.
func (b *batch) decide(rs []result) {
	for i := range rs {
		r := &rs[i]
		r.at = time.Now()
		b.metrics.lookups.WithLabelValues(r.finding.Verdict.String()).Inc()
		r.next = b.policy.Load().AfterLookup(r.order, r.finding, r.began, rand.Float64()) //nolint:gosec // spreads load, hides nothing
		switch {
		case r.finding.Verdict != order.VerdictRefused:
			b.looked++
		case r.finding.Outcome == order.OutcomeCancelled:
			r.next.Due = r.at // another worker need not wait
		}
	}
}

// settle writes what follows, again and again until the lease is over, and hands what is to be sent again to the replay
// queue.
func (b *batch) settle(ctx context.Context, rs []result) {
	ss := make([]order.Settlement, len(rs))
	for i := range rs {
		ss[i] = rs[i].order.Settle(rs[i].next)
		// Nothing was asked: the order's history has nothing to tell.
		ss[i].Straight = ss[i].Straight || rs[i].finding.Verdict == order.VerdictRefused
	}
	for {
		how, err := b.write(ctx, ss)
		if err == nil {
			b.failed = false
			b.settled(ctx, rs, how)
			return
		}
		b.failed = true
		if over := b.claimed.Add(b.cfg.Lease); ctx.Err() != nil || time.Now().Add(retrySettle).After(over) {
			b.metrics.settled.WithLabelValues(becameLost).Add(float64(len(rs)))
			b.log.WarnContext(ctx, "compensator: findings could not be written and will be looked up again",
				slog.Int("orders", len(rs)), slog.String("number", rs[0].order.Number))
			return
		}
		wait(ctx, retrySettle)
	}
}

func (b *batch) write(ctx context.Context, ss []order.Settlement) ([]order.Settled, error) {
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	how, err := b.store.Settle(bounded, b.cfg.Owner, ss)
	b.records.note(ctx, err)
	return how, err
}

// settled tells people what they should know, and pushes what is to be sent again.
func (b *batch) settled(ctx context.Context, rs []result, how []order.Settled) {
	var again []order.Spilled
	for i := range rs {
		r := &rs[i]
		b.metrics.became(r.next, how[i])
		switch {
		case how[i] == order.Conflict:
			b.log.ErrorContext(ctx, "compensator: a late finding contradicts the order's final state",
				slog.Int64("order_id", r.order.ID), slog.String("number", r.order.Number), slog.String("verdict", r.finding.Verdict.String()))
		case r.next.State == order.Dead && how[i] == order.Applied:
			b.log.WarnContext(ctx, "compensator: an order became a dead letter",
				slog.Int64("order_id", r.order.ID), slog.String("number", r.order.Number), slog.String("reason", string(r.next.Reason)))
		case r.next.Phase == order.Replaying:
			// Also when stale, which may be our own settlement whose answer was lost: should the row have moved on, the
			// replay lane drops the entry.
			again = append(again, order.Spilled{Order: moved(r.order, r.next), NotBefore: r.next.NotBefore})
		}
	}
	b.push(ctx, again)
}

// moved is the order as its row stands once the transition was applied.
func moved(o *order.Order, t order.Transition) order.Order {
	out := *o
	out.State, out.Phase, out.Version = t.State, t.Phase, o.Version+1
	out.Attempts, out.AttemptsTotal, out.Lookups = t.Attempts, t.AttemptsTotal, t.Lookups
	out.Outcome, out.Reason, out.Detail, out.Due = t.Outcome, t.Reason, t.Detail, t.Due
	return out
}
