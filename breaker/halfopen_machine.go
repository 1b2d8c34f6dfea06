package breaker

import (
	"math"
	"time"
)

// halfOpen is what a half-open state remembers. It starts with first probes in slots, few at a time and told apart by
// token, and goes on with the ramp, whose probes are only counted by the second they started in.
type halfOpen struct {
	slots [maxProbesInFlight]probeSlot
	used  int    // slots taken
	token uint32 // of the latest use of a slot; goes on through generations
	good  int    // successes of first probes
	row   int    // bad first probes in a row

	seen sum // all results since half-open began

	ramping   bool
	rampSince time.Duration
	step      int     // the step of the ramp that credit belongs to
	share     float64 // of calls admitted in this step
	credit    float64 // admitted calls owed

	// under[i] is how many probes of the ramp started in a second s with s % len(under) = i and are not reported.
	// Seconds before oldest are settled.
	under  []int32
	oldest int64
	open   int // sum of under
}

type probeSlot struct {
	start time.Duration
	token uint32
	used  bool
}

func newHalfOpen(deadline time.Duration) halfOpen {
	return halfOpen{under: make([]int32, deadline/time.Second+3)}
}

// begin empties everything for a new half-open state.
func (h *halfOpen) begin(now time.Duration) {
	under := h.under
	clear(under)
	*h = halfOpen{token: h.token, under: under, oldest: int64(now / time.Second)}
}

// tickHalfOpen settles probes past their deadline, then moves the ramp on.
func (m *machine) tickHalfOpen() {
	h := &m.half
	if h.used > 0 {
		for i := range h.slots {
			s := &h.slots[i]
			if !s.used || m.now < s.start+m.cfg.PermitDeadline {
				continue
			}
			s.used = false
			h.used--
			if m.lost(1, !h.ramping) {
				return
			}
		}
	}
	if !h.ramping {
		return
	}
	// A second is settled once the deadline of its last moment has passed. While anything is open the oldest of it is
	// less than len(under) seconds away, so the loop is short however long nobody called.
	settled := int64((m.now - m.cfg.PermitDeadline) / time.Second)
	for ; h.open > 0 && h.oldest < settled; h.oldest++ {
		n := &h.under[h.oldest%int64(len(h.under))]
		gone := int(*n)
		if gone == 0 {
			continue
		}
		*n = 0
		h.open -= gone
		if m.lost(gone, false) {
			return
		}
	}
	h.oldest = max(h.oldest, settled)
	m.climb()
}

// lost counts n probes that were never reported as failed, and reports whether that moved the machine.
func (m *machine) lost(n int, first bool) bool {
	m.totals.Lost += uint64(n) //nolint:gosec // n is a count
	return m.probeVerdict(Failure, n, 0, first)
}

// climb sets the share of the moment. At the top the breaker closes, unless the few calls of a quiet ramp were bad.
func (m *machine) climb() {
	h := &m.half
	step := int((m.now - h.rampSince) / m.cfg.RampStep)
	if step == h.step && h.share > 0 {
		return
	}
	h.step = step
	h.share = m.cfg.RampStart * math.Pow(m.cfg.RampFactor, float64(step))
	if h.share < 1 {
		if m.floor(step) {
			h.credit = max(h.credit, 1)
		}
		return
	}
	if m.following() {
		h.share = 1 // until the record closes, or its word ends
		return
	}
	if reason := m.judgeRamp(1, 0); reason != ReasonNone {
		m.move(Open, m.evidence(reason))
		return
	}
	m.move(Closed, m.evidence(ReasonRampDone))
}

// probe admits a call while half-open, if one may go. Of arrivals (width 0) the ramp admits its share: each adds that
// much credit, and one call costs 1. The holder of a backlog (width > 0) decides itself how often it asks, so that a
// share of its asking would mean nothing: it may have its share of width in flight.
func (m *machine) probe(width int) (Permit, bool) {
	h := &m.half
	p := Permit{start: m.now, generation: m.generation, place: place(permitRamp)}
	if h.ramping {
		if width == 0 {
			h.credit += h.share
		}
		owed := h.credit >= 1
		if !owed && h.open >= h.part(width) {
			return Permit{}, false
		}
		if owed {
			h.credit--
		}
		h.under[int64(m.now/time.Second)%int64(len(h.under))]++
		h.open++
		return p, true
	}
	if h.used >= m.probeLimit() {
		m.fleet.wanted = true
		return Permit{}, false
	}
	for i := range m.cfg.ProbesInFlight {
		if s := &h.slots[i]; !s.used {
			h.token++
			h.used++
			*s = probeSlot{start: m.now, token: h.token, used: true}
			p.place = firstPlace(i, h.token)
			return p, true
		}
	}
	return Permit{}, false
}

