package sim

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"

	"spillway/consumer"
	"spillway/order"
)

// class is where a consumed record is. It is in exactly one.
type class int

const (
	nowhere class = iota
	uncommitted
	inFlight
	replayingNow
	unknown
	dead
	final
)

// classify says where a record is, by what the record of orders holds.
func (c *checker) classify(e *entry) class {
	if _, ok := c.buried[place{e.message.Partition, e.message.Offset}]; ok {
		return dead
	}
	s := c.seen[e.number]
	if s == nil || !bytes.Equal(s.order.Message.Value, e.message.Value) {
		return nowhere
	}
	switch s.order.State {
	case order.Succeeded, order.Failed, order.Discarded:
		return final
	case order.Dead:
		return dead
	case order.Processing:
	}
	switch s.order.Phase {
	case order.InFlight:
		return inFlight
	case order.Replaying:
		return replayingNow
	case order.Unknown:
		return unknown
	case order.NoPhase:
	}
	return nowhere
}

// committing is told that a partition's offset is about to move.
func (c *checker) committing(partition int, from, to int64) {
	c.dirty = true
	if to < from {
		c.violate("I1", "partition %d is committed at %d and was at %d", partition, to, from)
	}
	if to > from {
		c.note("group: partition %d committed at %d", partition, to)
	}
	for _, e := range c.topic.partitions[partition] {
		if o := e.message.Offset; o >= from && o < to && !e.lost && c.classify(e) == nowhere {
			c.violate("I1", "offset %d of partition %d is committed over %q at %d, which stands nowhere", to, partition, e.number, o)
		}
	}
}

// check is made after every step.
func (c *checker) check() {
	if c.dirty {
		c.dirty = false
		c.conserve()
	}
	if n := c.queue.total(); n > c.queueBound+c.numbers.workers*c.batch {
		c.violate("I7", "the replay queue holds %d, bound %d", n, c.queueBound)
	}
	for _, w := range c.workers {
		if !w.up {
			continue
		}
		if w.free < 0 || w.free > w.permits || len(w.flights) > w.permits-w.free {
			c.violate("I7", "%s has %d of %d permits free and %d attempts in flight", w.name, w.free, w.permits, len(w.flights))
		}
		if w.generation != nil {
			c.checkGate(w.generation)
		}
	}
}

// conserve adds up all records: I9.
func (c *checker) conserve() {
	for _, e := range c.topic.all {
		at := c.classify(e)
		if at == nowhere && e.lost {
			continue
		}
		if at == nowhere && e.message.Offset >= c.group.committed[e.message.Partition] {
			at = uncommitted
		}
		if at == nowhere {
			c.violate("I9", "record %d/%d (%q) is nowhere", e.message.Partition, e.message.Offset, e.number)
		}
	}
}

// checkGate holds a gate and its ledgers against their bounds: I7.
func (c *checker) checkGate(g *generation) {
	l := g.gate.Level()
	switch {
	case l.HeldBytes < 0 || l.ReservedBytes < 0 || l.HeldBytes+l.ReservedBytes > c.limits.Bytes:
		c.violate("I7", "%s: the gate holds %d and has granted %d bytes of %d", g.name, l.HeldBytes, l.ReservedBytes, c.limits.Bytes)
	case l.Queued < 0 || l.WaitingBytes < 0:
		c.violate("I7", "%s: the gate counts %+v", g.name, l)
	case l.HeldBytes != bytesOf(g.pending)+g.admittingBytes+bytesOf(g.held):
		c.violate("I7", "%s: the gate holds %d bytes, there are %d", g.name, l.HeldBytes,
			bytesOf(g.pending)+g.admittingBytes+bytesOf(g.held))
	case g.taking && l.Queued != len(g.pending)+g.admitting+g.ready.Ready():
		c.violate("I7", "%s: the gate counts %d waiting, there are %d", g.name, l.Queued, len(g.pending)+g.admitting+g.ready.Ready())
	}
	open := 0
	for _, p := range g.parts {
		open += g.ledgers[p].Len()
		if o := g.ledgers[p].Committable(); o < c.group.committed[p] && g.number == c.group.generation {
			c.violate("I1", "%s: the ledger of %d would commit %d, behind %d", g.name, p, o, c.group.committed[p])
		}
	}
	if working := len(g.pending) + g.admitting + len(g.held); working > open && g.taking && c.options.Bug == NoBug {
		c.violate("I7", "%s: %d records are worked on and %d open in the ledgers", g.name, working, open)
	}
}

