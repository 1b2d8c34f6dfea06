package downstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"spillway/order"
)

// When is the condition of a rule. At least one of Status and Pointer must be set; both must match.
type When struct {
	// Status lists ranges of status codes; empty matches any.
	Status []StatusRange
	// Pointer is a JSON pointer into the answer's body. What it finds must be a string, number or boolean whose text is
	// one of Equals. Numbers compare as they are written: 1.0 is not 1.
	Pointer string
	Equals  []string
}

// StatusRange is a range of status codes, both ends included. A To of 0 means From alone.
type StatusRange struct{ From, To int }

// SubmitRule says what an answer to a submit means.
type SubmitRule struct {
	When    When
	Outcome order.Outcome // SUCCEEDED, REJECTED, INVALID, OVERLOADED or UNKNOWN
}

// LookupRule says what an answer to a lookup means.
type LookupRule struct {
	When    When
	Verdict order.Verdict // any but VerdictRefused
}

type submitRule struct {
	when    condition
	outcome order.Outcome
}

type lookupRule struct {
	when    condition
	verdict order.Verdict
}

// condition is a When that was checked.
type condition struct {
	status []StatusRange
	ptr    pointer
	equals []string
}

// rules is the pure part: from a complete answer to what it means.
type rules struct {
	submit     []submitRule
	lookup     []lookupRule
	deniedWait time.Duration
}

// reply is an answer that was read to its end.
type reply struct {
	status     int
	body       []byte
	retryAfter time.Duration // 0 where the service named none
}

func compileCondition(w When) (condition, error) {
	c := condition{status: slices.Clone(w.Status), equals: slices.Clone(w.Equals)}
	if len(w.Status) == 0 && w.Pointer == "" {
		return c, fmt.Errorf("matches every answer: want a status or a pointer")
	}
	for i, s := range c.status {
		if s.To == 0 {
			c.status[i].To = s.From
		}
		if s.From < 100 || s.From > 599 || c.status[i].To < s.From || c.status[i].To > 599 {
			return c, fmt.Errorf("status %d-%d: want codes from 100 to 599, the smaller first", s.From, c.status[i].To)
		}
	}
	if (w.Pointer == "") != (len(w.Equals) == 0) {
		return c, fmt.Errorf("a pointer and the texts it must equal go together")
	}
	if w.Pointer == "" {
		return c, nil
	}
	var err error
	c.ptr, err = parsePointer(w.Pointer)
	return c, err
}

// looks reports whether the condition looks into the body.
func (c *condition) looks() bool { return len(c.equals) > 0 }

func (c *condition) covers(status int) bool {
	for _, s := range c.status {
		if status >= s.From && status <= s.To {
			return true
		}
	}
	return len(c.status) == 0
}

func (c *condition) match(r reply) bool {
	if !c.covers(r.status) {
		return false
	}
	if !c.looks() {
		return true
	}
	raw, ok := c.ptr.find(r.body)
	if !ok {
		return false
	}
	text, ok := scalar(raw)
	return ok && slices.Contains(c.equals, text)
}

// outcome says what a complete answer to a submit means.
func (rs *rules) outcome(r reply) order.Answer {
	a := order.Answer{Status: r.status, Sent: true}
	confirms := false // a rule says how this service confirms in its body
	for i := range rs.submit {
		rule := &rs.submit[i]
		if rule.when.match(r) {
			a.Outcome, a.Reason = rule.outcome, reasonOf(rule.outcome, r.status)
			if a.Outcome == order.OutcomeOverloaded {
				a.RetryAfter = r.retryAfter
			}
			return a
		}
		confirms = confirms || rule.outcome == order.OutcomeSucceeded && rule.when.looks() && rule.when.covers(r.status)
	}
	switch s := r.status; {
	case s >= 200 && s <= 299 && !confirms:
		a.Outcome = order.OutcomeSucceeded
	case s == http.StatusPaymentRequired, s == http.StatusConflict, s == http.StatusUnprocessableEntity:
		a.Outcome = order.OutcomeRejected
	case s == http.StatusBadRequest, s == http.StatusNotFound, s == http.StatusRequestEntityTooLarge:
		a.Outcome = order.OutcomeInvalid
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		a.Outcome, a.RetryAfter = order.OutcomeOverloaded, r.retryAfter
	case denied(s):
		a.Outcome, a.RetryAfter = order.OutcomeOverloaded, max(rs.deniedWait, r.retryAfter)
	default:
		a.Outcome = order.OutcomeUnknown
	}
	a.Reason = reasonOf(a.Outcome, r.status)
	return a
}

