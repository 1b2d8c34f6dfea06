package sim

import (
	"bytes"
	"context"
	"time"

	"spillway/consumer"
	"spillway/internal/desk"
	"spillway/order"
)

// seen is what the checker knows of one order: the row as it last stood, and what really happened.
type seen struct {
	order  order.Order
	owner  string // who was leased the row last
	leased int64  // at which version

	flights  int
	lastSent time.Time
	unsure   bool // the last send may have been applied, as far as the record can know
	life     int
	sends    int // in this life
}

type place struct {
	partition int32
	offset    int64
}

// checker follows what everybody does and holds it against the contract.
type checker struct {
	*world
	seen   map[string]*seen
	names  map[int64]string
	buried map[place]order.Reason // records that became dead letters
	open   int                    // orders that are neither final nor dead
	dirty  bool                   // something changed that conservation depends on
	unsent map[string]int64       // at which version orders were withdrawn by who was to be heeded still
}

func newChecker(s *world) *checker {
	return &checker{
		world: s, seen: map[string]*seen{}, names: map[int64]string{}, buried: map[place]order.Reason{},
		unsent: map[string]int64{},
	}
}

// lease is told that owner was leased the row.
func (c *checker) lease(owner string, o order.Order) {
	s := c.seen[o.Number]
	if s == nil {
		s = &seen{}
		c.seen[o.Number] = s
		c.names[o.ID] = o.Number
		c.open++
	}
	s.owner, s.leased = owner, o.Version
	if !o.Due.After(c.now) {
		c.violate("I2", "%s is leased to %s until %v, which is over", o.Number, owner, o.Due.Sub(epoch))
	}
}

// observe reads an order's row and holds it against what it was.
func (c *checker) observe(ctx context.Context, number string) {
	s := c.seen[number]
	v, err := c.store.rows.ShowOrder(ctx, route, number)
	if err != nil || s == nil {
		c.violate("I8", "%s is gone from the record: %v", number, err)
		return
	}
	was, is := s.order, v.Order
	s.order = is
	if was.ID == 0 { // its birth
		was.State, was.Message = order.Processing, is.Message
	}
	c.dirty = true
	if is.Version != was.Version || !is.Due.Equal(was.Due) {
		c.note("record: %s %s/%s v%d %s attempts %d/%d lookups %d due %.3f (%s)", number, is.State, is.Phase, is.Version, is.Reason,
			is.Attempts, is.AttemptsTotal, is.Lookups, is.Due.Sub(epoch).Seconds(), v.Owner)
	}
	if is.State != was.State {
		c.moved(ctx, number, was, is)
	}
	switch {
	case is.Version < was.Version:
		c.violate("I2", "%s: version went back from %d to %d", number, was.Version, is.Version)
	case is.State == order.Processing && (is.Due.IsZero() || is.Due.After(c.now.Add(time.Minute))):
		c.violate("I1", "%s is PROCESSING and nobody is due to act on it: due %v", number, is.Due.Sub(epoch))
	case is.State == order.Processing && is.Phase == order.NoPhase:
		c.violate("I1", "%s is PROCESSING in no phase", number)
	case is.Attempts > c.policy.ReplayAttempts || is.AttemptsTotal > c.policy.ReplayAttemptsTotal:
		c.violate("I7", "%s has %d attempts, %d in all: caps %d and %d", number, is.Attempts, is.AttemptsTotal,
			c.policy.ReplayAttempts, c.policy.ReplayAttemptsTotal)
	case is.Life < was.Life:
		c.violate("I5", "%s: life went back from %d to %d", number, was.Life, is.Life)
	case !bytes.Equal(is.Message.Value, was.Message.Value):
		c.violate("I6", "%s: the record's bytes changed", number)
	}
	if is.Life > s.life {
		s.life, s.sends = is.Life, 0
	}
	if is.AttemptsTotal < s.sends {
		c.violate("I5", "%s was sent %d times in life %d and the record counts %d attempts", number, s.sends, is.Life, is.AttemptsTotal)
	}
}

// moved checks a change of state.
func (c *checker) moved(ctx context.Context, number string, was, is order.Order) {
	c.count("state " + is.State.String())
	if !order.CanMove(was.State, is.State) {
		c.violate("I3", "%s went from %s to %s", number, was.State, is.State)
	}
	applied, refused := c.down.effects[number] > 0, c.down.rejected[number]
	switch is.State {
	case order.Succeeded:
		c.open--
		if !applied {
			c.violate("I4", "%s is SUCCEEDED and the downstream knows nothing of it", number)
		}
	case order.Failed:
		c.open--
		if applied || !refused && !c.policy.FailNotFound {
			c.violate("I4", "%s is FAILED and the downstream did not refuse it", number)
		}
	case order.Dead:
		c.open--
		c.count("dead " + string(is.Reason))
		v, err := c.store.rows.ShowOrder(ctx, route, number)
		if err != nil || v.Letter == 0 {
			c.violate("I9", "%s is DEAD and has no dead letter that waits", number)
		}
	case order.Processing:
		c.open++
	case order.Discarded: // from DEAD, which CanMove has seen to
	}
}

