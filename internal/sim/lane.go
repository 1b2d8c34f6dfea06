package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"spillway/consumer"
	"spillway/order"
)

// line is a record on its way; work once it is admitted.
type line struct {
	message order.Message
	ledger  *consumer.Ledger
	size    int64

	entry    consumer.Entry[*line]
	order    order.Order
	leasedAt time.Time
	lost     bool
	begun    bool
	aside    bool // it waits for its chain
	yielded  bool // the next of its chain may go
	next     order.Settlement
	unsent   bool // withdrawn: its offset stays uncommitted
	flight   *flight
}

// generation is one tenure of a worker's partitions. It makes the same moves as the real lane, one event at a time.
type generation struct {
	*worker
	id      string // owner of the rows it leases
	number  int
	gate    *consumer.Gate
	parts   []int32
	ledgers map[int32]*consumer.Ledger

	pending, settling, spilling []*line
	ready                       *consumer.Line[*line]
	held                        []*line
	withdrawn                   []queued
	admitting                   int
	admittingBytes              int64
	fetching                    []bool        // by broker
	hungry                      map[int32]int // 1: it got nothing although there was more
	admits, settles, pushes     int           // calls under way

	waiting   bool // for a permit
	late      int  // numbers the waits
	isLate    bool
	looking   bool // at the breaker, a little later
	committed map[int32]int64
	commits   int // calls under way

	taking, working, writing, over bool
	closing                        bool // the last commit is under way
	cause                          order.Reason
}

func bytesOf(ls []*line) (n int64) {
	for _, l := range ls {
		n += l.size
	}
	return n
}

const admitters, settlers = 2, 2

func newGeneration(w *worker, number int, ps []consumer.Position) *generation {
	g := &generation{
		worker: w, id: w.owner(), number: number, gate: consumer.NewGate(w.limits, consumer.Learned{}), ledgers: map[int32]*consumer.Ledger{},
		ready:    consumer.NewLine[*line](w.ordering, 1),
		fetching: make([]bool, w.brokers), committed: map[int32]int64{}, hungry: map[int32]int{}, taking: true, working: true, writing: true,
	}
	g.gate.Assign(w.now, ps)
	for _, p := range ps {
		g.parts = append(g.parts, p.Partition)
		g.ledgers[p.Partition] = consumer.NewLedger(p.Offset)
	}
	return g
}

// pump does everything that can be done now.
func (g *generation) pump() {
	// The brokers race for what the gate grants; a fixed order would let the first one win for ever.
	first := g.rng.IntN(len(g.fetching))
	for i := range g.fetching {
		g.fetch((first + i) % len(g.fetching))
	}
	for g.lives() && g.admits < g.admitters() && g.taking && g.admitNext() {
	}
	g.dispatch()
	for g.lives() && g.settles < settlers && g.writing && len(g.settling) > 0 {
		g.settleNext()
	}
	if g.lives() && g.pushes == 0 && g.writing && len(g.spilling) > 0 {
		g.pushNext()
	}
	if g.lives() && !g.taking && g.admits == 0 && len(g.held) == 0 && !slices.Contains(g.fetching, true) {
		g.close()
	}
}

// admitters is how many batches may be admitted at once: with an ordering, what is admitted must line up as it was read.
func (g *generation) admitters() int {
	if g.ordering != consumer.Unordered && g.options.Bug != AdmitTogether {
		return 1
	}
	return admitters
}

// lives reports whether the worker still is in this generation: each request may have been its last.
func (g *generation) lives() bool { return !g.over && g.generation == g }

// fetch asks one broker for what the gate grants.
func (g *generation) fetch(broker int) {
	if !g.lives() || !g.taking || g.fetching[broker] {
		return
	}
	var candidates []int32
	for _, p := range g.parts {
		if int(p)%len(g.fetching) == broker {
			candidates = append(candidates, p)
		}
	}
	grants := g.gate.Plan(g.now, candidates, nil)
	if len(grants) == 0 {
		return
	}
	if g.gate.Held() {
		g.violate("I7", "%s: the gate grants %v while it holds", g.name, grants)
	}
	// The loop puts those first that got nothing although there was more.
	slices.SortStableFunc(grants, func(a, b consumer.Grant) int { return cmp.Compare(g.hungry[b.Partition], g.hungry[a.Partition]) })
	g.fetching[broker] = true
	g.poll(broker, grants, g.now.Add(longPoll))
}

