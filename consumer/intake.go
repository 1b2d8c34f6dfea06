package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"spillway/order"
)

// admitLoop turns pending records into orders, a batch at a time. It ends with taking; a batch that is inside a
// statement then is finished under settling.
func (g *generation) admitLoop(taking, settling context.Context) {
	for {
		batch := g.takePending(taking)
		if batch == nil {
			return
		}
		g.admitBatch(taking, settling, batch)
	}
}

// takePending waits for records and for room among the admitted ones, and takes a batch. Nil means that taking ended.
func (g *generation) takePending(taking context.Context) []record {
	for taking.Err() == nil {
		g.mu.Lock()
		batch := g.cutBatch()
		if g.pending.len() > 0 && batch != nil {
			g.admit.set() // for the other admitter
		}
		g.mu.Unlock()
		if batch != nil {
			return batch
		}
		select {
		case <-g.admit:
		case <-taking.Done():
		}
	}
	return nil
}

// cutBatch takes what one statement may hold, with the lock held. With a downstream that is faster than the store it
// leaves the store to the settlers: an order that was called and not settled is one to look up after a crash.
func (g *generation) cutBatch() []record {
	room := min(g.gate.Ahead(time.Now())-g.ready.len()-g.admitting, batchRecords)
	if room <= 0 || g.pending.len() == 0 || g.settling.len() >= settleMost {
		return nil
	}
	batch := make([]record, 0, min(room, g.pending.len()))
	size := int64(0)
	for g.pending.len() > 0 && len(batch) < room && (size == 0 || size+g.pending.peek().size <= batchBytes) {
		r := g.pending.pop()
		size += r.size
		batch = append(batch, r)
	}
	g.admitting += len(batch)
	return batch
}

// admitBatch buries what can't be an order and admits the rest. When the store is away it holds intake and tries
// again until taking ends; then the records stay uncommitted.
func (g *generation) admitBatch(taking, settling context.Context, batch []record) {
	var (
		dead   []order.DeadRecord
		as     []order.Admission
		from   []record // of as
		closed []record
	)
	for _, r := range batch {
		number, why, detail := g.cfg.Number.Of(&r.message)
		if why == order.NoReason && r.size > maxRecord {
			why, detail = order.RecordTooLarge, fmt.Sprintf("the record takes %d bytes: the replay queue could not take it", r.size)
		}
		switch {
		case why == order.NoReason:
			as = append(as, order.Admission{Number: number, Message: r.message})
			from = append(from, r)
		case why == order.NullValue && g.cfg.Tombstones == SkipTombstones:
			g.m.tombstones.Inc()
			closed = append(closed, r)
		default:
			dead = append(dead, order.DeadRecord{
				Route: g.cfg.Route, Message: r.message, Reason: why, Detail: detail,
			})
			closed = append(closed, r)
		}
	}
	ok := len(dead) == 0 || g.withStore(taking, settling, func(ctx context.Context) error {
		return g.store.Bury(ctx, dead)
	})
	var admitted []order.Admitted
	leasedAt := time.Now()
	ok = ok && (len(as) == 0 || g.withStore(taking, settling, func(ctx context.Context) (err error) {
		leasedAt = time.Now()
		g.m.batch.WithLabelValues("admit").Observe(float64(len(as)))
		admitted, err = g.store.Admit(ctx, g.cfg.Route, g.cfg.Owner, g.cfg.Lease, as)
		return err
	}))
	if !ok {
		g.giveUp(batch)
		return
	}
	for _, d := range dead {
		g.m.buried.WithLabelValues(string(d.Reason)).Inc()
	}
	g.lineUp(from, admitted, closed, leasedAt)
}

// lineUp makes new orders ready and closes what needs no attempt.
func (g *generation) lineUp(from []record, admitted []order.Admitted, closed []record, leasedAt time.Time) {
	counts := [3]int{}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitting -= len(from) + len(closed)
	for i, a := range admitted {
		counts[a.Kind]++
		if a.Kind == order.New {
			w := &work{order: a.Order, ledger: from[i].ledger, size: from[i].size, leasedAt: leasedAt}
			g.held[w] = struct{}{}
			g.ready.push(w)
			g.cfg.Trace(StepAdmitted, a.Order.Number)
			continue
		}
		closed = append(closed, from[i])
	}
	now := time.Now()
	g.sum.closed += len(closed)
	for _, r := range closed {
		r.ledger.Close(r.message.Offset)
		g.gate.Started(now, 1, r.size)
		g.gate.Closed(now, r.size)
	}
	g.m.admitted.WithLabelValues("new").Add(float64(counts[order.New]))
	g.m.admitted.WithLabelValues("duplicate").Add(float64(counts[order.Duplicate]))
	g.m.admitted.WithLabelValues("clash").Add(float64(counts[order.Clash]))
	g.dispatch.set()
	g.idle.set()
	g.wake()
}