// settled is told of a settlement that was applied.
func (c *checker) settled(ctx context.Context, owner string, t order.Settlement) {
	number := c.names[t.ID]
	s := c.seen[number]
	if s.owner != owner || s.leased != t.Version || s.order.Version != t.Version {
		c.violate("I2", "%s was settled by %s at version %d: the lease is %s's at version %d", number, owner, t.Version, s.owner, s.leased)
	}
	if t.State == order.Dead && t.Outcome == order.OutcomeInvalid && s.order.Phase == order.InFlight {
		s.unsure = false
	}
	if t.State == order.Processing && t.Phase == order.Replaying {
		switch s.order.Phase {
		case order.InFlight:
			switch t.Outcome { // nothing was done, and the downstream or the network said so
			case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeRefused, order.OutcomeCancelled:
				s.unsure = false
			case order.NoOutcome, order.OutcomeSucceeded, order.OutcomeRejected, order.OutcomeInvalid, order.OutcomeUnknown:
			}
		case order.Unknown:
			if s.unsure {
				c.violate("I6", "%s goes back to the replay queue with no lookup that said not found after the grace", number)
			}
		case order.NoPhase, order.Replaying:
		}
	}
	c.observe(ctx, number)
}

// conflict is told of an answer that contradicts a final state. The downstream tells one truth, so only a person can
// have said otherwise.
func (c *checker) conflict(ctx context.Context, owner string, t order.Settlement) {
	number := c.names[t.ID]
	c.observe(ctx, number)
	if is := c.seen[number].order; is.State != order.Discarded {
		c.violate("I4", "%s is %s and %s comes late with %s", number, is.State, owner, t.State)
	}
}

// notFound is told that the downstream said so, at this moment.
func (c *checker) notFound(number string) {
	if s := c.seen[number]; s != nil && !c.now.Before(s.lastSent.Add(c.policy.Grace)) {
		s.unsure = false
	}
}

// sent is told that a worker sends an order now.
func (c *checker) sent(f *flight) {
	number, owner := f.order.Number, f.worker.owner()
	s := c.seen[number]
	c.observe(context.Background(), number)
	row := s.order
	switch {
	case s.flights > 0:
		c.violate("I2", "%s is sent by %s while another attempt is in flight", number, owner)
	case row.State != order.Processing || row.Phase != order.InFlight || row.Version != f.order.Version || s.owner != owner:
		c.violate("I2", "%s is sent by %s, which does not hold the lease: %s/%s version %d of %s", number, owner, row.State, row.Phase,
			row.Version, s.owner)
	case row.Due.Before(c.now.Add(c.budget)):
		c.violate("I2", "%s is sent with %v of its lease left", number, row.Due.Sub(c.now))
	case s.unsure:
		c.violate("I6", "%s is sent again and no lookup said not found after the grace", number)
	}
	s.flights++
	s.sends++
	s.lastSent, s.unsure = c.now, true
	if row.AttemptsTotal < s.sends {
		c.violate("I5", "%s was sent %d times in life %d and the record counts %d attempts", number, s.sends, row.Life, row.AttemptsTotal)
	}
	if s.sends > 1 {
		c.count("resend")
	}
}

// turn is told that a worker is about to send an order fresh from the log.
func (c *checker) turn(g *generation, l *line) {
	m := &l.message
	chained := func(o *order.Message) bool {
		return o.Partition == m.Partition && (c.ordering == consumer.ByPartition ||
			c.ordering == consumer.ByKey && m.Key != nil && o.Key != nil && string(o.Key) == string(m.Key))
	}
	for _, h := range g.held {
		if h != l && h.begun && !h.yielded && chained(&h.message) {
			c.violate(inTurn, "%s is sent while %s, of the same chain, is not settled", l.order.Number, h.order.Number)
		}
	}
	for _, e := range c.topic.partitions[m.Partition] {
		if o := e.message.Offset; o >= m.Offset || o < c.topic.starts[m.Partition] || e.kind == unreadable || !chained(&e.message) {
			continue
		}
		s := c.seen[e.number]
		waits := s != nil && order.Withdrawn(&s.order) && s.order.Version == c.unsent[e.number] && s.order.Due.After(c.now) &&
			s.order.Message.Offset == e.message.Offset && s.order.Message.Partition == m.Partition
		if waits || c.classify(e) == nowhere {
			c.violate(inTurn, "%s at %d is sent before %s at %d, which is still to come", l.order.Number, m.Offset, e.number,
				e.message.Offset)
		}
	}
}

// withdrew is told that an order was withdrawn. When the group has gone on without its reader, the next one may have passed
// it by already.
func (c *checker) withdrew(g *generation, s *order.Settlement) {
	if g.generation == g && c.group.find(g.worker) != nil && c.group.generation == g.number {
		c.unsent[c.names[s.ID]] = s.Version + 1
	}
}

// landed is told that an attempt is over, from its sender's side.
func (c *checker) landed(f *flight) { c.seen[f.order.Number].flights-- }

// readLetters takes down which records became dead letters.
func (c *checker) readLetters(ctx context.Context) {
	ls, err := c.store.rows.ListDeadLetters(ctx, desk.LetterFilter{Route: route, Limit: desk.MaxPage})
	if err != nil {
		c.violate("I8", "dead letters cannot be listed: %v", err)
		return
	}
	found := map[place]int{}
	for _, l := range ls {
		if l.OrderID != 0 {
			continue
		}
		at := place{l.Message.Partition, l.Message.Offset}
		c.buried[at] = l.Reason
		if found[at]++; found[at] > 1 {
			c.violate("I9", "record %d/%d has %d dead letters", at.partition, at.offset, found[at])
		}
	}
	c.dirty = true
}
