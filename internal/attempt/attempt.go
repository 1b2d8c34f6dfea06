// Package attempt makes one call under a route's rate limits, permits and breakers: rate → permit → breaker → call under a
// deadline → classified answer. It is the only place that calls an [order.Handler].
package attempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/breaker"
	"spillway/order"
)

// Permits is the permit pool of the route.
type Permits interface {
	TryAcquire(lane order.Lane) bool
	Acquire(ctx context.Context, lane order.Lane) error
	Release(lane order.Lane)
	Keep(lane order.Lane) bool
	Level
}

// Pacer is the rate limits of the route; see rate.Limiter.
type Pacer interface {
	Pace(now time.Time, lane order.Lane, tenant string) time.Duration
	PaceLive(now time.Time, tenant string) (wait time.Duration, ofTenant bool)
	PaceTenant(now time.Time, tenant string) time.Duration
	Unpace(lane order.Lane, tenant string)
}

// Level is how the pool stands.
type Level interface {
	Free(lane order.Lane) int
	Limit() int
	// Leased reports whether a call that has its permit may begin at now: not after the end of a lease of the fleet's.
	Leased(now time.Time) bool
	// Learn is told how a submit went, while its permit is held.
	Learn(began, ended time.Time, outcome order.Outcome, reason order.Reason)
}

// Config is the numbers of an attempter. The deadlines of the two calls must be set.
type Config struct {
	Submit time.Duration
	Lookup time.Duration
	// Holds says that the live lane holds records back while the breaker refuses. The other lanes always do.
	Holds bool
}

// Attempter makes attempts and lookups. It is safe for concurrent use.
type Attempter struct {
	Pacer
	Permits

	cfg     Config
	handler order.Handler
	submit  *breaker.Breaker
	lookup  *breaker.Breaker
	took    *prometheus.HistogramVec
	failed  [2]failures // of submits and lookups
}

// New makes an attempter. The caller of Submit and of Lookup takes the right from pacer and the permit from permits. took,
// where not nil, observes how long calls take, in seconds, by lane and outcome.
func New(cfg Config, pacer Pacer, permits Permits, handler order.Handler, submit, lookup *breaker.Breaker, took *prometheus.HistogramVec) *Attempter {
	return &Attempter{Pacer: pacer, Permits: permits, cfg: cfg, handler: handler, submit: submit, lookup: lookup, took: took}
}

// Room is how many submits of a lane that holds back what is refused the breaker would let begin now, one after the other,
// and whether it is half-open: then none means none for the moment. It looks at neither permits nor rates.
func (a *Attempter) Room() (n int, recovering bool) {
	return a.submit.RoomAt(time.Now(), a.Limit())
}

// LookupRoom is Room for lookups.
func (a *Attempter) LookupRoom() (n int, recovering bool) {
	return a.lookup.RoomAt(time.Now(), a.Limit())
}

// allow asks the breaker. Where the lane holds back what is refused, the breaker's ramp admits by calls in flight.
func (a *Attempter) allow(b *breaker.Breaker, lane order.Lane, now time.Time) (breaker.Permit, bool) {
	if lane == order.LaneLive && !a.cfg.Holds {
		return b.AllowAt(now)
	}
	return b.AllowBacklogAt(now, a.Limit())
}

// Submit makes one attempt. The caller holds a permit of the lane and goes on holding it: it must release it, or keep it
// for another call. When ctx ends during the call the outcome is CANCELLED, with Sent saying whether anything may have
// left. An order whose lease (o.Due, where set) has less left than a call may take is not sent: CANCELLED too.
func (a *Attempter) Submit(ctx context.Context, lane order.Lane, o *order.Order) order.Answer {
	if ctx.Err() != nil {
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown}
	}
	start := time.Now()
	// Both clocks are asked: the monotonic one stands still while a machine is suspended, the database's does not.
	if left := min(o.Due.Sub(start), o.Due.Round(0).Sub(start.Round(0))); !o.Due.IsZero() && left < a.cfg.Submit {
		// The lease could be over before the call is: somebody else may look the order up and send it meanwhile.
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.DeadlineExceeded}
	}
	if !a.Leased(start) { // the process stood still between the permit and here
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.BulkheadFull}
	}
	permit, ok := a.allow(a.submit, lane, start)
	if !ok {
		return order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	}
	answer := a.callSubmit(ctx, o)
	answer.Took, answer.Probe = time.Since(start), permit.Probe()
	vet(&answer, ctx.Err() != nil)
	if ctx.Err() != nil && unanswered(answer.Outcome) {
		answer.Sent = answer.Sent || answer.Outcome == order.OutcomeUnknown
		answer.Outcome, answer.Reason = order.OutcomeCancelled, order.Shutdown
	}
	showed := result(answer.Outcome, answer.Probe, answer.OneInstance)
	if showed == breaker.Failure { // noted first: whoever hears of the breaker's move asks for it
		a.failed[0].add(Failure{
			At: start.Add(answer.Took), Number: o.Number, RequestID: answer.RequestID, Outcome: answer.Outcome,
			Reason: answer.Reason, Status: answer.Status, Detail: answer.Detail,
		})
	}
	a.submit.DoneAt(start.Add(answer.Took), permit, showed)
	if !answer.OneInstance {
		a.Learn(start, start.Add(answer.Took), answer.Outcome, answer.Reason)
	}
	a.observe(lane, answer.Outcome, answer.Took)
	return answer
}