// giveUp leaves a batch uncommitted.
func (g *generation) giveUp(batch []record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitting -= len(batch)
	g.sum.dropped += len(batch)
	now := time.Now()
	for _, r := range batch {
		g.gate.Dropped(now, 1, r.size)
	}
	g.idle.set()
}

// withStore calls the store until it succeeds, with intake held meanwhile. It gives up, with false, when taking has
// ended and the call that was under way did not succeed, or when working ends.
func (g *generation) withStore(taking, working context.Context, call func(ctx context.Context) error) bool {
	for wait := retryFirst; ; wait = min(wait*2, retryMax) {
		err := call(working)
		if err == nil {
			g.hold(working, HoldStore, false, nil)
			return true
		}
		g.hold(working, HoldStore, true, err)
		select {
		case <-time.After(wait):
		case <-taking.Done():
			return false
		}
	}
}

// dispatchLoop gives ready orders a permit and starts their attempts. After taking has ended it goes on until calls
// are to stop; what is still ready then is cancelled.
func (g *generation) dispatchLoop(working, settling context.Context) {
	late := time.AfterFunc(time.Hour, g.permitLate)
	late.Stop() // acquire sets it
	defer late.Stop()
	for {
		w := g.takeReady(working, settling)
		if w == nil {
			return
		}
		if working.Err() != nil {
			g.settleLater(w, order.Answer{Outcome: order.OutcomeCancelled, Reason: g.whyStopped()})
			continue
		}
		inTime, ok := g.acquire(working, late)
		if !ok {
			g.putBack(w)
			continue
		}
		g.start(working, w, inTime)
	}
}

// takeReady waits for the next order. Nil means that nothing will come any more.
func (g *generation) takeReady(working, settling context.Context) *work {
	for settling.Err() == nil {
		if g.cfg.Policy.Degrade == order.Hold && working.Err() == nil && !g.breakerLets(working) {
			continue
		}
		g.mu.Lock()
		if g.ready.len() > 0 {
			w := g.ready.pop()
			g.mu.Unlock()
			return w
		}
		g.gate.Awaits(time.Now(), ConstraintNone)
		g.mu.Unlock()
		select {
		case <-g.dispatch:
		case <-settling.Done():
		}
	}
	return nil
}

// breakerLets holds intake while the breaker would refuse, and looks again a little later.
func (g *generation) breakerLets(ctx context.Context) bool {
	open := g.attempt.Open()
	g.hold(ctx, HoldBreaker, open, nil)
	if !open {
		return true
	}
	select {
	case <-time.After(watchHolds):
	case <-ctx.Done():
	}
	return false
}

// acquire takes a permit and says whether it came within permits.wait; if not, the gate has learnt it meanwhile.
func (g *generation) acquire(ctx context.Context, late *time.Timer) (inTime, ok bool) {
	if g.attempt.TryAcquire(order.LaneLive) {
		return true, true
	}
	g.mu.Lock()
	g.gate.Awaits(time.Now(), ConstraintPermits)
	g.mu.Unlock()
	late.Reset(g.cfg.PermitWait)
	err := g.attempt.Acquire(ctx, order.LaneLive)
	return late.Stop(), err == nil
}

func (g *generation) permitLate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Permit(time.Now(), true)
}

// putBack returns an order to the front of the line: it could not be tried.
func (g *generation) putBack(w *work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ready.unpop(w)
	g.dispatch.set()
}

// start begins an attempt with the permit just acquired.
func (g *generation) start(working context.Context, w *work, inTime bool) {
	g.mu.Lock()
	now := time.Now()
	if inTime {
		g.gate.Permit(now, false)
	}
	// Both clocks are asked: the monotonic one stands still while a machine is suspended, the database's does not.
	age := max(now.Sub(w.leasedAt), now.Round(0).Sub(w.leasedAt.Round(0)))
	lost := w.lost || age > g.cfg.Lease-g.cfg.CallBudget
	if !lost {
		g.flying++
		w.order.Due = w.leasedAt.Add(g.cfg.Lease)
	}
	g.gate.Started(now, 1, w.size)
	if g.ready.len() <= g.gate.Ahead(now)/2 {
		g.admit.set()
	}
	g.wake()
	g.mu.Unlock()
	if lost {
		g.attempt.Release(order.LaneLive)
		g.loseLease(working, w)
		return
	}
	go g.try(working, w)
}

// loseLease closes an order that is the scanner's by now: its lease is over, so it must not be sent.
func (g *generation) loseLease(ctx context.Context, w *work) {
	g.m.lost.Inc()
	g.cfg.Logger.WarnContext(ctx, "lease lost before the attempt: left to the scanner", slog.String("number", w.order.Number))
	g.close([]*work{w})
}

func (g *generation) whyStopped() order.Reason {
	if g.stopping.Load() {
		return order.Shutdown
	}
	return order.Revoked
}
