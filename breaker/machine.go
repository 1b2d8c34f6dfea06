package breaker

import (
	"math"
	"time"
)

// forever is later than any moment of a breaker's life.
const forever = time.Duration(math.MaxInt64)

// permitKind says how a permit was admitted and so how its result is taken.
type permitKind uint8

const (
	permitNone   permitKind = iota // no permit: its result is dropped
	permitClosed                   // admitted while closed
	permitShadow                   // admitted only because the mode does not refuse: decides nothing
	permitFirst                    // one of the first probes; holds a slot
	permitRamp                     // admitted by the ramp's share
)

// Permit is the right to make one call. It is a value: copy it, and report it once. The zero Permit was never admitted
// and its report is dropped.
type Permit struct {
	start      time.Duration // since the breaker's creation
	generation uint64
	place      place  // one word: a permit of four words travels in registers
	number     uint64 // where the call stands in the order of all admitted ones, from 1
}

// place packs a permit's kind (lowest byte), its slot (next byte) and which use of the slot it is (upper half).
type place uint64

func firstPlace(slot int, token uint32) place {
	return place(token)<<32 | place(slot)<<8 | place(permitFirst) //nolint:gosec // slot < maxProbesInFlight
}

func (p place) kind() permitKind { return permitKind(p & 0xff) }
func (p place) slot() int        { return int(p >> 8 & 0xff) }
func (p place) token() uint32    { return uint32(p >> 32) }

// Probe reports whether the call was admitted while the breaker was half-open: its failure was to be expected.
func (p Permit) Probe() bool { return p.place.kind() == permitFirst || p.place.kind() == permitRamp }

// Generation is the generation of the breaker's state that admitted the call.
func (p Permit) Generation() uint64 { return p.generation }

// maxEvents bounds the events one step can cause: a force that ends, the state it leaves behind, and one verdict.
const maxEvents = 4

// machine is the breaker without time, locks or I/O: each method takes the moment as the time since the breaker's
// creation and the machine never runs backwards (an earlier moment counts as the latest one seen). The zero machine
// is not usable: newMachine.
type machine struct {
	cfg  Config         // defaults applied
	unit func() float64 // evenly drawn from [0, 1)

	now        time.Duration
	secondEnds time.Duration // when the ring's current bucket ends
	mode       Mode
	state      State
	generation uint64
	since      time.Duration
	until      time.Duration // while open: the first moment that admits a probe
	force      Force
	forceEnds  time.Duration

	ring   ring
	streak int // failures in a row, as they were reported; does not age
	run    run // failures in a row in the order the calls were admitted
	half   halfOpen

	fleet follower // what it shares with others

	openStreak int           // openings since the service was last in good health
	wait       time.Duration // drawn at the last opening
	good       int           // successes since the breaker closed

	totals   Totals
	reported uint64 // permits reported, also while disabled
	events   [maxEvents]Event
	pending  int
	moved    bool // something that gate() depends on changed since the shell looked
}

func newMachine(cfg Config, unit func() float64) machine {
	cfg = cfg.WithDefaults()
	return machine{
		cfg: cfg, unit: unit, mode: cfg.Mode, moved: true,
		ring: newRing(cfg.FailureWindow, cfg.SlowWindow),
		half: newHalfOpen(cfg.PermitDeadline),
	}
}

// tick makes everything happen that time alone decides. It comes first in every step.
func (m *machine) tick(now time.Duration) {
	m.now = max(m.now, now)
	if m.now >= m.secondEnds {
		second := int64(m.now / time.Second)
		m.ring.advance(second)
		m.secondEnds = time.Duration(second+1) * time.Second
	}
	if m.force != ForceNone {
		if m.now >= m.forceEnds {
			m.release()
		} else if m.force.holds() {
			return
		}
	}
	if m.state == Open && m.now >= m.until {
		m.waitOver()
	}
	if m.state == HalfOpen {
		m.tickHalfOpen()
	}
}

// allow decides one call; who asks gives the permit its number. width is 0 for an arrival; more for one of a backlog whose
// holder could have so many calls in flight.
func (m *machine) allow(now time.Duration, width int) (Permit, bool) {
	m.tick(now)
	switch m.state {
	case Closed:
		return Permit{start: m.now, generation: m.generation, place: place(permitClosed)}, true
	case Open:
		return m.refuse()
	case HalfOpen:
		if p, ok := m.probe(width); ok {
			return p, true
		}
		return m.refuse()
	}
	return m.refuse()
}

