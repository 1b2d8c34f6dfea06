package order

import (
	"fmt"
	"strings"
	"time"
)

// Degrade is what a breaker's refusal of a fresh record leads to.
type Degrade int

// The degrade rules.
const (
	Spill Degrade = iota // into the replay queue
	Hold                 // the partition pauses; the record waits
	Skip                 // a dead letter with reason SKIPPED, listed for later
)

func (d Degrade) String() string {
	switch d {
	case Spill:
		return "spill"
	case Hold:
		return "hold"
	case Skip:
		return "skip"
	}
	return fmt.Sprintf("Degrade(%d)", int(d))
}

// Policy is a route's rules: what follows from an outcome or a finding. Its methods are pure. All fields must be
// set; the config package gives defaults.
type Policy struct {
	Degrade Degrade

	ReplayAttempts      int           // cap on attempts of one life, the first included
	ReplayAttemptsTotal int           // bound on all attempts of one life, probes and polite refusals included
	RetryDelay          time.Duration // before the second attempt; doubles after that
	RetryDelayMax       time.Duration
	RetryAfterMax       time.Duration // a service's Retry-After is clamped to it
	ReplayPatience      time.Duration // after which the scanner asks whether the replay queue still has an order
	Reread              time.Duration // after which the scanner takes it that a withdrawn order's record is not read again

	CompensateAfter    time.Duration // from an unknown outcome to the first lookup
	CompensateAttempts int           // lookups without a verdict before a dead letter
	LookupDelay        time.Duration // after the first lookup without a verdict; doubles after that
	LookupDelayMax     time.Duration
	Grace              time.Duration // since the last attempt, before "not found" is believed
	FailNotFound       bool          // not found means FAILED instead of a resend
}

// AfterAttempt says what an attempt's answer makes of the order. The attempt has been counted already, in
// o.Attempts and o.AttemptsTotal. jitter is a random number in [0,1).
func (p Policy) AfterAttempt(o *Order, a Answer, now time.Time, jitter float64) Transition {
	t := Transition{
		State: Processing, Attempts: o.Attempts, AttemptsTotal: o.AttemptsTotal,
		Outcome: a.Outcome, Reason: a.Reason, Detail: cut(a.Detail),
	}
	switch a.Outcome {
	case OutcomeSucceeded:
		t.State = Succeeded
	case OutcomeRejected:
		t.State = Failed
	case OutcomeInvalid:
		t.State = Dead
	case OutcomeOverloaded:
		if a.Probe || a.RetryAfter > 0 {
			t.Attempts-- // the service was known to be ill, or asked for time: not against the cap
		}
		p.retry(&t, p.delay(t.AttemptsTotal, jitter), a.RetryAfter, now)
	case OutcomeNotSent:
		t.Attempts-- // the service never saw the order: its being away must not bury it
		p.retry(&t, p.delay(t.AttemptsTotal, jitter), 0, now)
	case OutcomeUnknown, NoOutcome:
		if a.Probe {
			t.Attempts--
		}
		p.unknown(&t, now)
	case OutcomeRefused:
		p.refused(&t, o, a, now, jitter)
	case OutcomeCancelled:
		if a.Sent {
			p.unknown(&t, now)
			break
		}
		untry(&t)
		p.replay(&t, now)
	}
	return t
}

// Retry counts a second attempt that follows a NOT_SENT one without going through the replay queue. It reports false, and
// changes nothing, where the bound on all attempts leaves none. The record says so once that attempt is settled: until then
// it counts one attempt, and not more than one can have reached the service.
func (p Policy) Retry(o *Order) bool {
	if o.AttemptsTotal >= p.ReplayAttemptsTotal {
		return false
	}
	o.AttemptsTotal++ // and one more against the cap, from which NOT_SENT takes one off
	return true
}

// Withdraw is the settlement of an order that was admitted and never sent by a reader whose time is over: it is as if it
// had never been tried. Its record's offset must stay uncommitted: whoever reads it next takes the order back when
// admitting it, so that it is sent in its turn. The scanner brings it into the replay queue if nobody does within Reread.
func (p Policy) Withdraw(o *Order, why Reason, now time.Time) Settlement {
	t := Transition{
		State: Processing, Phase: Replaying, Attempts: o.Attempts, AttemptsTotal: o.AttemptsTotal,
		Outcome: OutcomeCancelled, Reason: why, NotBefore: now, Due: now.Add(p.Reread),
	}
	untry(&t)
	s := o.Settle(t)
	s.Straight = true
	return s
}

// Withdrawn reports whether an order stands as Withdraw left it, so that its record may take it back.
func Withdrawn(o *Order) bool {
	return o.State == Processing && o.Phase == Replaying && o.AttemptsTotal == 0 && o.Life == 0 && o.Outcome == OutcomeCancelled
}

