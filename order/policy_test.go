package order_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"spillway/order"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testPolicy() order.Policy {
	return order.Policy{
		Degrade:        order.Spill,
		ReplayAttempts: 3, ReplayAttemptsTotal: 20,
		RetryDelay: time.Second, RetryDelayMax: 10 * time.Second, RetryAfterMax: 5 * time.Minute, ReplayPatience: time.Minute,
		CompensateAfter: 5 * time.Second, CompensateAttempts: 4, LookupDelay: time.Second, LookupDelayMax: 30 * time.Second,
		Grace: 10 * time.Second,
	}
}

// inFlight is an order whose attempt has just ended.
func inFlight(attempts, total int) *order.Order {
	return &order.Order{
		State: order.Processing, Phase: order.InFlight, Version: 1, Attempts: attempts, AttemptsTotal: total, LastAttempt: noon,
	}
}

func TestAfterAttemptOfEachOutcome(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	replayAt := func(d time.Duration, attempts, total int) order.Transition {
		return order.Transition{
			State: order.Processing, Phase: order.Replaying, Attempts: attempts, AttemptsTotal: total,
			NotBefore: noon.Add(d), Due: noon.Add(d + p.ReplayPatience),
		}
	}
	lookAt := func(attempts, total int) order.Transition {
		return order.Transition{
			State: order.Processing, Phase: order.Unknown, Attempts: attempts, AttemptsTotal: total, Due: noon.Add(p.CompensateAfter),
		}
	}
	end := func(s order.State, attempts, total int) order.Transition {
		return order.Transition{State: s, Attempts: attempts, AttemptsTotal: total}
	}
	for _, c := range []struct {
		name   string
		o      *order.Order
		answer order.Answer
		want   order.Transition
	}{
		{"succeeded", inFlight(1, 1), order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}, end(order.Succeeded, 1, 1)},
		{"succeeded beyond the cap", inFlight(9, 30), order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}, end(order.Succeeded, 9, 30)},
		{"rejected", inFlight(2, 3), order.Answer{Outcome: order.OutcomeRejected, Reason: order.BusinessRejected}, end(order.Failed, 2, 3)},
		{"invalid is dead after one attempt", inFlight(1, 1), order.Answer{Outcome: order.OutcomeInvalid, Reason: order.RequestRejected}, end(order.Dead, 1, 1)},

		{"overloaded", inFlight(1, 1), order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded}, replayAt(time.Second, 1, 1)},
		{"overloaded twice waits twice as long", inFlight(2, 2), order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded}, replayAt(2*time.Second, 2, 2)},
		{"overloaded with Retry-After is not held against the order", inFlight(3, 3), order.Answer{
			Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, RetryAfter: 20 * time.Second,
		}, replayAt(20*time.Second, 2, 3)},
		{"a short Retry-After does not shorten our own wait", inFlight(2, 2), order.Answer{
			Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, RetryAfter: time.Millisecond,
		}, replayAt(2*time.Second, 1, 2)},
		{"a long Retry-After is clamped", inFlight(1, 1), order.Answer{
			Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, RetryAfter: 24 * time.Hour,
		}, replayAt(5*time.Minute, 0, 1)},
		{"an overloaded probe is not held against the order", inFlight(3, 3), order.Answer{
			Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Probe: true,
		}, replayAt(4*time.Second, 2, 3)},

		{"not sent is not held against the order", inFlight(1, 1), order.Answer{
			Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed,
		}, replayAt(time.Second, 0, 1)},
		{"not sent ignores Retry-After", inFlight(1, 1), order.Answer{
			Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed, RetryAfter: time.Minute,
		}, replayAt(time.Second, 0, 1)},
		{"a probe that was not sent counts no less", inFlight(3, 3), order.Answer{
			Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed, Probe: true,
		}, replayAt(4*time.Second, 2, 3)},

		{"unknown", inFlight(1, 1), order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Sent: true}, lookAt(1, 1)},
		{"unknown beyond the caps is looked up all the same", inFlight(9, 30), order.Answer{
			Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Sent: true,
		}, lookAt(9, 30)},
		{"an unknown probe is not held against the order", inFlight(2, 4), order.Answer{
			Outcome: order.OutcomeUnknown, Reason: order.Upstream5xx, Sent: true, Probe: true,
		}, lookAt(1, 4)},
		{"a handler that says nothing", inFlight(1, 1), order.Answer{}, lookAt(1, 1)},

		{"refused", inFlight(1, 1), order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}, replayAt(time.Second, 0, 0)},
		{"refused beyond the caps is no attempt", inFlight(9, 30), order.Answer{
			Outcome: order.OutcomeRefused, Reason: order.CircuitOpen,
		}, replayAt(time.Second, 8, 29)},
		{"cancelled before it was sent", inFlight(1, 1), order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown}, replayAt(0, 0, 0)},
		{"cancelled after it was sent", inFlight(1, 1), order.Answer{
			Outcome: order.OutcomeCancelled, Reason: order.Revoked, Sent: true,
		}, lookAt(1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.Outcome, c.want.Reason = c.answer.Outcome, c.answer.Reason
			got := p.AfterAttempt(c.o, c.answer, noon, 0)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("transition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAttemptsEndAtEitherCap(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	for _, c := range []struct {
		attempts, total int
		answer          order.Answer
		want            order.State
	}{
		{2, 19, order.Answer{Outcome: order.OutcomeOverloaded}, order.Processing},
		{3, 3, order.Answer{Outcome: order.OutcomeOverloaded}, order.Dead},
		{3, 3, order.Answer{Outcome: order.OutcomeNotSent}, order.Processing},
		{1, 20, order.Answer{Outcome: order.OutcomeOverloaded}, order.Dead},
		// Attempts that are not held against the order have a bound too.
		{1, 20, order.Answer{Outcome: order.OutcomeOverloaded, RetryAfter: time.Second}, order.Dead},
		{1, 20, order.Answer{Outcome: order.OutcomeNotSent, Probe: true}, order.Dead},
		{3, 19, order.Answer{Outcome: order.OutcomeNotSent, Probe: true}, order.Processing},
	} {
		c.answer.Reason, c.answer.Detail = order.UpstreamOverloaded, "busy"
		got := p.AfterAttempt(inFlight(c.attempts, c.total), c.answer, noon, 0)
		if got.State != c.want {
			t.Errorf("%d of %d attempts, %v: %v, want %v", c.attempts, c.total, c.answer.Outcome, got.State, c.want)
			continue
		}
		if c.want == order.Dead && (got.Reason != order.AttemptsExhausted || got.Phase != order.NoPhase ||
			!strings.Contains(got.Detail, "UPSTREAM_OVERLOADED after") || !strings.HasSuffix(got.Detail, ": busy")) {
			t.Errorf("dead letter says %v %v %q: want the cap and, in the detail, the last reason", got.Phase, got.Reason, got.Detail)
		}
	}
}

func TestRetryDelayDoublesUpToItsBoundAndIsSpreadByAFifth(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	p.ReplayAttempts, p.ReplayAttemptsTotal = 100, 100
	for attempts, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 90: 10 * time.Second,
	} {
		for jitter, factor := range map[float64]float64{0: 1, 0.5: 1.1, 0.999999: 1.2} {
			got := p.AfterAttempt(inFlight(attempts, attempts), order.Answer{Outcome: order.OutcomeOverloaded}, noon, jitter).NotBefore.Sub(noon)
			if high := time.Duration(float64(want) * factor); got < want || got > high || got < high-time.Millisecond {
				t.Errorf("attempt %d, jitter %v: wait %v, want %v", attempts, jitter, got, high)
			}
		}
	}
}

