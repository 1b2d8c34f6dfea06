package consumer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"spillway/order"
)

// settleLater decides what the answer makes of the order and hands it to the settlers.
func (g *generation) settleLater(w *work, a order.Answer) {
	g.m.outcome(a)
	g.lineUpSettling(g.settlingOf(w, a))
}

// settlingOf counts nothing: the answer was counted before, or no attempt gave it.
func (g *generation) settlingOf(w *work, a order.Answer) settling {
	t := g.policy.Load().AfterAttempt(&w.order, a, time.Now(), rand.Float64()) //nolint:gosec // jitter
	return settling{work: w, settlement: w.order.Settle(t)}
}

func (g *generation) lineUpSettling(s settling) {
	g.mu.Lock()
	g.settling.push(s)
	n := g.settling.len()
	g.mu.Unlock()
	g.settle.set()
	if n >= gatherMost {
		g.gathered.set()
	}
}

// settleLoop writes outcomes down, a batch at a time, until ctx ends.
func (g *generation) settleLoop(ctx context.Context) {
	for ctx.Err() == nil {
		g.gather(ctx)
		if batch := g.take(ctx, &g.settling, g.settle); batch != nil {
			g.settleBatch(ctx, batch)
		}
	}
}

// gather waits until gatherFor after the settlers took their last batch, or until many outcomes are in line: a statement
// for each few would cost Postgres several times as much. Nobody waits for an outcome to be written but the next of its
// chain, so with an ordering nothing is gathered; and on a quiet topic nothing was taken of late.
func (g *generation) gather(ctx context.Context) {
	for g.cfg.Ordering == Unordered && ctx.Err() == nil {
		g.mu.Lock()
		now := time.Now()
		wait := g.tookAt.Add(gatherFor).Sub(now)
		n := g.settling.len()
		if n > 0 && (n >= gatherMost || wait <= 0) {
			g.tookAt, wait = now, 0 // the turn is the caller's
		}
		g.mu.Unlock()
		if n == 0 || wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-g.gathered:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// spillLoop puts what was settled as REPLAYING into the replay queue until ctx ends. It has a goroutine of its own
// so that an absent Redis keeps no final order from being written down.
func (g *generation) spillLoop(ctx context.Context) {
	for ctx.Err() == nil {
		batch := g.take(ctx, &g.spilling, g.spill)
		if batch == nil {
			continue
		}
		ss := make([]order.Spilled, len(batch))
		ws := make([]*work, len(batch))
		for i, s := range batch {
			ss[i], ws[i] = spilled(s), s.work
		}
		if g.push(ctx, ss) {
			g.close(ws)
		}
	}
}

// take waits for something in line and takes at most a batch of it; nil means look again.
func (g *generation) take(ctx context.Context, line *fifo[settling], more signal) []settling {
	g.mu.Lock()
	n := min(line.len(), batchRecords)
	batch := make([]settling, 0, n)
	for range n {
		batch = append(batch, line.pop())
	}
	left := line.len()
	if left > 0 {
		more.set() // for whoever else serves the line
	}
	if left < settleMost && left+n >= settleMost {
		g.admit.set() // there is room again, see cutBatch
	}
	g.mu.Unlock()
	if n > 0 {
		return batch
	}
	select {
	case <-more:
	case <-ctx.Done():
	}
	return nil
}

// settleBatch writes a batch of outcomes down. What can't be written before ctx ends stays
// open, and so uncommitted; its row's lease runs out and the scanner looks it up.
func (g *generation) settleBatch(ctx context.Context, batch []settling) {
	ss := make([]order.Settlement, len(batch))
	for i, s := range batch {
		ss[i] = s.settlement
	}
	var done []order.Settled
	ok := g.withStore(ctx, ctx, func(ctx context.Context) (err error) {
		g.m.batch.WithLabelValues("settle").Observe(float64(len(ss)))
		done, err = g.store.Settle(ctx, g.cfg.Owner, ss)
		return err
	})
	if !ok {
		return
	}
	g.wrote(batch)
	closed := make([]*work, 0, len(batch))
	var spill []settling
	for i, s := range batch {
		if s.withdrawn {
			g.withdrew(s, done[i])
			continue
		}
		g.cfg.Trace(StepSettled, s.order.Number)
		if done[i] == order.Applied && s.settlement.Phase == order.Replaying {
			spill = append(spill, s)
			continue
		}
		closed = append(closed, s.work)
		g.unapplied(ctx, s, done[i])
	}
	g.close(closed)
	if len(spill) == 0 {
		return
	}
	g.mu.Lock()
	for _, s := range spill {
		g.spilling.push(s)
	}
	g.mu.Unlock()
	g.spill.set()
}

// withdrew forgets an order that was withdrawn. Where its row had moved on it is the scanner's. Either way its record stays
// uncommitted.
func (g *generation) withdrew(s settling, done order.Settled) {
	w := s.work
	g.mu.Lock()
	defer g.mu.Unlock()
	if done == order.Applied {
		g.m.withdrawn.Inc()
		g.withdrawn = append(g.withdrawn, spilled(s))
	}
	if w.begun {
		g.gate.Unstarted(time.Now(), 1, w.size)
	}
	if w.aside {
		g.unaside(w.entry.Partition, w.size)
	}
	g.drop(w.size)
	delete(g.held, w)
	g.idle.set()
}

// unapplied counts a settlement that came too late.
func (g *generation) unapplied(ctx context.Context, s settling, done order.Settled) {
	switch done {
	case order.Applied:
	case order.Stale:
		g.m.lost.Inc()
	case order.Conflict:
		g.m.conflicts.Inc()
		g.cfg.Logger.ErrorContext(ctx, "a late answer contradicts a final state: see the order's history",
			slog.String("number", s.order.Number), slog.String("late", s.settlement.State.String()))
	}
}

// spilled is the order as its row stands after the settlement.
func spilled(s settling) order.Spilled {
	o, t := s.order, s.settlement.Transition
	o.State, o.Phase, o.Version = t.State, t.Phase, s.settlement.Version+1
	o.Attempts, o.AttemptsTotal, o.Lookups = t.Attempts, t.AttemptsTotal, t.Lookups
	o.Outcome, o.Reason, o.Detail = t.Outcome, t.Reason, t.Detail
	return order.Spilled{Order: o, NotBefore: t.NotBefore}
}

// push puts orders into the replay queue. With the queue full, the scanner brings them in later and intake holds until
// SetReplayFull ends that: one push that found room does not say that there is more.
// With Redis away intake holds and the offsets wait until the push went through.
func (g *generation) push(ctx context.Context, ss []order.Spilled) bool {
	for {
		err := g.replay.Push(ctx, ss)
		switch {
		case err == nil:
			g.hold(ctx, HoldReplay, false, nil)
			g.m.spilled.Add(float64(len(ss)))
			for i := range ss {
				g.cfg.Trace(StepPushed, ss[i].Order.Number)
			}
			return true
		case errors.Is(err, order.ErrQueueFull):
			g.hold(ctx, HoldReplay, false, nil)
			g.hold(ctx, HoldReplayFull, true, err)
			return true
		}
		g.hold(ctx, HoldReplay, true, err)
		select {
		case <-time.After(retryMax):
		case <-ctx.Done():
			return false
		}
	}
}

// SetReplayFull tells the lane whether the replay queue is at its bound; whoever watches its depth says so, again and again:
// nothing else ends the hold that a full queue began.
func (l *Lane) SetReplayFull(ctx context.Context, full bool) {
	if g := l.now.Load(); g != nil {
		g.hold(ctx, HoldReplayFull, full, nil)
	}
}

// wrote lets the next of each chain go: what went before it is written down.
func (g *generation) wrote(batch []settling) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written++
	if g.cfg.Ordering == Unordered {
		return
	}
	for _, s := range batch {
		g.yield(s.work)
	}
}

// yield lets the next of an order's chain go; it may be called again. The lock is held.
func (g *generation) yield(w *work) {
	if w.yielded {
		return
	}
	w.yielded = true
	if next := g.line.Done(&w.entry); next != nil {
		next.Value.aside = false
		g.unaside(next.Partition, next.Value.size)
		g.dispatch.set()
	}
	g.release(w.entry.Partition, w.entry.Key)
}

// close ends works: their ledger entries are settled and their memory is free.
func (g *generation) close(ws []*work) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for _, w := range ws {
		w.ledger.Close(w.order.Message.Offset)
		g.gate.Closed(now, w.size)
		g.yield(w)
		delete(g.held, w)
		if p := g.parts[w.order.Message.Partition]; p != nil {
			g.fill(p)
		}
		g.sum.closed++
	}
	g.idle.set()
	g.wake()
}

