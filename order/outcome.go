package order

import (
	"fmt"
	"time"
)

// Outcome is what one attempt showed. The set is closed; see the contract's table of outcomes.
type Outcome int16

// The outcomes. Their numbers are stored in Postgres.
const (
	NoOutcome         Outcome = 0 // a handler that answered nothing: treated as OutcomeUnknown
	OutcomeSucceeded  Outcome = 1 // the downstream confirmed the order
	OutcomeRejected   Outcome = 2 // a business refusal: the service is well, the order is not
	OutcomeInvalid    Outcome = 3 // the order can never be accepted as it is
	OutcomeOverloaded Outcome = 4 // the service sheds load and did nothing
	OutcomeNotSent    Outcome = 5 // nothing left this machine
	OutcomeUnknown    Outcome = 6 // it may have been applied, or not
	OutcomeRefused    Outcome = 7 // our own gate said no; nothing was sent
	OutcomeCancelled  Outcome = 8 // our own shutdown or rebalance
)

// Outcomes lists every outcome an attempt can end in.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeSucceeded, OutcomeRejected, OutcomeInvalid, OutcomeOverloaded,
		OutcomeNotSent, OutcomeUnknown, OutcomeRefused, OutcomeCancelled,
	}
}

func (o Outcome) String() string {
	switch o {
	case NoOutcome:
		return "-"
	case OutcomeSucceeded:
		return "SUCCEEDED"
	case OutcomeRejected:
		return "REJECTED"
	case OutcomeInvalid:
		return "INVALID"
	case OutcomeOverloaded:
		return "OVERLOADED"
	case OutcomeNotSent:
		return "NOT_SENT"
	case OutcomeUnknown:
		return "UNKNOWN"
	case OutcomeRefused:
		return "REFUSED"
	case OutcomeCancelled:
		return "CANCELLED"
	}
	return fmt.Sprintf("Outcome(%d)", int16(o))
}