// probeFree reports whether probe would admit a call.
func (m *machine) probeFree() bool {
	if m.half.ramping {
		return m.half.credit+m.half.share >= 1
	}
	if m.half.used >= m.probeLimit() {
		m.fleet.wanted = true
		return false
	}
	return true
}

// part is how many calls of a backlog of this width the ramp's share stands for.
func (h *halfOpen) part(width int) int { return int(h.share*float64(width) + 0.5) }

// probesFree is how many calls of a backlog of this width probe would admit.
func (m *machine) probesFree(width int) int {
	h := &m.half
	if h.ramping {
		return max(h.part(width)-h.open, int(h.credit), 0)
	}
	n := m.probeLimit() - h.used
	if n <= 0 {
		m.fleet.wanted = true
	}
	return max(n, 0)
}

// probeResult takes the report of a probe of this generation. A report that comes twice, or after its probe was
// counted lost, finds its slot or second settled and decides nothing.
func (m *machine) probeResult(p Permit, result Result) {
	h := &m.half
	if p.place.kind() == permitFirst {
		s := &h.slots[p.place.slot()]
		if !s.used || s.token != p.place.token() {
			m.totals.Late++
			return
		}
		s.used = false
		h.used--
	} else {
		second := int64(p.start / time.Second)
		n := &h.under[second%int64(len(h.under))]
		if second < h.oldest || *n == 0 {
			m.totals.Late++
			return
		}
		*n--
		h.open--
		if result == Ignored {
			h.credit++ // the step is still owed the probe that showed nothing
		}
	}
	if result != Ignored {
		m.probeVerdict(result, 1, p.number, !h.ramping)
	}
}

// probeVerdict records n equal results of probes (number as in record) and reports whether they moved the machine. First
// probes are judged by how many in a row are bad; at volume that is noise, so the ramp is judged by rates.
func (m *machine) probeVerdict(result Result, n int, number uint64, first bool) bool {
	h := &m.half
	m.record(result, n, number)
	b := bucket{samples: int32(n)} //nolint:gosec // n is a count of permits of a few seconds
	bad := false
	switch result {
	case Failure:
		bad, b.failures = true, b.samples
	case Slow:
		bad, b.slow = m.cfg.SlowRate > 0, b.samples
	case Success, Ignored:
	}
	h.seen.add(b, 1)
	if first {
		return m.firstVerdict(bad)
	}
	reason := m.judge(result)
	if reason == ReasonNone {
		reason = m.judgeRamp(m.cfg.RampMinCalls, m.cfg.Z)
	}
	if reason == ReasonNone {
		return false
	}
	m.move(Open, m.evidence(reason))
	return true
}

// firstVerdict counts a first probe and reopens, starts the ramp or closes when that is decided.
func (m *machine) firstVerdict(bad bool) bool {
	h := &m.half
	if bad {
		h.row++
		if h.row < m.cfg.ProbeFailures {
			return false
		}
		m.move(Open, m.evidence(ReasonProbesFailed))
		return true
	}
	h.row = 0
	h.good++
	if m.following() {
		return false // the record counts the probes of all
	}
	if n := m.cfg.SuccessesToClose; n > 0 {
		if h.good < n {
			return false
		}
		m.move(Closed, m.evidence(ReasonProbesSucceeded))
		return true
	}
	if h.good < m.cfg.FirstProbes {
		return false
	}
	h.ramping, h.rampSince, h.oldest = true, m.now, int64(m.now/time.Second)
	m.fleet.own = true
	generation := m.generation
	m.climb()
	return m.generation != generation
}

// judgeRamp compares the rates of all results since half-open began, for traffic too thin to fill a window.
func (m *machine) judgeRamp(minimum int, z float64) Reason {
	seen := &m.half.seen
	if tooMany(seen.failures, seen.samples, minimum, m.cfg.FailureRate, z) {
		return ReasonRampFailureRate
	}
	if tooMany(seen.slow, seen.samples, minimum, m.cfg.SlowRate, z) {
		return ReasonRampSlowRate
	}
	return ReasonNone
}
