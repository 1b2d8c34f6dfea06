package replay

import (
	"time"

	"spillway/order"
)

// pace bounds how many calls the replay has in flight. It starts with one and doubles with each step of good answers,
// so that the backlog of an outage does not fall on a service that has only just come back. It is a plain value: each
// method returns the next one.
type pace struct {
	limit   int // 1 to ceiling
	ceiling int
	step    time.Duration // how long the limit stays the same, unless answers turn bad
	since   time.Time     // when the step began
	good    int           // answers of the step that showed the service well
	bad     int           // and ill
}

// newPace is the pace of a service nothing is known about.
func newPace(ceiling int, step time.Duration) pace {
	return pace{limit: 1, ceiling: ceiling, step: step}
}

// after is the pace once an attempt has ended in outcome at now.
//
// A step ends after its time and one answer per slot: more than a tenth of them bad halves the limit, else it doubles. As
// many bad answers as slots end the step at once.
func (p pace) after(outcome order.Outcome, now time.Time) pace {
	if p.since.IsZero() {
		p.since = now
	}
	switch outcome {
	case order.OutcomeSucceeded, order.OutcomeRejected, order.OutcomeInvalid:
		p.good++
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown, order.NoOutcome:
		p.bad++
	case order.OutcomeRefused, order.OutcomeCancelled:
		return p // our own doing: it says nothing of the service
	}
	switch {
	case p.bad >= p.limit:
		return p.at(p.limit/2, now)
	case now.Sub(p.since) < p.step || p.good+p.bad < p.limit:
		return p
	case p.bad*10 > p.good+p.bad:
		return p.at(p.limit/2, now)
	default:
		return p.at(p.limit*2, now)
	}
}

// at begins a step with another limit.
func (p pace) at(limit int, now time.Time) pace {
	return pace{limit: max(1, min(p.ceiling, limit)), ceiling: p.ceiling, step: p.step, since: now}
}