// poll brings what there is, or nothing once the long poll is over.
func (g *generation) poll(broker int, grants []consumer.Grant, until time.Time) {
	g.later(g.latency(), func() {
		some := slices.ContainsFunc(grants, func(gr consumer.Grant) bool { return gr.Offset < g.topic.ends[gr.Partition] })
		if !some && g.now.Before(until) && g.taking {
			g.later(25*time.Millisecond, func() { g.poll(broker, grants, until) })
			return
		}
		g.fetching[broker] = false
		first := true
		for _, gr := range grants {
			switch start := g.topic.starts[gr.Partition]; {
			case gr.Offset < start:
				g.count("gap")
				g.note("%s: %d/%d to %d are gone", g.name, gr.Partition, gr.Offset, start)
				g.ledgers[gr.Partition].Advance(start)
				g.gate.Moved(gr.Partition, start)
				g.gate.Released(g.now, gr)
			case !g.calmed && g.chance(0.03):
				g.count("fetch failed")
				g.gate.Released(g.now, gr)
			default:
				b := g.topic.read(gr, first)
				first = first && len(b.Messages) == 0
				if g.hungry[gr.Partition] = 0; b.Next == gr.Offset && b.Next < b.HighWater {
					g.count("hungry")
					g.hungry[gr.Partition] = 1
				}
				g.deliver(gr, b)
			}
		}
		if !g.taking {
			g.drop()
		}
	})
}

func (g *generation) deliver(gr consumer.Grant, b consumer.Batch) {
	ledger := g.ledgers[b.Partition]
	records, size := 0, int64(0)
	for _, m := range b.Messages {
		if !ledger.Open(m.Offset) {
			continue
		}
		l := &line{message: m, ledger: ledger, size: int64(m.Size())}
		g.pending = append(g.pending, l)
		records++
		size += l.size
	}
	ledger.Advance(b.Next)
	g.gate.Delivered(g.now, gr, records, size, b.Next, b.HighWater)
}

// drop forgets what was fetched and not admitted.
func (g *generation) drop() {
	for _, l := range g.pending {
		g.gate.Dropped(g.now, 1, l.size)
	}
	g.pending = nil
}

// admitNext begins to admit a batch, if there is one and room for it.
func (g *generation) admitNext() bool {
	n := min(g.gate.Ahead(g.now)-g.ready.Ready()-g.admitting, g.batch, len(g.pending))
	if n <= 0 {
		return false
	}
	batch := slices.Clone(g.pending[:n])
	g.pending = slices.Delete(g.pending, 0, n)
	g.admitting += n
	g.admittingBytes += bytesOf(batch)
	g.admits++
	var dead []order.DeadRecord
	var buried, from []*line
	var as []order.Admission
	for _, l := range batch {
		number, why, detail := numberRule().Of(&l.message)
		if why != order.NoReason {
			dead = append(dead, order.DeadRecord{Route: route, Message: l.message, Reason: why, Detail: detail})
			buried = append(buried, l)
			continue
		}
		as = append(as, order.Admission{Number: number, Message: l.message})
		from = append(from, l)
		if g.options.Bug == CommitBeforeSettle {
			l.ledger.Close(l.message.Offset)
		}
	}
	giveUp := func() {
		g.admitting -= len(batch)
		g.admittingBytes -= bytesOf(batch)
		g.admits--
		for _, l := range batch {
			g.gate.Dropped(g.now, 1, l.size)
		}
	}
	second := func() {
		var admitted []order.Admitted
		var leasedAt time.Time
		g.withStore(admit, len(as) == 0, func() { leasedAt = g.now }, func() (err error) {
			admitted, err = g.store.Admit(context.Background(), route, g.id, g.lease, as)
			return err
		}, giveUp, func() { g.lineUp(from, admitted, buried, leasedAt) })
	}
	g.withStore(bury, len(dead) == 0, nil, func() error { return g.store.Bury(context.Background(), dead) }, giveUp, second)
	return true
}