// ParseOutcome reads an outcome's name as String writes it.
func ParseOutcome(name string) (Outcome, error) {
	for _, o := range Outcomes() {
		if o.String() == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("outcome %q: want one of %v", name, Outcomes())
}

// Reason is the closed set of codes that say why. Reasons are labels and columns; they are never parsed out of
// error text.
type Reason string

// The reasons.
const (
	NoReason            Reason = ""
	Confirmed           Reason = "CONFIRMED"             // the downstream said so, to an attempt or a lookup
	BusinessRejected    Reason = "BUSINESS_REJECTED"     // a business refusal
	RequestRejected     Reason = "REQUEST_REJECTED"      // the downstream can't take the request as it is (400, 404, 413)
	Undecodable         Reason = "UNDECODABLE"           // the record can't be read as the route expects
	NoNumber            Reason = "NO_BUSINESS_NUMBER"    // no business number in the record, or not a legal one
	NullValue           Reason = "NULL_VALUE"            // a tombstone
	EmptyValue          Reason = "EMPTY_VALUE"           // a value of no bytes
	RecordTooLarge      Reason = "RECORD_TOO_LARGE"      // more bytes than the replay queue can hold
	PayloadConflict     Reason = "PAYLOAD_CONFLICT"      // the business number is there already with another payload
	RateLimited         Reason = "RATE_LIMITED"          // our rate limit
	BulkheadFull        Reason = "BULKHEAD_FULL"         // no permit in time
	CircuitOpen         Reason = "CIRCUIT_OPEN"          // our breaker
	DeadlineExceeded    Reason = "DEADLINE_EXCEEDED"     // no time left before the call began
	UpstreamTimeout     Reason = "UPSTREAM_TIMEOUT"      // no answer in time after sending
	UpstreamReset       Reason = "UPSTREAM_RESET"        // the connection broke after sending, or the answer was cut
	Upstream5xx         Reason = "UPSTREAM_5XX"          // 500, 502, 504 and their like
	UpstreamOverloaded  Reason = "UPSTREAM_OVERLOADED"   // 429, 503
	UpstreamUnexpected  Reason = "UPSTREAM_UNEXPECTED"   // an answer no rule covers
	ConnectFailed       Reason = "CONNECT_FAILED"        // DNS, refused, TLS, no connection
	HandlerPanic        Reason = "HANDLER_PANIC"         // the handler panicked
	Shutdown            Reason = "SHUTDOWN"              // our own shutdown
	Revoked             Reason = "REVOKED"               // the partition went to another worker
	WorkerDied          Reason = "WORKER_DIED"           // the lease ran out: its owner died or stalled
	NotFound            Reason = "NOT_FOUND"             // a lookup: the downstream does not know the order
	StillProcessing     Reason = "STILL_PROCESSING"      // a lookup: the downstream has not decided
	NoVerdict           Reason = "NO_VERDICT"            // a lookup that showed nothing
	AttemptsExhausted   Reason = "ATTEMPTS_EXHAUSTED"    // the cap on attempts
	LookupsExhausted    Reason = "LOOKUPS_EXHAUSTED"     // the cap on lookups
	Skipped             Reason = "SKIPPED"               // the route's degrade rule is skip
	Requeued            Reason = "REQUEUED"              // a person sent a dead letter back
	DiscardedByOperator Reason = "DISCARDED"             // a person gave it up
	QueueItemUnreadable Reason = "QUEUE_ITEM_UNREADABLE" // an entry of the replay queue that can't be read
)

// Reasons lists every reason: the bound on the label set of every metric that has one.
func Reasons() []Reason {
	return []Reason{
		Confirmed, BusinessRejected, RequestRejected, Undecodable, NoNumber, NullValue, EmptyValue, RecordTooLarge, PayloadConflict,
		RateLimited, BulkheadFull, CircuitOpen, DeadlineExceeded, UpstreamTimeout, UpstreamReset, Upstream5xx,
		UpstreamOverloaded, UpstreamUnexpected, ConnectFailed, HandlerPanic, Shutdown, Revoked, WorkerDied, NotFound,
		StillProcessing, NoVerdict, AttemptsExhausted, LookupsExhausted, Skipped, Requeued, DiscardedByOperator,
		QueueItemUnreadable,
	}
}

// MaxDetail bounds the free text of an answer, in bytes. It is for people and is never parsed.
const MaxDetail = 512

// Answer is what one attempt showed.
type Answer struct {
	Outcome Outcome
	Reason  Reason
	Detail  string // free text for people, cut to MaxDetail; holds no secret
	Status  int    // the transport's status code, 0 where there is none

	RetryAfter time.Duration // the service's own wish, 0 if it named none
	Took       time.Duration // of the call alone, 0 if nothing was called
	Sent       bool          // whether anything may have left this machine
	Probe      bool          // whether the breaker let it through as a probe

	// RequestID is what the service called the request, where it said so. It is for people.
	RequestID string

	// OneInstance says that the call failed at one of several instances of the service while the others are well: what
	// follows for the order is the same, but the service's breaker takes no notice.
	OneInstance bool
}

// Untried reports whether the answer says that the service was not asked at all.
func (a *Answer) Untried() bool {
	return a.Outcome == OutcomeRefused || a.Outcome == OutcomeCancelled && !a.Sent
}

// Verdict is what a lookup by business number showed.
type Verdict int16

// The verdicts.
const (
	VerdictNone       Verdict = 0 // nothing learnt: timeout, error, an answer no rule covers
	VerdictSucceeded  Verdict = 1
	VerdictFailed     Verdict = 2
	VerdictProcessing Verdict = 3 // the downstream knows it and has not decided
	VerdictNotFound   Verdict = 4 // the downstream does not know it
	VerdictRefused    Verdict = 5 // our own gate said no; nothing was asked
)

func (v Verdict) String() string {
	switch v {
	case VerdictNone:
		return "NO_VERDICT"
	case VerdictSucceeded:
		return "SUCCEEDED"
	case VerdictFailed:
		return "FAILED"
	case VerdictProcessing:
		return "PROCESSING"
	case VerdictNotFound:
		return "NOT_FOUND"
	case VerdictRefused:
		return "REFUSED"
	}
	return fmt.Sprintf("Verdict(%d)", int16(v))
}

// Verdicts lists what a lookup can end in.
func Verdicts() []Verdict {
	return []Verdict{VerdictNone, VerdictSucceeded, VerdictFailed, VerdictProcessing, VerdictNotFound, VerdictRefused}
}

// ParseVerdict reads a verdict's name as String writes it.
func ParseVerdict(name string) (Verdict, error) {
	for _, v := range Verdicts() {
		if v.String() == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf("verdict %q: want one of %v", name, Verdicts())
}

// Finding is what one lookup showed.
type Finding struct {
	Verdict Verdict
	Outcome Outcome // what the breaker learns: Succeeded where the service answered, else Overloaded, NotSent, Unknown, …
	Reason  Reason
	Detail  string
	Status  int

	RetryAfter time.Duration
	Took       time.Duration
	Probe      bool

	RequestID   string // as in Answer
	OneInstance bool   // as in Answer
}
