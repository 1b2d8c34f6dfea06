package replay

import (
	"time"

	"spillway/order"
)

// paceStep is how long the pace stays the same, unless answers turn bad.
const paceStep = time.Second

// pace bounds how many orders the replay has in flight. It starts with one and doubles with each step of good answers,
// so that the backlog of an outage does not fall on a service that has only just come back. It is a plain value: each
// method returns the next one.
type pace struct {
	limit   int // 1 to ceiling
	ceiling int
	since   time.Time // when the step began
	good    int       // answers of the step that showed the service well
	bad     int       // and ill
}

// newPace is the pace of a service nothing is known about.
func newPace(ceiling int) pace { return pace{limit: 1, ceiling: ceiling} }

// after is the pace once an attempt has ended in outcome at now.
//
// A step ends after paceStep and one answer per slot: more than a tenth of them bad halves the limit, else it doubles. As
// many bad answers as slots end the step at once. Our breaker's refusal starts over with one.
func (p pace) after(outcome order.Outcome, now time.Time) pace {
	if p.since.IsZero() {
		p.since = now
	}
	switch outcome {
	case order.OutcomeSucceeded, order.OutcomeRejected, order.OutcomeInvalid:
		p.good++
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown, order.NoOutcome:
		p.bad++
	case order.OutcomeRefused:
		return newPace(p.ceiling)
	case order.OutcomeCancelled:
		return p // our own doing: it says nothing of the service
	}
	switch {
	case p.bad >= p.limit:
		return pace{limit: max(1, p.limit/2), ceiling: p.ceiling, since: now}
	case now.Sub(p.since) < paceStep || p.good+p.bad < p.limit:
		return p
	case p.bad*10 > p.good+p.bad:
		return pace{limit: max(1, p.limit/2), ceiling: p.ceiling, since: now}
	default:
		return pace{limit: min(p.ceiling, p.limit*2), ceiling: p.ceiling, since: now}
	}
}