// ready reports whether allow would admit a call now.
func (m *machine) ready(now time.Duration) bool {
	m.tick(now)
	switch m.state {
	case Closed:
		return true
	case Open:
		return !m.refuses()
	case HalfOpen:
		return !m.refuses() || m.probeFree()
	}
	return false
}

// room is how many calls of a backlog of this width may begin now, and whether the machine is half-open.
func (m *machine) room(now time.Duration, width int) (n int, halfOpen bool) {
	m.tick(now)
	switch {
	case m.state == Closed || !m.refuses():
		return width, false
	case m.state == HalfOpen:
		return min(m.probesFree(width), width), true
	}
	return 0, false
}

func (m *machine) refuses() bool { return m.acting() == ModeEnforce || m.force == ForceOpen }

// acting is the mode, as a force to observe changes it.
func (m *machine) acting() Mode {
	if m.force == ForceObserve {
		return ModeObserve
	}
	return m.mode
}

func (m *machine) refuse() (Permit, bool) {
	if m.refuses() {
		m.totals.Refused++
		return Permit{}, false
	}
	m.totals.WouldRefuse++
	return Permit{start: m.now, generation: m.generation, place: place(permitShadow)}, true
}

// done takes the result of one call.
func (m *machine) done(now time.Duration, p Permit, result Result) {
	if m.plain(now, p, result) {
		return
	}
	m.tick(now)
	if p.place.kind() == permitNone {
		return
	}
	m.reported++
	if m.off() {
		return
	}
	if result == Success && m.cfg.SlowCall > 0 && m.now-p.start > m.cfg.SlowCall {
		result = Slow
	}
	m.count(result)
	if p.generation != m.generation {
		m.totals.Stale++
		return
	}
	switch p.place.kind() {
	case permitClosed:
		m.closedResult(p.number, result)
	case permitFirst, permitRamp:
		m.probeResult(p, result)
	case permitShadow, permitNone:
	}
}

// plain takes the commonest result the short way: the success of a closed breaker, in the second of the last step, while
// both windows hold their minimum already. It reports whether it did; otherwise nothing has changed.
func (m *machine) plain(now time.Duration, p Permit, result Result) bool {
	if result != Success || m.state != Closed || p.generation != m.generation || p.place != place(permitClosed) ||
		m.force != ForceNone || m.mode == ModeDisabled || now < m.now || now >= m.secondEnds ||
		m.cfg.SlowCall > 0 && now-p.start > m.cfg.SlowCall {
		return false
	}
	r := &m.ring
	if r.failure.samples < m.cfg.FailureMinCalls || r.slow.samples < m.cfg.SlowMinCalls {
		return false
	}
	m.now = now
	r.buckets[r.at].samples++
	r.failure.samples++
	r.slow.samples++
	m.streak = 0
	m.run.good(p.number)
	m.good++
	m.reported++
	m.totals.Successes++
	return true
}

// settled is how many permits will not be heard of again: reported, or probes counted lost.
func (m *machine) settled() uint64 { return m.reported + m.totals.Lost }

// off reports whether nothing is counted. A force stands above the mode, and what it does is counted.
func (m *machine) off() bool { return m.mode == ModeDisabled && m.force == ForceNone }

func (m *machine) count(result Result) {
	switch result {
	case Success:
		m.totals.Successes++
	case Failure:
		m.totals.Failures++
	case Slow:
		m.totals.Slow++
	case Ignored:
		m.totals.Ignored++
	}
}

// closedResult records a result of the current closed state and opens the breaker when a rule says so.
func (m *machine) closedResult(number uint64, result Result) {
	if result == Ignored {
		return
	}
	m.record(result, 1, number)
	if result == Success {
		m.good++
	}
	if m.force.holds() {
		return
	}
	if reason := m.judge(result); reason != ReasonNone {
		m.move(Open, m.evidence(reason))
	}
}