// renewLoop keeps the leases of what is held, a third of a lease at a time.
func (g *generation) renewLoop(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Lease / 6)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.renew(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (g *generation) renew(ctx context.Context) {
	g.mu.Lock()
	var old []*work
	for w := range g.held {
		if !w.lost && time.Since(w.leasedAt) > g.cfg.Lease/3 {
			old = append(old, w)
		}
	}
	g.mu.Unlock()
	for len(old) > 0 {
		n := min(len(old), batchRecords)
		part := old[:n]
		old = old[n:]
		leases := make([]order.Lease, n)
		for i, w := range part {
			leases[i] = order.Lease{ID: w.order.ID, Version: w.order.Version}
		}
		at := time.Now()
		kept, err := g.store.Renew(ctx, g.cfg.Owner, g.cfg.Lease, leases)
		if err != nil {
			return // the store is away; the next tick tries again, and nothing is sent on a lease that is over
		}
		g.mu.Lock()
		for i, w := range part {
			if kept[i] {
				w.leasedAt = at
			} else {
				w.lost = true
			}
		}
		g.mu.Unlock()
	}
}

// commitLoop commits what is settled, every Config.Commit. When the group has moved on it says so to end: what is sent from
// then on is sent beside the partition's next owner.
func (g *generation) commitLoop(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(g.cfg.Commit)
	defer tick.Stop()
	committed := map[int32]int64{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		moved := g.committable(committed)
		if len(moved) == 0 {
			continue
		}
		g.cfg.Trace(StepCommit, "")
		err := g.session.Commit(ctx, moved)
		if err != nil {
			g.m.commitErrors.Inc()
			g.cfg.Logger.WarnContext(ctx, "offsets not committed", slog.Any("error", err))
			if errors.Is(err, ErrFenced) {
				end(err)
				return
			}
			continue
		}
		maps.Copy(committed, moved)
	}
}

// committable is every partition's committable offset that differs from what was committed.
func (g *generation) committable(committed map[int32]int64) map[int32]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	moved := map[int32]int64{}
	for id, p := range g.parts {
		if o, ok := committed[id]; !ok || o != p.ledger.Committable() {
			moved[id] = p.ledger.Committable()
		}
	}
	return moved
}

// lastCommit commits everything settled, in what is left of the drain's budget but at least a second.
func (g *generation) lastCommit(ctx context.Context, left time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, max(left, time.Second))
	defer cancel()
	g.cfg.Trace(StepCommit, "")
	err := g.session.Commit(ctx, g.committable(nil))
	if err == nil {
		return
	}
	g.m.commitErrors.Inc()
	g.cfg.Logger.WarnContext(ctx, "last commit of the generation did not go through: the next owner reads from the one before",
		slog.Any("error", err))
	if !errors.Is(err, ErrFenced) {
		return
	}
	// The next owner may have read on while our rows still stood, and taken their records for duplicates. An order that it
	// takes back all the same has moved on, and the queue drops it.
	g.mu.Lock() // a writer may have been left behind
	withdrawn := slices.Clone(g.withdrawn)
	g.mu.Unlock()
	for ss := range slices.Chunk(withdrawn, batchRecords) {
		if err := g.replay.Push(ctx, ss); err != nil {
			g.cfg.Logger.WarnContext(ctx, "withdrawn orders are left to the scanner", slog.Any("error", err))
			return
		}
	}
}
