package sim

import (
	"time"

	"spillway/consumer"
)

// member is one life of a worker in the group.
type member struct {
	worker *worker
	life   int
	seen   time.Time // last heartbeat
	ready  bool      // has nothing of the present generation any more
}

// group is the coordinator of the consumer group and keeps its offsets.
type group struct {
	*world
	generation  int
	rebalancing bool
	round       int // numbers the rebalances
	members     []*member
	committed   []int64
}

func newGroup(s *world) *group {
	g := &group{world: s, committed: make([]int64, s.partitions)}
	s.after(heartbeatEvery, g.watch)
	return g
}

// watch drops members that went silent.
func (g *group) watch() {
	kept := g.members[:0]
	for _, m := range g.members {
		if g.now.Sub(m.seen) > sessionTimeout {
			g.note("group: %s is gone", m.worker.name)
			g.count("session lost")
			continue
		}
		kept = append(kept, m)
	}
	lost := len(g.members) - len(kept)
	g.members = kept
	if lost > 0 {
		g.rebalance()
	}
	g.after(heartbeatEvery, g.watch)
}

func (g *group) find(w *worker) *member {
	for _, m := range g.members {
		if m.worker == w && m.life == w.life {
			return m
		}
	}
	return nil
}

// join makes a member of a worker that has no partitions, or tells that it has none any more.
func (g *group) join(w *worker) {
	m := g.find(w)
	if m == nil {
		m = &member{worker: w, life: w.life}
		g.members = append(g.members, m)
	}
	m.seen, m.ready = g.now, true
	g.rebalance()
	g.complete(false)
}

// leave ends a membership in good order.
func (g *group) leave(w *worker) {
	for i, m := range g.members {
		if m.worker == w && m.life == w.life {
			g.members = append(g.members[:i], g.members[i+1:]...)
			g.rebalance()
			return
		}
	}
}

// heartbeat reports whether the worker may go on with its generation.
func (g *group) heartbeat(w *worker) bool {
	m := g.find(w)
	if m == nil {
		return false
	}
	m.seen = g.now
	return !g.rebalancing
}

func (g *group) rebalance() {
	if g.rebalancing {
		return
	}
	g.rebalancing = true
	g.round++
	g.count("rebalance")
	g.note("group: rebalance %d", g.round)
	round := g.round
	g.after(g.drain+2*heartbeatEvery, func() {
		if g.rebalancing && g.round == round {
			g.complete(true)
		}
	})
}

// complete gives out the partitions once everybody is ready, or without those who are not when time is up.
func (g *group) complete(late bool) {
	if !g.rebalancing {
		return
	}
	var ready []*member
	for _, m := range g.members {
		if m.ready {
			ready = append(ready, m)
		}
	}
	if !late && len(ready) < len(g.members) {
		return
	}
	if len(ready) < len(g.members) {
		g.count("rebalance without a member")
	}
	g.rebalancing = false
	g.generation++
	g.members = ready
	if len(ready) == 0 {
		return
	}
	given := make([][]consumer.Position, len(ready))
	first := g.rng.IntN(len(ready))
	for p := range g.committed {
		i := (first + p) % len(ready)
		given[i] = append(given[i], consumer.Position{Partition: int32(p), Offset: g.committed[p]})
	}
	for i, m := range ready {
		m.ready = false
		generation, w := g.generation, m.worker
		w.later(g.latency(), func() {
			if !m.ready && g.find(w) == m { // else it has asked anew meanwhile, and this answer is nobody's
				w.assigned(generation, given[i])
			}
		})
	}
}

// commit makes offsets the group's.
func (g *group) commit(w *worker, life, generation int, offsets []consumer.Position) error {
	known := false
	for _, m := range g.members {
		known = known || m.worker == w && m.life == life
	}
	if !known || generation != g.generation {
		g.count("commit fenced")
		return consumer.ErrFenced
	}
	for _, o := range offsets {
		g.checker.committing(int(o.Partition), g.committed[o.Partition], o.Offset)
		g.committed[o.Partition] = o.Offset
	}
	return nil
}