// withStore calls the store until it succeeds, with intake held meanwhile; it gives up once nothing is to be taken any
// more. before, where not nil, is told of each try as it begins.
func (g *generation) withStore(e effect, none bool, before func(), do func() error, giveUp, then func()) {
	if none {
		then()
		return
	}
	wait := retryFirst
	var try func()
	try = func() {
		if before != nil {
			before()
		}
		g.call(e, do, func(err error) {
			if g.over {
				return
			}
			g.gate.Hold(g.now, consumer.HoldStore, err != nil)
			if err == nil {
				then()
				return
			}
			g.later(wait, func() {
				if g.over {
					return
				}
				if !g.taking {
					giveUp()
					return
				}
				try()
			})
			wait = min(2*wait, retryMax)
		})
	}
	try()
}

func (g *generation) lineUp(from []*line, admitted []order.Admitted, closed []*line, leasedAt time.Time) {
	g.admitting -= len(from) + len(closed)
	g.admittingBytes -= bytesOf(from) + bytesOf(closed)
	g.admits--
	g.gate.Admitted(g.now.Sub(leasedAt))
	for i, a := range admitted {
		if a.Kind == order.New {
			l := from[i]
			l.order, l.leasedAt = a.Order, leasedAt
			g.held = append(g.held, l)
			g.enqueue(l)
			continue
		}
		closed = append(closed, from[i])
	}
	for _, l := range closed {
		l.ledger.Close(l.message.Offset)
		g.gate.Started(g.now, 1, l.size)
		g.gate.Closed(g.now, l.size)
	}
}

// enqueue puts a new order in line; once nothing is taken any more it is withdrawn.
func (g *generation) enqueue(l *line) {
	if !g.taking {
		g.withdraw(l)
		return
	}
	l.entry = consumer.Entry[*line]{Value: l, Partition: l.message.Partition, Offset: l.message.Offset, Key: l.message.Key}
	if !g.ready.Push(&l.entry) {
		l.aside = true
		g.gate.Aside(g.now, 1, l.size)
	}
}

// yield lets the next of an order's chain go.
func (g *generation) yield(l *line) {
	l.yielded = true
	if e := g.ready.Done(&l.entry); e != nil {
		e.Value.aside = false
		g.gate.Unstarted(g.now, 1, e.Value.size)
	}
}

// withdraw lets go of an order that will not be sent.
func (g *generation) withdraw(l *line) {
	l.next, l.unsent = g.policy.Withdraw(&l.order, g.cause, g.now), true
	g.settling = append(g.settling, l)
}

// dispatch gives ready orders a permit and sends them.
func (g *generation) dispatch() {
	for g.lives() && g.taking {
		e, _ := g.ready.Peek(g.now)
		if e == nil || g.policy.Degrade == order.Hold && !g.breakerLets() || !g.permit() {
			return
		}
		g.ready.Take()
		g.send(e.Value)
	}
}

func (g *generation) breakerLets() bool {
	open := !g.submits.ReadyAt(g.now)
	g.gate.Hold(g.now, consumer.HoldBreaker, open)
	if open {
		g.count("hold")
		if !g.looking {
			g.looking = true
			g.later(50*time.Millisecond, func() { g.looking = false })
		}
	}
	return !open
}

// permit takes a permit, and tells the gate when none comes in time.
func (g *generation) permit() bool {
	if g.acquire() {
		g.gate.Awaits(g.now, consumer.ConstraintNone)
		if !g.waiting || !g.isLate {
			g.gate.Permit(g.now, false)
		}
		g.waiting = false
		return true
	}
	if !g.waiting {
		g.gate.Awaits(g.now, consumer.ConstraintPermits)
		g.waiting, g.isLate = true, false
		g.late++
		late := g.late
		g.later(g.permitWait, func() {
			if g.waiting && g.late == late && !g.over {
				g.isLate = true
				g.count("permit late")
				g.gate.Permit(g.now, true)
			}
		})
	}
	return false
}

