package sim

import (
	"bytes"
	"fmt"
	"time"

	"spillway/order"
)

// mode is what the downstream does with submits.
type mode int

const (
	healthy mode = iota
	slow
	overloaded     // 503, nothing done
	timeoutApplied // done, never answered
	timeoutNothing // not done, never answered
	timeoutLate    // done late, within the grace
	reset          // done or not, the connection breaks
	fiveHundred    // done or not, 500
	refusing       // no connection
	mixed          // any of these
)

func (m mode) String() string {
	return [...]string{
		"healthy", "slow", "overloaded", "timeout applied", "timeout not applied", "timeout applied late", "reset", "500",
		"refusing", "mixed",
	}[m]
}

// lookupMode is what it does with lookups.
type lookupMode int

const (
	lookupsHealthy lookupMode = iota
	lookupsSlow               // the answer is true when it is given and comes late
	lookupsSilent
	lookupsUndecided // it says PROCESSING of what it knows
)

func (m lookupMode) String() string {
	return [...]string{"lookups healthy", "lookups slow", "lookups silent", "lookups undecided"}[m]
}

// fate is what the downstream makes of a number, once and for all.
type fate int

const (
	accepts fate = iota
	rejects
	invalid
)

// downstream applies every submit that reaches it, every time, and keeps count.
type downstream struct {
	*world
	mode     mode
	lookups  lookupMode
	effects  map[string]int    // times an order was applied
	rejected map[string]bool   // orders refused for good
	fates    map[string]fate   // drawn when first seen
	bodies   map[string][]byte // of the first submit
}

func newDownstream(s *world) *downstream {
	return &downstream{
		world: s, effects: map[string]int{}, rejected: map[string]bool{}, fates: map[string]fate{}, bodies: map[string][]byte{},
	}
}

func (d *downstream) change() {
	d.mode = mode(d.rng.IntN(int(mixed) + 1))
	if d.cursed == extend && d.chance(0.5) {
		d.mode = slow // claims live long enough to be extended
	}
	d.count("mode " + d.mode.String())
	d.note("downstream: %s", d.mode)
}

func (d *downstream) changeLookups() {
	d.lookups = lookupMode(d.rng.IntN(int(lookupsUndecided) + 1))
	d.count(d.lookups.String())
	d.note("downstream: %s", d.lookups)
}

func (d *downstream) fate(number string) fate {
	f, ok := d.fates[number]
	if !ok {
		switch roll := d.rng.Float64(); {
		case roll < 0.1:
			f = rejects
		case roll < 0.15:
			f = invalid
		}
		d.fates[number] = f
	}
	return f
}

// apply makes the order's effect and returns what an answer would say.
func (d *downstream) apply(o *order.Order) order.Answer {
	switch d.fate(o.Number) {
	case accepts:
		d.effects[o.Number]++
		d.note("downstream: applies %s", o.Number)
		if n := d.effects[o.Number]; n > 1 {
			d.violate("I6", "%s was applied %d times", o.Number, n)
		}
		return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Status: 200, Sent: true}
	case rejects:
		d.rejected[o.Number] = true
		return order.Answer{Outcome: order.OutcomeRejected, Reason: order.BusinessRejected, Status: 422, Sent: true}
	case invalid:
	}
	return order.Answer{Outcome: order.OutcomeInvalid, Reason: order.RequestRejected, Status: 400, Sent: true}
}

// submit is a request that arrives, begun a while ago. It returns the answer and when it is sent, or ok false where
// none will come.
func (d *downstream) submit(o *order.Order, begun time.Time) (a order.Answer, delay time.Duration, ok bool) {
	if first, seen := d.bodies[o.Number]; !seen {
		d.bodies[o.Number] = o.Message.Value
	} else if !bytes.Equal(first, o.Message.Value) {
		d.violate("I6", "%s was sent with two bodies", o.Number)
	}
	m := d.mode
	if m == mixed {
		m = mode(d.rng.IntN(int(mixed)))
	}
	switch m {
	case healthy, mixed:
		return d.apply(o), d.between(time.Millisecond, 30*time.Millisecond), true
	case slow:
		return d.apply(o), d.between(50*time.Millisecond, d.timeout), true
	case overloaded:
		a = order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Status: 503, Sent: true}
		if d.chance(0.3) {
			a.RetryAfter = d.between(time.Second, 5*time.Second)
		}
		return a, time.Millisecond, true
	case timeoutApplied:
		d.apply(o)
		return a, 0, false
	case timeoutNothing:
		return a, 0, false
	case timeoutLate:
		o := *o
		// Within the grace of its beginning, and not at its very last moment.
		d.at(begun.Add(d.between(d.timeout, d.policy.Grace-time.Millisecond)), func() { d.apply(&o) })
		return a, 0, false
	case reset, fiveHundred:
		if d.chance(0.5) {
			d.apply(o)
		}
		a = order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamReset, Sent: true}
		if m == fiveHundred {
			a.Reason, a.Status = order.Upstream5xx, 500
		}
		return a, time.Millisecond, true
	case refusing:
		return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}, 0, true
	}
	panic(fmt.Sprintf("mode %d", m))
}

// lookup is a question that arrives; the answer is true at this moment.
func (d *downstream) lookup(o *order.Order) (f order.Finding, delay time.Duration, ok bool) {
	f = order.Finding{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Status: 200}
	known := true
	switch {
	case d.effects[o.Number] > 0:
		f.Verdict = order.VerdictSucceeded
	case d.rejected[o.Number]:
		f.Verdict = order.VerdictFailed
	default:
		known = false
		f.Verdict, f.Reason, f.Status = order.VerdictNotFound, order.NotFound, 404
	}
	delay = d.between(time.Millisecond, 20*time.Millisecond)
	switch d.lookups {
	case lookupsHealthy:
	case lookupsSlow:
		delay = d.between(20*time.Millisecond, d.timeout)
	case lookupsSilent:
		return f, 0, false
	case lookupsUndecided:
		if known {
			f.Verdict, f.Reason = order.VerdictProcessing, order.StillProcessing
		}
	}
	d.note("downstream: says %s of %s", f.Verdict, o.Number)
	if f.Verdict == order.VerdictNotFound {
		d.checker.notFound(o.Number)
	}
	return f, delay, true
}