func TestRefusalFollowsTheDegradeRule(t *testing.T) {
	t.Parallel()
	refused := order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	for _, c := range []struct {
		degrade order.Degrade
		total   int
		version int64
		state   order.State
		reason  order.Reason
	}{
		{order.Spill, 1, 1, order.Processing, order.CircuitOpen},
		{order.Spill, 3, 4, order.Processing, order.CircuitOpen},
		{order.Hold, 1, 1, order.Processing, order.CircuitOpen}, // at the end of a drain
		{order.Skip, 1, 1, order.Dead, order.Skipped},
		{order.Skip, 2, 3, order.Processing, order.CircuitOpen}, // it was tried before: not omittable any more
		{order.Skip, 1, 5, order.Processing, order.CircuitOpen}, // requeued, or cancelled before it was sent
	} {
		p := testPolicy()
		p.Degrade = c.degrade
		o := inFlight(1, c.total)
		o.Version, o.Fresh = c.version, c.version == 1
		got := p.AfterAttempt(o, refused, noon, 0)
		if got.State != c.state || got.Reason != c.reason || got.AttemptsTotal != c.total-1 {
			t.Errorf("%v, attempt %d: %v %v %d attempts, want %v %v %d", c.degrade, c.total, got.State, got.Reason,
				got.AttemptsTotal, c.state, c.reason, c.total-1)
		}
		if c.state == order.Dead && got.Detail != "refused: CIRCUIT_OPEN" {
			t.Errorf("skipped order says %q: want what refused it", got.Detail)
		}
	}
}