// quiet reports whether every record is settled and committed and nobody does anything.
func (c *checker) quiet() bool {
	if c.open > 0 {
		return false
	}
	for p, end := range c.topic.ends {
		if c.group.committed[p] < end {
			return false
		}
	}
	for _, w := range c.workers {
		if !w.up || w.free < w.permits || w.scanning > 0 || w.replaying != nil {
			return false
		}
	}
	return true
}

// stuck is called when there was time enough for everything.
func (c *checker) stuck() {
	var lines []string
	for n, s := range c.seen {
		if s.order.State == order.Processing {
			lines = append(lines, fmt.Sprintf("%s %s due %v", n, s.order.Phase, s.order.Due.Sub(c.now)))
		}
	}
	sort.Strings(lines)
	for p, end := range c.topic.ends {
		if o := c.group.committed[p]; o < end {
			lines = append(lines, fmt.Sprintf("partition %d at %d of %d", p, o, end))
		}
	}
	for _, w := range c.workers {
		lines = append(lines, fmt.Sprintf("%s up %v, %d of %d permits, scanning %d, replaying %v", w.name, w.up, w.free, w.permits, w.scanning,
			w.replaying != nil))
		if g := w.generation; g != nil {
			lines = append(lines, fmt.Sprintf("  %v %+v held by %v", g.parts, g.gate.Level(), holds(g.gate)))
		}
	}
	c.violate("I9", "not everything is settled after %v of calm: %s", calm, strings.Join(lines, "; "))
}

func holds(g *consumer.Gate) []consumer.HoldReason {
	var hs []consumer.HoldReason
	for _, h := range consumer.HoldReasons() {
		if g.Holding(h) {
			hs = append(hs, h)
		}
	}
	return hs
}

// conclude holds the end against what the downstream says.
func (c *checker) conclude() {
	for _, number := range c.topic.numbers {
		s := c.seen[number]
		if s == nil {
			continue // its records are looked at below
		}
		c.observe(context.Background(), number)
		effects := c.down.effects[number]
		switch s.order.State {
		case order.Succeeded:
			if effects != 1 {
				c.violate("I4", "%s is SUCCEEDED and was applied %d times", number, effects)
			}
		case order.Failed:
			if effects != 0 {
				c.violate("I4", "%s is FAILED and was applied %d times", number, effects)
			}
		case order.Dead:
			if s.order.Reason == order.NoReason {
				c.violate("I9", "%s is DEAD without a reason", number)
			}
		case order.Discarded:
		case order.Processing:
			c.violate("I9", "%s ends as %s", number, s.order.State)
		}
	}
	for _, e := range c.topic.all {
		reason, buried := c.buried[place{e.message.Partition, e.message.Offset}]
		// Of two records with one number and two values the first to come is the order.
		s := c.seen[e.number]
		fits := s != nil && bytes.Equal(s.order.Message.Value, e.message.Value)
		switch {
		case e.lost && !fits && !buried:
		case fits && buried:
			c.violate("I9", "record %d/%d (%q) is an order and a dead letter: %s", e.message.Partition, e.message.Offset, e.number, reason)
		case !fits && (!buried || reason == order.NoReason):
			c.violate("I9", "record %d/%d (%q) should be a dead letter with a reason", e.message.Partition, e.message.Offset, e.number)
		}
	}
}
