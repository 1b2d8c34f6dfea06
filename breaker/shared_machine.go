package breaker

import "time"

// maxOverdue is how long a machine that follows an open record waits beyond the record's wait for somebody to move it.
const maxOverdue = time.Second

// follower is what a machine knows of the record it shares with the fleet. The zero follower shares with nobody.
//
// While the machine follows, the record decides what comes after an open wait, after first probes and at the top of the
// ramp. Its own rules still open it: a worker that cannot reach the service must stop calling it, whatever the others
// see. Such a state is the machine's own, and stands until its own wait is over. Once the record's word has run out
// (nobody renewed it), the machine goes on alone from where it is.
type follower struct {
	joined  bool   // a record was adopted
	behind  bool   // the machine went other ways for a while (a force of its own, disabled) and must follow anew
	epoch   uint64 // of the record
	moves   uint64 // of its state
	state   State
	ramping bool
	since   time.Duration // when the record's state began
	ends    time.Duration // the record rules until then
	own     bool          // the machine's state comes from its own evidence or clock and differs from the record's
	forced  bool          // the force on came with the record

	slots    int // first probes that may run at once, in place of Config.ProbesInFlight
	slotsEnd time.Duration
	turn, of int  // the floor of step s of the ramp belongs to this worker when s%of == turn
	wanted   bool // a call was refused for want of a slot since the last report

	past ring // results of earlier states under this epoch; without buckets until the first adoption
}

// linked reports whether the record rules.
func (m *machine) linked() bool { return m.now < m.fleet.ends }

// following reports whether the machine's state is the record's.
func (m *machine) following() bool { return m.linked() && !m.fleet.own }

// adopt takes a record over, or renews the one it has.
func (m *machine) adopt(now time.Duration, a Adoption) {
	f := &m.fleet
	now = max(m.now, now)
	if f.joined && a.Epoch < f.epoch {
		return
	}
	if f.past.buckets == nil {
		f.past = newRing(m.cfg.FailureWindow, m.cfg.SlowWindow)
	}
	f.ends = now + min(max(a.Valid, 0), maxValid)
	m.tick(now)
	f.slots, f.slotsEnd = a.Slots, now+min(max(a.SlotsFor, 0), maxValid)
	f.turn, f.of = a.Turn, a.Of
	if f.joined && !f.behind && a.Epoch == f.epoch && !a.Replaced {
		return
	}
	held := m.force.holds()
	m.adoptForce(a)
	stays := f.joined && !f.behind && a.Moves == f.moves && !a.Replaced
	f.joined, f.behind, f.epoch, f.moves = true, false, a.Epoch, a.Moves
	if !stays {
		f.state, f.ramping, f.since = a.State, a.Ramping, now-min(max(a.Age, 0), maxForce)
	}
	switch {
	case m.force.holds():
	case m.off():
		if m.state != Closed {
			m.move(Closed, Event{Reason: ReasonDisabled, Source: SourceForced})
		}
	case held || !stays:
		m.follow(a.Why, a.Wait, a.Opens, held)
	}
	if !stays {
		f.past.advance(int64(m.now / time.Second))
		f.past.clear()
	}
}

// adoptForce puts on the force of a record, or takes off the one that came with an earlier record.
func (m *machine) adoptForce(a Adoption) {
	f := &m.fleet
	if a.Force != ForceNone && a.ForceLeft > 0 {
		m.setForce(m.now, a.Force, m.now+min(a.ForceLeft, maxForce))
		f.forced = true
		return
	}
	if f.forced {
		// What the record says comes next; the machine's own idea of it would be one move more.
		f.forced, m.force, m.moved = false, ForceNone, true
		f.own = false
	}
}