// vet holds a handler's answer to the closed sets. What is in none of them, and what only this worker may say, is taken
// for UNKNOWN: the order may have been applied. A handler may refuse for want of time.
func vet(a *order.Answer, stopped bool) {
	ours := (a.Outcome == order.OutcomeRefused && a.Reason != order.DeadlineExceeded) || (a.Outcome == order.OutcomeCancelled && !stopped)
	if ours || !slices.Contains(order.Outcomes(), a.Outcome) {
		a.Outcome, a.Sent = order.OutcomeUnknown, true
	}
	a.Reason = knownReason(a.Reason)
}

// vetFinding does the same for a lookup: what is in no set is no verdict.
func vetFinding(f *order.Finding) {
	if (f.Verdict == order.VerdictRefused && f.Reason != order.DeadlineExceeded) || !slices.Contains(order.Verdicts(), f.Verdict) {
		f.Verdict = order.VerdictNone
	}
	if !slices.Contains(order.Outcomes(), f.Outcome) {
		f.Outcome = order.OutcomeUnknown
		if f.Verdict != order.VerdictNone {
			f.Outcome = order.OutcomeSucceeded
		}
	}
	f.Reason = knownReason(f.Reason)
}

func knownReason(r order.Reason) order.Reason {
	if r != order.NoReason && !slices.Contains(order.Reasons(), r) {
		return order.UpstreamUnexpected
	}
	return r
}

// callSubmit calls the handler under the deadline. A panic may have come at any point of the call.
func (a *Attempter) callSubmit(ctx context.Context, o *order.Order) (answer order.Answer) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Submit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			answer = order.Answer{
				Outcome: order.OutcomeUnknown, Reason: order.HandlerPanic, Sent: true, Detail: fmt.Sprint("panic: ", p),
			}
		}
	}()
	return a.handler.Submit(ctx, o)
}

// Lookup asks what became of an order. The caller holds a permit of the lane; it is given back when the call has
// ended. A finding whose ctx ended is VerdictRefused: nothing was learnt and nothing is counted.
func (a *Attempter) Lookup(ctx context.Context, lane order.Lane, o *order.Order) order.Finding {
	defer a.Release(lane)
	if ctx.Err() != nil {
		return order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeCancelled, Reason: order.Shutdown}
	}
	start := time.Now()
	if !a.Leased(start) {
		return order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeCancelled, Reason: order.BulkheadFull}
	}
	permit, ok := a.allow(a.lookup, lane, start)
	if !ok {
		return order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	}
	f := a.callLookup(ctx, o)
	f.Took, f.Probe = time.Since(start), permit.Probe()
	vetFinding(&f)
	if ctx.Err() != nil && f.Verdict == order.VerdictNone {
		f.Verdict, f.Outcome, f.Reason = order.VerdictRefused, order.OutcomeCancelled, order.Shutdown
	}
	showed := result(f.Outcome, f.Probe, f.OneInstance)
	if showed == breaker.Failure {
		a.failed[1].add(Failure{
			At: start.Add(f.Took), Number: o.Number, RequestID: f.RequestID, Outcome: f.Outcome,
			Reason: f.Reason, Status: f.Status, Detail: f.Detail,
		})
	}
	a.lookup.DoneAt(start.Add(f.Took), permit, showed)
	a.observe(lane, f.Outcome, f.Took)
	return f
}

func (a *Attempter) callLookup(ctx context.Context, o *order.Order) (f order.Finding) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Lookup)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			f = order.Finding{Outcome: order.OutcomeUnknown, Reason: order.HandlerPanic, Detail: fmt.Sprint("panic: ", p)}
		}
	}()
	return a.handler.Lookup(ctx, o)
}

func (a *Attempter) observe(lane order.Lane, o order.Outcome, took time.Duration) {
	if a.took != nil {
		a.took.WithLabelValues(lane.String(), o.String()).Observe(took.Seconds())
	}
}

// unanswered reports whether the downstream did not say anything: then our own cancelling explains the outcome.
func unanswered(o order.Outcome) bool {
	switch o {
	case order.OutcomeUnknown, order.OutcomeNotSent:
		return true
	case order.NoOutcome, order.OutcomeSucceeded, order.OutcomeRejected, order.OutcomeInvalid, order.OutcomeOverloaded,
		order.OutcomeRefused, order.OutcomeCancelled:
		return false
	}
	return false
}

// result is what the breaker learns of an outcome: the contract's table. A probe answered with a refusal of the
// request itself has shown what it was sent for: the service is alive. A failure of one instance while the others are well
// is no evidence against the service.
func result(o order.Outcome, probe, oneInstance bool) breaker.Result {
	if probe && o == order.OutcomeInvalid {
		return breaker.Success
	}
	switch o {
	case order.OutcomeSucceeded, order.OutcomeRejected:
		return breaker.Success
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown:
		if oneInstance {
			return breaker.Ignored
		}
		return breaker.Failure
	case order.NoOutcome, order.OutcomeInvalid, order.OutcomeRefused, order.OutcomeCancelled:
		return breaker.Ignored
	}
	return breaker.Ignored
}