// record puts n equal results into the windows and the runs. number is that of the call, 0 for probes that were lost, which
// nobody has kept in order.
func (m *machine) record(result Result, n int, number uint64) {
	m.ring.add(result, n)
	if result == Failure {
		m.streak += n
		m.run.bad(number, m.cfg.ConsecutiveFailures)
	} else {
		m.streak = 0
		m.run.good(number)
	}
}

// judge applies the window rules after a result was recorded. A bad result is always judged. A good one can only
// lower a rate, so it is judged just when it brings a window to its minimum.
func (m *machine) judge(result Result) Reason {
	c := &m.cfg
	if result == Failure && c.ConsecutiveFailures > 0 && (m.streak >= c.ConsecutiveFailures || m.run.score() >= c.ConsecutiveFailures) {
		return ReasonConsecutive
	}
	if w := &m.ring.failure; result == Failure || w.samples == c.FailureMinCalls {
		if tooMany(w.failures, w.samples, c.FailureMinCalls, c.FailureRate, c.Z) {
			return ReasonFailureRate
		}
	}
	if w := &m.ring.slow; result == Slow || w.samples == c.SlowMinCalls {
		if tooMany(w.slow, w.samples, c.SlowMinCalls, c.SlowRate, c.Z) {
			return ReasonSlowRate
		}
	}
	return ReasonNone
}

// tooMany compares bad out of n with a threshold; the raw rate first, because the bound is never above it.
func tooMany(bad, n, minimum int, threshold, z float64) bool {
	if threshold <= 0 || n < minimum || float64(bad) < threshold*float64(n) {
		return false
	}
	return wilson(bad, n, z) >= threshold
}

// evidence returns the counts behind a reason of the local rules, before the move they cause.
func (m *machine) evidence(reason Reason) Event {
	c := &m.cfg
	e := Event{Reason: reason}
	counts, bad := m.half.seen, m.half.seen.failures
	switch reason {
	case ReasonConsecutive:
		counts, bad = sum{samples: m.streak, failures: m.streak}, m.streak
		if m.streak < c.ConsecutiveFailures {
			counts, bad = sum{samples: m.run.failed + m.run.others(), failures: m.run.failed}, m.run.failed
		}
		e.Threshold = float64(c.ConsecutiveFailures)
	case ReasonFailureRate:
		counts, bad = m.ring.failure, m.ring.failure.failures
		e.Window, e.Threshold = c.FailureWindow, c.FailureRate
	case ReasonSlowRate:
		counts, bad = m.ring.slow, m.ring.slow.slow
		e.Window, e.Threshold = c.SlowWindow, c.SlowRate
	case ReasonRampFailureRate:
		e.Window, e.Threshold = m.now-m.since, c.FailureRate
	case ReasonRampSlowRate:
		bad = counts.slow
		e.Window, e.Threshold = m.now-m.since, c.SlowRate
	case ReasonProbesFailed:
		bad += counts.slow
		e.Window, e.Threshold = m.now-m.since, float64(c.ProbeFailures)
	case ReasonProbesSucceeded:
		bad += counts.slow
		e.Window, e.Threshold = m.now-m.since, float64(c.SuccessesToClose)
	case ReasonRampDone:
		bad += counts.slow
		e.Window = m.now - m.since
	case ReasonNone, ReasonWaitOver, ReasonForced, ReasonForceEnded, ReasonDisabled, ReasonQuorum:
		return e
	}
	e.Samples, e.Failures, e.Slow = counts.samples, counts.failures, counts.slow
	e.Rate, e.Bound = wilson(bad, counts.samples, 0), wilson(bad, counts.samples, c.Z)
	return e
}

// move begins a new state, and with it a new generation: whatever is still under way decides nothing any more.
func (m *machine) move(to State, e Event) {
	e.From, e.To, e.Mode, e.at = m.state, to, m.acting(), m.now
	switch to {
	case Closed:
		m.good = 0
	case Open:
		m.totals.Opened++
		switch e.Source {
		case SourceLocal:
			e.Wait = m.drawWait()
			m.until = m.now + e.Wait
		case SourceShared:
			e.Wait = m.wait
			m.until = m.fleet.since + e.Wait
		case SourceForced:
			e.Wait = m.forceEnds - m.now
		}
	case HalfOpen:
		m.half.begin(m.now)
	}
	m.state, m.since = to, m.now
	m.generation++
	m.fleet.own = e.Source == SourceLocal && (to != Closed || m.fleet.state != Closed)
	m.fleet.past.take(&m.ring)
	m.ring.clear()
	m.streak, m.run = 0, run{}
	m.moved = true
	e.Generation = m.generation
	if m.pending < maxEvents {
		m.events[m.pending] = e
		m.pending++
	}
}