// refused is the route's degrade rule. Nothing was sent, so nothing was tried. Hold never comes here from the
// live lane, which waits instead; an order of the replay queue goes back to it whatever the rule.
func (p Policy) refused(t *Transition, o *Order, a Answer, now time.Time, jitter float64) {
	untry(t)
	if p.Degrade == Skip && o.Fresh {
		t.State, t.Reason = Dead, Skipped
		t.Detail = cut("refused: " + string(a.Reason))
		return
	}
	p.replay(t, now.Add(p.delay(1, jitter)))
}

// AfterLookup says what a finding makes of the order. The lookup has been counted already, in o.Lookups.
func (p Policy) AfterLookup(o *Order, f Finding, now time.Time, jitter float64) Transition {
	t := Transition{
		State: Processing, Phase: Unknown, Attempts: o.Attempts, AttemptsTotal: o.AttemptsTotal, Lookups: o.Lookups,
		Outcome: o.Outcome, Reason: f.Reason, Detail: cut(f.Detail),
	}
	switch f.Verdict {
	case VerdictSucceeded:
		t.State, t.Phase, t.Outcome = Succeeded, NoPhase, OutcomeSucceeded
	case VerdictFailed:
		t.State, t.Phase, t.Outcome = Failed, NoPhase, OutcomeRejected
	case VerdictNotFound:
		p.notFound(&t, o, now)
	case VerdictProcessing:
		p.lookAgain(&t, f, now, jitter)
	case VerdictNone:
		if f.Probe {
			t.Lookups-- // the service was known to be ill
		}
		p.lookAgain(&t, f, now, jitter)
	case VerdictRefused:
		t.Lookups--
		t.Due = now.Add(spread(p.LookupDelay, jitter))
	}
	return t
}

func (p Policy) notFound(t *Transition, o *Order, now time.Time) {
	t.Reason = NotFound
	if ripe := o.LastAttempt.Add(p.Grace); now.Before(ripe) {
		t.Lookups-- // too early to say: the request may still be under way
		t.Due = ripe
		return
	}
	if p.FailNotFound {
		t.State, t.Phase = Failed, NoPhase
		return
	}
	p.retry(t, 0, 0, now)
}

func (p Policy) lookAgain(t *Transition, f Finding, now time.Time, jitter float64) {
	if t.Lookups >= p.CompensateAttempts {
		t.State, t.Phase = Dead, NoPhase
		t.Detail = cut(string(t.Reason) + ": " + t.Detail)
		t.Reason = LookupsExhausted
		return
	}
	wait := spread(double(p.LookupDelay, t.Lookups-1, p.LookupDelayMax), jitter)
	t.Due = now.Add(max(wait, min(f.RetryAfter, p.RetryAfterMax)))
}

// Requeue is a person's doing: a dead letter starts a new life. It is looked up first, so that an order that was
// applied after all is not sent again.
func (p Policy) Requeue(now time.Time) Transition {
	return Transition{State: Processing, Phase: Unknown, Reason: Requeued, Due: now}
}

// retry hands the order to the replay queue, or to the dead letters once a cap is reached.
func (p Policy) retry(t *Transition, delay, retryAfter time.Duration, now time.Time) {
	if t.Attempts >= p.ReplayAttempts || t.AttemptsTotal >= p.ReplayAttemptsTotal {
		t.State, t.Phase = Dead, NoPhase
		t.Detail = cut(fmt.Sprintf("%s after %d attempts (%d in all): %s", t.Reason, t.Attempts, t.AttemptsTotal, t.Detail))
		t.Reason = AttemptsExhausted
		return
	}
	p.replay(t, now.Add(max(delay, min(retryAfter, p.RetryAfterMax))))
}

func (p Policy) replay(t *Transition, notBefore time.Time) {
	t.State, t.Phase, t.Lookups = Processing, Replaying, 0
	t.NotBefore = notBefore
	t.Due = notBefore.Add(p.ReplayPatience)
}

func (p Policy) unknown(t *Transition, now time.Time) {
	t.State, t.Phase, t.Lookups = Processing, Unknown, 0
	t.Due = now.Add(p.CompensateAfter)
}

// delay is what to wait after the nth attempt: RetryDelay, doubled for each attempt after the first.
func (p Policy) delay(attempts int, jitter float64) time.Duration {
	return spread(double(p.RetryDelay, attempts-1, p.RetryDelayMax), jitter)
}

// untry takes back the count of an attempt that never left.
func untry(t *Transition) {
	t.Attempts--
	t.AttemptsTotal--
}

func double(d time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(d, limit)
}

// spread adds up to a fifth, so that orders that failed together do not come back together.
func spread(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d)*jitter/5)
}

// cut makes free text fit for a column and a terminal: valid UTF-8 without NUL, at most MaxDetail bytes.
func cut(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) > MaxDetail {
		s = strings.ToValidUTF8(s[:MaxDetail-3], "") + "..."
	}
	return s
}
