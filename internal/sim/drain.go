package sim

import (
	"context"
	"errors"
	"slices"

	"spillway/consumer"
	"spillway/order"
)

// end begins the drain: nothing new is taken or sent, what was not sent is withdrawn, and calls that can't be finished in
// time are cancelled.
func (g *generation) end(why order.Reason) {
	if !g.taking {
		return
	}
	g.note("%s: generation %d drains: %s", g.name, g.number, why)
	g.taking, g.cause = false, why
	g.drop()
	for _, e := range g.ready.Clear() {
		g.withdraw(e.Value)
	}
	g.later(g.drain*4/5, g.stopCalls)
	g.later(g.drain*9/10, g.close)
}

func (g *generation) stopCalls() {
	if g.over || !g.working {
		return
	}
	g.working = false
	for _, l := range slices.Clone(g.held) {
		l.flight.cancel(g.cause)
	}
}

// close ends the work and makes the last commit.
func (g *generation) close() {
	if g.closing || g.over {
		return
	}
	if len(g.held) > 0 {
		g.count("drain cut short")
	}
	g.stopCalls()
	g.writing, g.closing = false, true
	g.lastCommit()
}

func (g *generation) lastCommit() {
	if g.commits > 0 {
		g.later(g.latency(), g.lastCommit)
		return
	}
	g.over = true
	g.commit(true, func() {
		if g.generation == g {
			g.drained()
		}
	})
}

// commit makes the group's what is settled.
func (g *generation) commit(all bool, then func()) {
	var offsets []consumer.Position
	for _, p := range g.parts {
		o := g.ledgers[p].Committable()
		if c, ok := g.committed[p]; all || !ok || c != o {
			offsets = append(offsets, consumer.Position{Partition: p, Offset: o})
		}
	}
	if len(offsets) == 0 {
		then()
		return
	}
	g.commits++
	life := g.life
	g.call(commit, func() error { return g.group.commit(g.worker, life, g.number, offsets) }, func(err error) {
		g.commits--
		if err == nil {
			for _, o := range offsets {
				g.committed[o.Partition] = o.Offset
			}
		}
		switch {
		case !errors.Is(err, consumer.ErrFenced):
		case !g.over:
			g.end(order.Revoked)
		case len(g.withdrawn) > 0:
			// The next owner may have taken their records for duplicates.
			g.count("fenced after a withdrawal")
			g.call(push, func() error { return g.queue.push(g.withdrawn) }, func(error) { then() })
			return
		}
		then()
	})
}

// commitTick commits now and then, and samples the depth of the replay queue.
func (w *worker) commitTick() {
	w.later(commitEvery, w.commitTick)
	g := w.generation
	if g == nil || g.closing || g.commits > 0 {
		return
	}
	if !w.queue.away() {
		g.gate.Hold(g.now, consumer.HoldReplayFull, w.queue.total() >= w.queueBound)
	}
	g.commit(false, func() {})
}

// renew keeps the leases of what is held.
func (w *worker) renew() {
	w.later(w.lease/6, w.renew)
	g := w.generation
	if g == nil || !g.writing {
		return
	}
	var old []*line
	var leases []order.Lease
	for _, l := range g.held {
		if !l.lost && w.now.Sub(l.leasedAt) > w.lease/3 {
			old = append(old, l)
			leases = append(leases, order.Lease{ID: l.order.ID, Version: l.order.Version})
		}
	}
	if len(old) == 0 {
		return
	}
	at, owner := w.now, w.owner()
	var kept []bool
	w.call(renew, func() (err error) {
		kept, err = w.store.Renew(context.Background(), owner, w.lease, leases)
		return err
	}, func(err error) {
		if err != nil {
			return
		}
		for i, l := range old {
			if kept[i] {
				l.leasedAt = at
				continue
			}
			l.lost = true
			w.count("renewal refused")
		}
	})
}