func TestAfterLookupOfEachVerdict(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	// An order whose attempt began a minute ago and ended unknown, looked up for the second time.
	was := order.Order{
		State: order.Processing, Phase: order.Unknown, Version: 5, Attempts: 1, AttemptsTotal: 2, Lookups: 2,
		Outcome: order.OutcomeUnknown, LastAttempt: noon.Add(-time.Minute),
	}
	look := func(d time.Duration, lookups int) order.Transition {
		return order.Transition{
			State: order.Processing, Phase: order.Unknown, Lookups: lookups, Outcome: order.OutcomeUnknown, Due: noon.Add(d),
		}
	}
	early := func(o *order.Order) { o.LastAttempt = noon.Add(-4 * time.Second) }
	last := func(o *order.Order) { o.Lookups = p.CompensateAttempts }
	used := func(o *order.Order) { o.Attempts, o.AttemptsTotal = 3, 3 }
	for _, c := range []struct {
		name    string
		change  func(o *order.Order)
		finding order.Finding
		want    order.Transition
	}{
		{"succeeded", nil, order.Finding{Verdict: order.VerdictSucceeded, Reason: order.Confirmed}, order.Transition{
			State: order.Succeeded, Lookups: 2, Outcome: order.OutcomeSucceeded, Reason: order.Confirmed,
		}},
		{"failed", nil, order.Finding{Verdict: order.VerdictFailed, Reason: order.BusinessRejected}, order.Transition{
			State: order.Failed, Lookups: 2, Outcome: order.OutcomeRejected, Reason: order.BusinessRejected,
		}},
		{"still processing", nil, order.Finding{Verdict: order.VerdictProcessing, Reason: order.StillProcessing}, look(2*time.Second, 2)},
		{"still processing, and it names a time", nil, order.Finding{
			Verdict: order.VerdictProcessing, Reason: order.StillProcessing, RetryAfter: 40 * time.Second,
		}, look(40*time.Second, 2)},
		{"no verdict", nil, order.Finding{Verdict: order.VerdictNone, Reason: order.NoVerdict}, look(2*time.Second, 2)},
		{"no verdict, of a probe", nil, order.Finding{Verdict: order.VerdictNone, Reason: order.NoVerdict, Probe: true}, look(time.Second, 1)},
		{"no verdict, and it names too long a time", nil, order.Finding{
			Verdict: order.VerdictNone, Reason: order.UpstreamOverloaded, RetryAfter: time.Hour,
		}, look(5*time.Minute, 2)},
		{"refused by our own gate", nil, order.Finding{Verdict: order.VerdictRefused, Reason: order.CircuitOpen}, look(time.Second, 1)},
		{"not found before the grace is over", early, order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}, look(6*time.Second, 1)},
		{
			"not found, the caps used up, before the grace is over", func(o *order.Order) { used(o); early(o) },
			order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound},
			look(6*time.Second, 1),
		},
		{"not found", nil, order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}, order.Transition{
			State: order.Processing, Phase: order.Replaying, Outcome: order.OutcomeUnknown, NotBefore: noon, Due: noon.Add(p.ReplayPatience),
		}},
		{"no verdict for the last time", last, order.Finding{Verdict: order.VerdictNone, Reason: order.Upstream5xx, Detail: "oops"}, order.Transition{
			State: order.Dead, Lookups: 4, Outcome: order.OutcomeUnknown, Reason: order.LookupsExhausted, Detail: "UPSTREAM_5XX: oops",
		}},
		{"not found for the last time is an answer", last, order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}, order.Transition{
			State: order.Processing, Phase: order.Replaying, Outcome: order.OutcomeUnknown, NotBefore: noon, Due: noon.Add(p.ReplayPatience),
		}},
		{"not found, the caps used up", used, order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound, Detail: "404"}, order.Transition{
			State: order.Dead, Lookups: 2, Outcome: order.OutcomeUnknown, Reason: order.AttemptsExhausted,
			Detail: "NOT_FOUND after 3 attempts (3 in all): 404",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := was
			if c.change != nil {
				c.change(&o)
			}
			c.want.Attempts, c.want.AttemptsTotal = o.Attempts, o.AttemptsTotal
			if c.want.Reason == order.NoReason {
				c.want.Reason = c.finding.Reason
			}
			got := p.AfterLookup(&o, c.finding, noon, 0)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("transition (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNotFoundMeansFailedWhereTheRouteSaysSo(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	p.FailNotFound = true
	o := order.Order{State: order.Processing, Phase: order.Unknown, Attempts: 1, AttemptsTotal: 1, Lookups: 1, LastAttempt: noon}
	f := order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}
	if got := p.AfterLookup(&o, f, noon.Add(p.Grace-1), 0); got.State != order.Processing || got.Phase != order.Unknown {
		t.Errorf("before the grace is over: %v %v, want to look again", got.State, got.Phase)
	}
	if got := p.AfterLookup(&o, f, noon.Add(p.Grace), 0); got.State != order.Failed || got.Reason != order.NotFound {
		t.Errorf("after the grace: %v %v, want FAILED NOT_FOUND", got.State, got.Reason)
	}
}