// denied reports whether the service or a proxy turned down our credentials rather than the order.
func denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired
}

func reasonOf(o order.Outcome, status int) order.Reason {
	switch o {
	case order.OutcomeSucceeded:
		return order.Confirmed
	case order.OutcomeRejected:
		return order.BusinessRejected
	case order.OutcomeInvalid:
		return order.RequestRejected
	case order.OutcomeOverloaded:
		if denied(status) {
			return order.UpstreamUnexpected
		}
		return order.UpstreamOverloaded
	case order.OutcomeUnknown:
		if status >= 500 {
			return order.Upstream5xx
		}
		return order.UpstreamUnexpected
	case order.NoOutcome, order.OutcomeNotSent, order.OutcomeRefused, order.OutcomeCancelled:
	}
	return order.UpstreamUnexpected
}

// verdict says what a complete answer to a lookup means.
func (rs *rules) verdict(r reply) order.Finding {
	f := order.Finding{Status: r.status, RetryAfter: r.retryAfter}
	missing := false // a rule says how this service tells in its body that it does not know an order
	for i := range rs.lookup {
		rule := &rs.lookup[i]
		if rule.when.match(r) {
			f.Verdict = rule.verdict
			return learn(f)
		}
		missing = missing || rule.verdict == order.VerdictNotFound && rule.when.looks() && rule.when.covers(r.status)
	}
	switch s := r.status; {
	case s >= 200 && s <= 299 && len(rs.lookup) == 0:
		f.Verdict = statusVerdict(r.body)
	case s == http.StatusNotFound && !missing:
		f.Verdict = order.VerdictNotFound
	default:
		f.Verdict = order.VerdictNone
	}
	return learn(f)
}

// learn fills in the reason, and what the lookup tells the breaker: a verdict is a service that is well.
func learn(f order.Finding) order.Finding {
	switch f.Verdict {
	case order.VerdictSucceeded:
		f.Outcome, f.Reason = order.OutcomeSucceeded, order.Confirmed
	case order.VerdictFailed:
		f.Outcome, f.Reason = order.OutcomeSucceeded, order.BusinessRejected
	case order.VerdictProcessing:
		f.Outcome, f.Reason = order.OutcomeSucceeded, order.StillProcessing
	case order.VerdictNotFound:
		f.Outcome, f.Reason = order.OutcomeSucceeded, order.NotFound
	case order.VerdictNone, order.VerdictRefused:
		switch s := f.Status; {
		case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
			f.Outcome, f.Reason = order.OutcomeOverloaded, order.UpstreamOverloaded
		case s >= 500:
			f.Outcome, f.Reason = order.OutcomeUnknown, order.Upstream5xx
		default:
			f.Outcome, f.Reason = order.OutcomeUnknown, order.UpstreamUnexpected
		}
	}
	return f
}

// statusVerdict is the default reading of a 2xx answer to a lookup.
func statusVerdict(body []byte) order.Verdict {
	raw, ok := pointer{tokens: []string{"status"}}.find(body)
	if !ok {
		return order.VerdictNone
	}
	text, _ := scalar(raw)
	switch text {
	case "SUCCEEDED":
		return order.VerdictSucceeded
	case "FAILED", "REJECTED":
		return order.VerdictFailed
	case "PROCESSING", "PENDING":
		return order.VerdictProcessing
	case "NOT_FOUND":
		return order.VerdictNotFound
	}
	return order.VerdictNone
}

// maxRetryAfter bounds what is believed of Retry-After at all; the policy clamps it further.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads the header of that name: whole seconds or a date. A date is taken relative to the answer's own Date
// where it has one, so that the two clocks need not agree.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	seconds, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err == nil:
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	case errors.Is(err, strconv.ErrRange):
		return maxRetryAfter
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