// healthy reports whether the service has shown health since the breaker closed: it stayed closed for at least the
// last wait and saw enough successes in that time. Quiet alone proves nothing.
func (m *machine) healthy() bool {
	return m.good >= m.cfg.FailureMinCalls && m.now-m.since >= m.wait
}

// drawWait counts an opening and returns how long it lasts. The wait grows until the service has shown health.
func (m *machine) drawWait() time.Duration {
	if m.state == Closed && m.healthy() {
		m.openStreak = 0
	}
	wait := float64(m.cfg.waitAfter(m.openStreak))
	if m.cfg.OpenJitter > 0 {
		wait *= 1 + m.cfg.OpenJitter*(2*m.unit()-1)
	}
	m.openStreak++
	m.wait = time.Duration(wait)
	return m.wait
}

// waitAfter is the wait, before jitter, of an opening that follows n others; c has its defaults.
func (c Config) waitAfter(n int) time.Duration {
	return time.Duration(min(float64(c.OpenWait)*math.Pow(c.OpenGrowth, float64(n)), float64(c.OpenWaitMax)))
}

// setMode changes what the breaker may act on. Disabling closes it; the other modes keep the state they find.
func (m *machine) setMode(now time.Duration, mode Mode) {
	m.tick(now)
	if mode == m.mode {
		return
	}
	if m.mode == ModeDisabled {
		m.fleet.behind = true
	}
	m.mode, m.moved = mode, true
	if mode == ModeDisabled && m.force == ForceNone {
		m.openStreak = 0
		m.move(Closed, Event{Reason: ReasonDisabled, Source: SourceForced})
	}
}

// setForce puts a force on, in place of the one before.
func (m *machine) setForce(now time.Duration, force Force, ends time.Duration) {
	m.tick(now)
	switch force {
	case ForceNone:
		if m.force != ForceNone {
			m.release()
		}
		return
	case ForceObserve:
		if m.force.holds() {
			m.release()
		}
	case ForceOpen, ForceClosed:
	}
	m.force, m.forceEnds, m.fleet.forced = force, ends, false
	m.totals.ForcedStates++
	if force == ForceObserve {
		m.moved = true
		return
	}
	to := Open
	if force == ForceClosed {
		to = Closed
	}
	m.move(to, Event{Reason: ReasonForced, Source: SourceForced})
}

// release ends a force. A service that was kept away from calls is met carefully, through half-open.
func (m *machine) release() {
	if m.force == ForceObserve && m.mode != ModeDisabled {
		m.force, m.fleet.forced, m.moved = ForceNone, false, true
		return
	}
	to := Closed
	if m.force == ForceOpen && m.mode != ModeDisabled {
		to = HalfOpen
	}
	m.force, m.fleet.forced, m.fleet.behind = ForceNone, false, true
	m.move(to, Event{Reason: ReasonForceEnded, Source: SourceForced})
}

// gateKind is what the shell may answer without asking the machine.
type gateKind uint8

const (
	gateAsk    gateKind = iota // only the machine knows
	gateAdmit                  // admit as closed
	gateFree                   // admit as closed; neither the moment nor the permit's start matters
	gateRefuse                 // refuse
)

// gate returns the answer that holds for every call before until, unless a step moves the machine.
func (m *machine) gate() (kind gateKind, until time.Duration) {
	until = forever
	if m.force != ForceNone {
		until = m.forceEnds
	}
	switch m.state {
	case Closed:
		if m.force == ForceNone && m.cfg.SlowCall == 0 {
			return gateFree, until
		}
		return gateAdmit, until
	case Open:
		if !m.refuses() {
			return gateAsk, 0
		}
		if m.force == ForceNone {
			until = m.until
		}
		return gateRefuse, until
	case HalfOpen:
	}
	return gateAsk, 0
}