func TestLookupDelayDoublesUpToItsBound(t *testing.T) {
	t.Parallel()
	p := testPolicy()
	p.CompensateAttempts = 100
	for lookups, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 99: 30 * time.Second} {
		o := order.Order{State: order.Processing, Phase: order.Unknown, Lookups: lookups, LastAttempt: noon}
		if got := p.AfterLookup(&o, order.Finding{Verdict: order.VerdictProcessing}, noon, 0).Due.Sub(noon); got != want {
			t.Errorf("lookup %d: next after %v, want %v", lookups, got, want)
		}
	}
}

func TestRequeuedOrderIsLookedUpFirst(t *testing.T) {
	t.Parallel()
	want := order.Transition{State: order.Processing, Phase: order.Unknown, Reason: order.Requeued, Due: noon}
	if diff := cmp.Diff(want, testPolicy().Requeue(noon)); diff != "" {
		t.Errorf("a requeue (-want +got):\n%s", diff)
	}
}

func TestDetailFitsAColumn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, detail, want string }{
		{"short", "no funds", "no funds"},
		{"as long as may be", strings.Repeat("x", order.MaxDetail), strings.Repeat("x", order.MaxDetail)},
		{"too long", strings.Repeat("x", order.MaxDetail+1), strings.Repeat("x", order.MaxDetail-3) + "..."},
		{"cut within a character", strings.Repeat("é", order.MaxDetail), strings.Repeat("é", (order.MaxDetail-3)/2) + "..."},
		{"NUL and broken UTF-8", "a\x00b\xffc", "a?b?c"},
	} {
		got := testPolicy().AfterAttempt(inFlight(1, 1), order.Answer{Outcome: order.OutcomeRejected, Detail: c.detail}, noon, 0)
		if got.Detail != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.Detail, c.want)
		}
	}
}

func TestOnlyAPlainFirstAttemptNeedsNoHistory(t *testing.T) {
	t.Parallel()
	plain := order.Order{ID: 7, Version: 1, State: order.Processing, Phase: order.InFlight, Attempts: 1, AttemptsTotal: 1}
	for _, c := range []struct {
		name   string
		change func(o *order.Order)
		to     order.State
		want   bool
	}{
		{"final at once", func(*order.Order) {}, order.Succeeded, true},
		{"refused at once", func(*order.Order) {}, order.Failed, true},
		{"dead at once", func(*order.Order) {}, order.Dead, false},
		{"not final", func(*order.Order) {}, order.Processing, false},
		{"second attempt", func(o *order.Order) { o.AttemptsTotal = 2 }, order.Succeeded, false},
		{"second life", func(o *order.Order) { o.Life = 1 }, order.Succeeded, false},
		{"looked up", func(o *order.Order) { o.Phase, o.Lookups = order.Unknown, 1 }, order.Succeeded, false},
	} {
		o := plain
		c.change(&o)
		s := o.Settle(order.Transition{State: c.to})
		if s.Straight != c.want || s.ID != o.ID || s.Version != o.Version {
			t.Errorf("%s: %+v, want straight %v of order 7 at version 1", c.name, s, c.want)
		}
	}
}

func TestDegradeRulesHaveNames(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(order.Spill, order.Hold, order.Skip, order.Degrade(9))
	if want := "spill hold skip Degrade(9)"; got != want {
		t.Errorf("degrade rules are %q, want %q", got, want)
	}
}
