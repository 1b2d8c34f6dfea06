package consumer

import (
	"context"
	"fmt"
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
		if g.pending > 0 && batch != nil {
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

// cutBatch takes what one statement may hold, with the lock held: of each partition in turn. Records whose chain has
// enough admitted are parked on the way. With a downstream that is faster than the store it leaves the store to the
// settlers: an order that was called and not settled is one to look up after a crash.
func (g *generation) cutBatch() []record {
	room := min(g.gate.Ahead(time.Now())-g.line.Ahead()-g.admitting, batchRecords)
	if room <= 0 || g.settling.len() >= settleMost {
		return nil
	}
	var batch []record
	size := int64(0)
	for len(batch) < room {
		r := g.nextRecord(batchBytes-size, len(batch) == 0)
		if r == nil {
			break
		}
		if batch == nil {
			batch = make([]record, 0, min(room, g.pending+1))
		}
		size += r.size
		batch = append(batch, *r)
	}
	g.admitting += len(batch)
	return batch
}

// nextRecord takes the next record that may be admitted, if it has at most so many bytes or is to be had whatever its
// size; nil where there is none. The lock is held.
func (g *generation) nextRecord(bytes int64, whatever bool) *record {
	for g.turns.len() > 0 {
		p := *g.turns.peek()
		line := p.next()
		if !whatever && line.peek().size > bytes {
			return nil
		}
		entered := line == &p.released
		r := line.pop()
		g.pending--
		g.turns.pop()
		if p.waiting() {
			g.turns.push(p)
		}
		if entered || g.lots.enter(&r) {
			return &r
		}
		g.setAside(p.id, r.size)
	}
	return nil
}

// admitters is how many goroutines admit. With an ordering there is one, so that what is admitted lines up in the order
// it was read.
func (g *generation) admitters() int {
	if g.cfg.Ordering != Unordered {
		return 1
	}
	return admitters
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
			r.tenant = g.cfg.Tenant.Of(&r.message)
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

// lineUp puts new orders in line and closes what needs no attempt.
func (g *generation) lineUp(from []record, admitted []order.Admitted, closed []record, leasedAt time.Time) {
	counts := [3]int{}
	var late []*work
	defer func() { // with the lock released
		for _, w := range late {
			g.unsent(w)
		}
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitting -= len(from) + len(closed)
	for i, a := range admitted {
		counts[a.Kind]++
		if a.Kind == order.New {
			if w := g.enqueue(&from[i], a.Order, leasedAt); g.closed {
				late = append(late, w)
			}
			g.cfg.Trace(StepAdmitted, a.Order.Number)
			continue
		}
		closed = append(closed, from[i])
	}
	now := time.Now()
	g.gate.Admitted(now.Sub(leasedAt))
	g.sum.closed += len(closed)
	for i := range closed {
		r := &closed[i]
		r.ledger.Close(r.message.Offset)
		g.gate.Started(now, 1, r.size)
		g.gate.Closed(now, r.size)
		g.release(r.message.Partition, r.message.Key)
		if p := g.parts[r.message.Partition]; p != nil {
			g.fill(p)
		}
	}
	g.m.admitted.WithLabelValues("new").Add(float64(counts[order.New]))
	g.m.admitted.WithLabelValues("duplicate").Add(float64(counts[order.Duplicate]))
	g.m.admitted.WithLabelValues("clash").Add(float64(counts[order.Clash]))
	g.dispatch.set()
	g.idle.set()
	g.wake()
}

// enqueue puts a new order in line, unless that is closed. The lock is held.
func (g *generation) enqueue(r *record, o order.Order, leasedAt time.Time) *work {
	w := &work{order: o, ledger: r.ledger, size: r.size, leasedAt: leasedAt}
	w.entry = Entry[*work]{
		Value: w, Partition: r.message.Partition, Offset: r.message.Offset, Key: r.message.Key, Tenant: r.tenant,
		Size: r.size,
	}
	g.held[w] = struct{}{}
	if !g.closed && !g.line.Push(&w.entry) {
		w.aside = true
		g.setAside(r.message.Partition, r.size)
	}
	return w
}

// release makes room in a record's chain, and lets in one that was parked behind it, in its partition's turn. The lock is held.
func (g *generation) release(partition int32, key []byte) {
	r, ok := g.lots.leave(partition, key)
	if !ok {
		return
	}
	g.unaside(partition, r.size)
	p := g.parts[partition]
	if !p.waiting() {
		g.turns.push(p)
	}
	p.released.push(r)
	g.pending++
	g.admit.set()
}

// giveUp leaves a batch uncommitted.
func (g *generation) giveUp(batch []record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admitting -= len(batch)
	g.sum.dropped += len(batch)
	now := time.Now()
	for i := range batch {
		g.gate.Dropped(now, 1, batch[i].size)
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