// follow makes the record's state the machine's, unless the machine's own state stands. released says that a force held
// the machine until now: what came in under it is forgotten.
func (m *machine) follow(grounds Grounds, wait time.Duration, opens int, released bool) {
	f := &m.fleet
	why := grounds.event()
	switch f.state {
	case Open:
		m.openStreak, m.wait = opens, min(max(wait, 0), 2*maxOpenWait)
		m.move(Open, why)
		m.since = f.since
	case HalfOpen:
		if f.own && m.state == Open {
			return
		}
		m.openStreak, m.wait = opens, wait
		m.followHalfOpen(why)
	case Closed:
		if f.own && m.state != Closed {
			return
		}
		m.openStreak, m.wait = opens, wait
		if m.state != Closed || released {
			m.move(Closed, why)
			m.since = f.since
		}
	}
	f.own = false
}

// followHalfOpen enters the first probes or the ramp. First probes under way go on, so that their slots stay taken, and
// so does a ramp of its own that became the record's.
func (m *machine) followHalfOpen(why Event) {
	f, h := &m.fleet, &m.half
	continues := m.state == HalfOpen && (!h.ramping || f.ramping && f.own)
	if !continues {
		m.move(HalfOpen, why)
		m.since = f.since
	}
	f.own = false
	if f.ramping && h.ramping {
		h.rampSince = f.since
		m.climb()
	} else if f.ramping {
		h.ramping, h.rampSince, h.oldest = true, f.since, int64(m.now/time.Second)
		m.climb()
	}
}

// waitOver is the end of an open state whose wait is over.
func (m *machine) waitOver() {
	f := &m.fleet
	switch {
	case !m.linked() || f.own && f.state == Closed || !f.own && m.now >= m.until+maxOverdue:
		m.move(HalfOpen, Event{Reason: ReasonWaitOver})
	case !f.own:
		// The record moves on within moments.
	case f.state == HalfOpen:
		f.own = false
		m.followHalfOpen(Event{Reason: ReasonWaitOver, Source: SourceShared})
	default:
		f.own, m.until = false, m.now // the record, open like this machine, moves on within moments
	}
}

// probeLimit is how many first probes may run at once.
func (m *machine) probeLimit() int {
	f := &m.fleet
	if !m.following() {
		return m.cfg.ProbesInFlight
	}
	if m.now >= f.slotsEnd {
		return 0
	}
	return min(f.slots, m.cfg.ProbesInFlight)
}

// floor reports whether this machine owes a step of the ramp its one call: each does when alone, one of the fleet when
// following.
func (m *machine) floor(step int) bool {
	f := &m.fleet
	return !m.following() || f.of <= 1 || step%f.of == f.turn
}

// report describes what this machine has seen since it adopted its record, for the fleet. With giveBack it lets go of
// the slots that no probe is using.
func (m *machine) report(now time.Duration, giveBack bool) Evidence {
	m.tick(now)
	f, h := &m.fleet, &m.half
	e := Evidence{
		Epoch: f.epoch, State: m.state, Own: f.own, Force: m.force, Wanted: f.wanted,
		Failure: window(m.ring.failure), Slow: window(m.ring.slow), Successes: m.good,
	}
	f.wanted = false
	if f.past.buckets != nil {
		f.past.advance(int64(m.now / time.Second))
		e.Failure, e.Slow = e.Failure.plus(window(f.past.failure)), e.Slow.plus(window(f.past.slow))
	}
	if m.state == HalfOpen || m.state == Open && f.own {
		e.Ramping, e.Half, e.ProbesGood, e.ProbesBad = h.ramping, window(h.seen), h.good, h.row
		if h.ramping {
			e.RampAge = m.now - h.rampSince
		}
	}
	if m.state == HalfOpen {
		e.Probing = h.used
		if giveBack {
			f.slots = min(f.slots, h.used)
		}
		if m.following() && !h.ramping && m.now < f.slotsEnd {
			e.Slots = f.slots
		}
		e.Slots = max(e.Slots, h.used)
	}
	return e
}

func window(s sum) Window { return Window{Samples: s.samples, Failures: s.failures, Slow: s.slow} }

func (g Grounds) event() Event {
	return Event{
		Source: SourceShared, Reason: g.Reason, Window: g.Window, Samples: g.Samples, Failures: g.Failures, Slow: g.Slow,
		Rate: g.Rate, Bound: g.Bound, Threshold: g.Threshold,
	}
}