// send begins an attempt with the permit just taken.
func (g *generation) send(l *line) {
	l.begun = true
	g.gate.Started(g.now, 1, l.size)
	if l.lost || g.now.Sub(l.leasedAt) > g.lease-g.budget {
		g.free++
		g.count("lease lost before the attempt")
		g.note("%s: leaves %s to the scanner", g.name, l.order.Number)
		g.closed(l)
		return
	}
	g.checker.turn(g, l)
	l.flight = g.submit(l.order, func(a order.Answer) {
		if g.over {
			return
		}
		switch held := a.Outcome == order.OutcomeRefused && g.policy.Degrade == order.Hold; {
		case held && g.taking:
			l.begun = false
			g.gate.Unstarted(g.now, 1, l.size)
			g.ready.Return(&l.entry, time.Time{})
		case held, a.Outcome == order.OutcomeCancelled && !a.Sent:
			g.withdraw(l)
		default:
			g.settleLater(l, a)
		}
	})
}

func (g *generation) settleLater(l *line, a order.Answer) {
	l.next = l.order.Settle(g.afterAttempt(&l.order, a))
	g.settling = append(g.settling, l)
}

// settleNext writes a batch of outcomes down.
func (g *generation) settleNext() {
	n := min(len(g.settling), g.batch)
	batch := slices.Clone(g.settling[:n])
	g.settling = slices.Delete(g.settling, 0, n)
	g.settles++
	ss := make([]order.Settlement, n)
	for i, l := range batch {
		ss[i] = l.next
	}
	var done []order.Settled
	wait := retryFirst
	var try func()
	try = func() {
		g.call(settle, func() (err error) {
			done, err = g.store.Settle(context.Background(), g.id, ss)
			for i := range done {
				if batch[i].unsent && done[i] == order.Applied {
					g.checker.withdrew(g, &ss[i])
				}
			}
			return err
		}, func(err error) {
			if g.over {
				return
			}
			g.gate.Hold(g.now, consumer.HoldStore, err != nil)
			if err != nil {
				g.later(wait, func() {
					if g.writing {
						try()
					}
				})
				wait = min(2*wait, retryMax)
				return
			}
			g.settles--
			for i, l := range batch {
				if l.unsent {
					g.withdrew(l)
					continue
				}
				g.yield(l)
				if done[i] == order.Applied && l.next.Phase == order.Replaying {
					g.spilling = append(g.spilling, l)
					continue
				}
				g.closed(l)
			}
		})
	}
	try()
}

// pushNext puts what was settled as REPLAYING into the replay queue.
func (g *generation) pushNext() {
	batch := g.spilling
	g.spilling = nil
	g.pushes++
	entries := make([]queued, len(batch))
	for i, l := range batch {
		entries[i] = queued{id: l.order.ID, ready: l.next.NotBefore}
	}
	var try func()
	try = func() {
		g.call(push, func() error { return g.queue.push(entries) }, func(err error) {
			full := errors.Is(err, order.ErrQueueFull)
			switch {
			case g.over:
			case err == nil, full:
				g.count("spill")
				g.gate.Hold(g.now, consumer.HoldReplay, false)
				if full { // commitTick ends it
					g.gate.Hold(g.now, consumer.HoldReplayFull, true)
				}
				g.pushes--
				for _, l := range batch {
					g.closed(l)
				}
			default:
				g.gate.Hold(g.now, consumer.HoldReplay, true)
				g.later(retryMax, func() {
					if g.writing {
						try()
					}
				})
			}
		})
	}
	try()
}

// withdrew forgets an order that was withdrawn.
func (g *generation) withdrew(l *line) {
	g.count("withdrawn")
	g.withdrawn = append(g.withdrawn, queued{id: l.order.ID, ready: g.now})
	if l.begun || l.aside {
		g.gate.Unstarted(g.now, 1, l.size)
	}
	g.gate.Dropped(g.now, 1, l.size)
	g.held = slices.DeleteFunc(g.held, func(h *line) bool { return h == l })
}

// closed ends a record: it is settled and its memory is free.
func (g *generation) closed(l *line) {
	g.yield(l)
	l.ledger.Close(l.message.Offset)
	g.gate.Closed(g.now, l.size)
	g.held = slices.DeleteFunc(g.held, func(h *line) bool { return h == l })
}
