package attempt_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"spillway/breaker"
	"spillway/internal/attempt"
	"spillway/internal/permit"
	"spillway/order"
)

// handler answers as the test says.
type handler struct {
	submit func(ctx context.Context, o *order.Order) order.Answer
	lookup func(ctx context.Context, o *order.Order) order.Finding
}

func (h handler) Submit(ctx context.Context, o *order.Order) order.Answer { return h.submit(ctx, o) }

func (h handler) Lookup(ctx context.Context, o *order.Order) order.Finding { return h.lookup(ctx, o) }

// rig is an attempter with real permits and breakers.
type rig struct {
	*attempt.Attempter

	permits        *permit.Pool
	submit, lookup *breaker.Breaker
	took           *prometheus.HistogramVec
}

const (
	submitTime = 300 * time.Millisecond
	lookupTime = 200 * time.Millisecond
	openWait   = 10 * time.Second
)

func newRig(t *testing.T, h handler) *rig {
	t.Helper()
	r := &rig{
		permits: permit.New(permit.Config{Limit: 10}),
		took:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took", Help: "How long calls took."}, []string{"lane", "outcome"}),
	}
	for endpoint, b := range map[string]**breaker.Breaker{"submit": &r.submit, "lookup": &r.lookup} {
		made, err := breaker.New(breaker.Key{Service: "wallet", Endpoint: endpoint}, breaker.Config{
			ConsecutiveFailures: 3, OpenWait: openWait, OpenJitter: -1, SuccessesToClose: 1,
		}, rand.New(rand.NewPCG(1, 2)), nil)
		if err != nil {
			t.Fatal(err)
		}
		*b = made
	}
	r.Attempter = attempt.New(attempt.Config{Submit: submitTime, Lookup: lookupTime}, nil, r.permits, h, r.submit, r.lookup, r.took)
	return r
}

// try takes a permit and makes an attempt, and looks that the permit is still held.
func (r *rig) try(ctx context.Context, t *testing.T) order.Answer {
	t.Helper()
	if !r.TryAcquire(order.LaneLive) {
		t.Fatal("no permit is free")
	}
	a := r.Submit(ctx, order.LaneLive, &order.Order{Number: "A-1"})
	if n := r.permits.InUse(); n != 1 {
		t.Fatalf("%d permits are held after the attempt, want the caller's", n)
	}
	r.Release(order.LaneLive)
	return a
}

// ask does the same with a lookup.
func (r *rig) ask(ctx context.Context, t *testing.T) order.Finding {
	t.Helper()
	if !r.TryAcquire(order.LaneCompensate) {
		t.Fatal("no permit is free")
	}
	f := r.Lookup(ctx, order.LaneCompensate, &order.Order{Number: "A-1"})
	if n := r.permits.InUse(); n != 0 {
		t.Fatalf("%d permits are held after the lookup", n)
	}
	return f
}

// samples is what a breaker has counted in its window: failures of all.
func samples(b *breaker.Breaker) [2]int {
	s := b.Snapshot()
	return [2]int{s.Failures, s.FailureSamples}
}

func answers(a order.Answer) handler {
	return handler{submit: func(context.Context, *order.Order) order.Answer { return a }}
}

func TestFailureOfOneInstanceIsNoneOfTheService(t *testing.T) {
	t.Parallel()
	for _, outcome := range []order.Outcome{order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown} {
		r := newRig(t, handler{
			submit: func(context.Context, *order.Order) order.Answer {
				return order.Answer{Outcome: outcome, OneInstance: true}
			},
			lookup: func(context.Context, *order.Order) order.Finding {
				return order.Finding{Outcome: outcome, OneInstance: true}
			},
		})
		for range 5 { // more than open the breaker
			if a := r.try(t.Context(), t); a.Outcome != outcome {
				t.Errorf("the outcome became %v", a.Outcome)
			}
			r.ask(t.Context(), t)
		}
		if s, l := samples(r.submit), samples(r.lookup); s != [2]int{} || l != [2]int{} {
			t.Errorf("%v: the breakers counted %v and %v", outcome, s, l)
		}
	}
}

func TestWhatTheBreakerLearnsOfEachOutcome(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[order.Outcome][2]int{
		order.OutcomeSucceeded:  {0, 1},
		order.OutcomeRejected:   {0, 1}, // the service is well
		order.OutcomeInvalid:    {0, 0}, // the order's own fault says nothing
		order.OutcomeOverloaded: {1, 1},
		order.OutcomeNotSent:    {1, 1},
		order.OutcomeUnknown:    {1, 1},
		order.NoOutcome:         {1, 1}, // taken for UNKNOWN
		order.OutcomeRefused:    {1, 1}, // these two are the worker's to say: taken for UNKNOWN
		order.OutcomeCancelled:  {1, 1},
		order.Outcome(99):       {1, 1}, // in no set: taken for UNKNOWN
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, answers(order.Answer{Outcome: outcome, Reason: order.UpstreamReset, Detail: "d", Status: 299}))
			got := r.try(t.Context(), t)
			if s := samples(r.submit); s != want {
				t.Errorf("breaker counted %d failures of %d, want %d of %d", s[0], s[1], want[0], want[1])
			}
			if s := samples(r.lookup); s != [2]int{} {
				t.Errorf("the lookups' breaker counted %v: want nothing", s)
			}
			wanted := order.Answer{Outcome: outcome, Reason: order.UpstreamReset, Detail: "d", Status: 299, Took: got.Took}
			if slices.Contains([]order.Outcome{order.NoOutcome, order.OutcomeRefused, order.OutcomeCancelled, order.Outcome(99)}, outcome) {
				wanted.Outcome, wanted.Sent = order.OutcomeUnknown, true
			}
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPanicOfTheHandlerIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t, handler{
		submit: func(context.Context, *order.Order) order.Answer { panic("half way through") },
		lookup: func(context.Context, *order.Order) order.Finding { panic("lost") },
	})
	a := r.try(t.Context(), t)
	want := order.Answer{
		Outcome: order.OutcomeUnknown, Reason: order.HandlerPanic, Sent: true, Detail: "panic: half way through", Took: a.Took,
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	f := r.ask(t.Context(), t)
	wanted := order.Finding{
		Verdict: order.VerdictNone, Outcome: order.OutcomeUnknown, Reason: order.HandlerPanic, Detail: "panic: lost", Took: f.Took,
	}
	if diff := cmp.Diff(wanted, f); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
	if s, l := samples(r.submit), samples(r.lookup); s != [2]int{1, 1} || l != [2]int{1, 1} {
		t.Errorf("breakers counted %v and %v: want a failure each", s, l)
	}
}

// hangs answers only when its context ends, with what it is told to.
func hangs(a order.Answer, f order.Finding) handler {
	return handler{
		submit: func(ctx context.Context, _ *order.Order) order.Answer { <-ctx.Done(); return a },
		lookup: func(ctx context.Context, _ *order.Order) order.Finding { <-ctx.Done(); return f },
	}
}

func TestCallEndsAtItsDeadlineAndIsNoCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hangs(
			order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Sent: true},
			order.Finding{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout},
		))
		a := r.try(t.Context(), t)
		if a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout || a.Took != submitTime {
			t.Errorf("%v %v after %v, want UNKNOWN UPSTREAM_TIMEOUT after %v", a.Outcome, a.Reason, a.Took, submitTime)
		}
		f := r.ask(t.Context(), t)
		if f.Verdict != order.VerdictNone || f.Reason != order.UpstreamTimeout || f.Took != lookupTime {
			t.Errorf("%v %v after %v, want no verdict after %v", f.Verdict, f.Reason, f.Took, lookupTime)
		}
		if s, l := samples(r.submit), samples(r.lookup); s != [2]int{1, 1} || l != [2]int{1, 1} {
			t.Errorf("breakers counted %v and %v: want a failure each", s, l)
		}
	})
}

func TestCallCutShortByUsIsCancelledUnlessItWasAnswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  order.Answer
		outcome order.Outcome
		reason  order.Reason
		sent    bool
	}{
		{"unknown", order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamReset, Sent: true}, order.OutcomeCancelled, order.Shutdown, true},
		{"unknown, the handler forgot that it was sent", order.Answer{Outcome: order.OutcomeUnknown}, order.OutcomeCancelled, order.Shutdown, true},
		{"nothing said", order.Answer{}, order.OutcomeCancelled, order.Shutdown, true},
		{"not sent", order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}, order.OutcomeCancelled, order.Shutdown, false},
		{"answered all the same", order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true}, order.OutcomeSucceeded, order.Confirmed, true},
		{"refused all the same", order.Answer{Outcome: order.OutcomeRejected, Reason: order.BusinessRejected, Sent: true}, order.OutcomeRejected, order.BusinessRejected, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hangs(c.answer, order.Finding{}))
				ctx, cancel := context.WithTimeout(t.Context(), submitTime/3)
				defer cancel()
				a := r.try(ctx, t)
				if a.Outcome != c.outcome || a.Reason != c.reason || a.Sent != c.sent {
					t.Errorf("%v %v, sent %v: want %v %v, sent %v", a.Outcome, a.Reason, a.Sent, c.outcome, c.reason, c.sent)
				}
				if s := samples(r.submit); s[0] != 0 {
					t.Errorf("breaker counted %v: want no failure, it was our own doing", s)
				}
			})
		})
	}
}

func TestLookupCutShortByUsIsNotCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		finding order.Finding
		verdict order.Verdict
		outcome order.Outcome
	}{
		{"nothing learnt", order.Finding{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout}, order.VerdictRefused, order.OutcomeCancelled},
		{"answered all the same", order.Finding{Verdict: order.VerdictNotFound, Reason: order.NotFound}, order.VerdictNotFound, order.OutcomeSucceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, hangs(order.Answer{}, c.finding))
				ctx, cancel := context.WithTimeout(t.Context(), lookupTime/2)
				defer cancel()
				f := r.ask(ctx, t)
				if f.Verdict != c.verdict || f.Outcome != c.outcome {
					t.Errorf("%v %v, want %v %v", f.Verdict, f.Outcome, c.verdict, c.outcome)
				}
				if s := samples(r.lookup); s[0] != 0 {
					t.Errorf("breaker counted %v: want no failure, it was our own doing", s)
				}
			})
		})
	}
}

func TestNothingIsCalledOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, handler{}) // a call would panic, and say so in the reason
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if diff := cmp.Diff(order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown}, r.try(ctx, t)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	want := order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeCancelled, Reason: order.Shutdown}
	if diff := cmp.Diff(want, r.ask(ctx, t)); diff != "" {
		t.Errorf("finding (-want +got):\n%s", diff)
	}
}

func TestOpenBreakerRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	calls := 0
	r := newRig(t, handler{
		submit: func(context.Context, *order.Order) order.Answer {
			calls++
			return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}
		},
		lookup: func(context.Context, *order.Order) order.Finding {
			return order.Finding{Verdict: order.VerdictNotFound}
		},
	})
	for range 3 {
		if submitOpen(r) {
			t.Fatal("the breaker is open before its third failure")
		}
		r.try(t.Context(), t)
	}
	if !submitOpen(r) {
		t.Fatal("the breaker is closed after three failures")
	}
	if diff := cmp.Diff(order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}, r.try(t.Context(), t)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if calls != 3 {
		t.Errorf("%d calls: want none beyond the three that failed", calls)
	}
	// Lookups go by their own evidence: a service that takes no orders may still answer questions.
	if f := r.ask(t.Context(), t); lookupOpen(r) || f.Verdict != order.VerdictNotFound {
		t.Errorf("lookups open %v, verdict %v: want them to go on", lookupOpen(r), f.Verdict)
	}
	if err := r.lookup.Force(breaker.ForceOpen, time.Minute); err != nil {
		t.Fatal(err)
	}
	want := order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	if diff := cmp.Diff(want, r.ask(t.Context(), t)); diff != "" || !lookupOpen(r) {
		t.Errorf("lookups open %v, finding (-want +got):\n%s", lookupOpen(r), diff)
	}
}

// open makes a rig whose submit breaker opened a wait ago, so that the next call is its probe.
func open(t *testing.T, h handler) *rig {
	t.Helper()
	r := newRig(t, h)
	for range 3 {
		p, ok := r.submit.Allow()
		if !ok {
			t.Fatal("the breaker is open before its third failure")
		}
		r.submit.Done(p, breaker.Failure)
	}
	time.Sleep(openWait + time.Millisecond) // within a bubble
	return r
}

func TestProbeAnsweredWithARefusalOfTheRequestCountsAsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, answers(order.Answer{Outcome: order.OutcomeInvalid, Reason: order.RequestRejected, Status: 404, Sent: true}))
		a := r.try(t.Context(), t)
		if !a.Probe || a.Outcome != order.OutcomeInvalid {
			t.Errorf("%v, probe %v: want a probe with its own outcome", a.Outcome, a.Probe)
		}
		if s := r.submit.Snapshot().State; s != breaker.Closed {
			t.Errorf("breaker is %v after a probe answered with 404: want it closed, the service is alive", s)
		}
		if a := r.try(t.Context(), t); a.Probe {
			t.Error("a call of a closed breaker says that it is a probe")
		}
	})
}

func TestFailedProbeOpensAgainAndSaysThatItWasOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, answers(order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded, Sent: true}))
		for range 2 {
			if a := r.try(t.Context(), t); !a.Probe || a.Outcome != order.OutcomeOverloaded {
				t.Errorf("%v, probe %v: want an overloaded probe", a.Outcome, a.Probe)
			}
		}
		if s := r.submit.Snapshot().State; s != breaker.Open {
			t.Errorf("breaker is %v after two failed probes: want it open", s)
		}
	})
}

func TestCancelledProbeGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, hangs(order.Answer{Outcome: order.OutcomeUnknown, Sent: true}, order.Finding{}))
		ctx, cancel := context.WithTimeout(t.Context(), submitTime/3)
		defer cancel()
		if a := r.try(ctx, t); a.Outcome != order.OutcomeCancelled || !a.Probe {
			t.Fatalf("%v, probe %v: want a cancelled probe", a.Outcome, a.Probe)
		}
		if submitOpen(r) || r.submit.Snapshot().State != breaker.HalfOpen {
			t.Errorf("breaker %v, open %v: want the next probe to be let through", r.submit.Snapshot().State, submitOpen(r))
		}
	})
}

func TestWhatTheBreakerLearnsOfALookup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		finding order.Finding
		outcome order.Outcome
		want    [2]int
	}{
		{"a verdict is a service that is well", order.Finding{Verdict: order.VerdictFailed}, order.OutcomeSucceeded, [2]int{0, 1}},
		{"no verdict and nothing said", order.Finding{}, order.OutcomeUnknown, [2]int{1, 1}},
		{"no verdict from an overloaded service", order.Finding{Outcome: order.OutcomeOverloaded}, order.OutcomeOverloaded, [2]int{1, 1}},
		{"no request could be made", order.Finding{Outcome: order.OutcomeInvalid}, order.OutcomeInvalid, [2]int{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, handler{lookup: func(context.Context, *order.Order) order.Finding { return c.finding }})
			if f := r.ask(t.Context(), t); f.Outcome != c.outcome || f.Verdict != c.finding.Verdict {
				t.Errorf("%v %v, want %v %v", f.Verdict, f.Outcome, c.finding.Verdict, c.outcome)
			}
			if s := samples(r.lookup); s != c.want {
				t.Errorf("breaker counted %v, want %v", s, c.want)
			}
			if s := samples(r.submit); s != [2]int{} {
				t.Errorf("the submits' breaker counted %v: want nothing", s)
			}
		})
	}
}

func TestPermitIsHeldDuringTheCallAndBackAfterIt(t *testing.T) {
	t.Parallel()
	var r *rig
	r = newRig(t, handler{submit: func(context.Context, *order.Order) order.Answer {
		if n := r.permits.InUseLane(order.LaneReplay); n < 1 {
			t.Errorf("%d permits of the lane are held during the call: want the caller's", n)
		}
		return order.Answer{Outcome: order.OutcomeSucceeded}
	}})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 25 {
				if err := r.Acquire(t.Context(), order.LaneReplay); err != nil {
					t.Error(err)
					return
				}
				r.Submit(t.Context(), order.LaneReplay, &order.Order{})
				r.Release(order.LaneReplay)
			}
		})
	}
	wg.Wait()
	if n, high := r.permits.InUse(), r.permits.HighWater(); n != 0 || high > r.permits.Limit() {
		t.Errorf("%d permits held, %d at most: want none, at most %d", n, high, r.permits.Limit())
	}
	if s := samples(r.submit); s != [2]int{0, 1000} {
		t.Errorf("breaker counted %v: want every call", s)
	}
}

// observed is how many calls of a lane and outcome a histogram has seen, and for how long.
func observed(t *testing.T, h *prometheus.HistogramVec, lane order.Lane, o order.Outcome) (n uint64, sum time.Duration) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(h)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["lane"] == lane.String() && labels["outcome"] == o.String() {
				n += m.GetHistogram().GetSampleCount()
				sum += time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second)).Round(time.Microsecond)
			}
		}
	}
	return n, sum
}

func TestOnlyCallsThatWereMadeAreTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, handler{
			submit: func(context.Context, *order.Order) order.Answer {
				time.Sleep(40 * time.Millisecond) // within a bubble
				return order.Answer{Outcome: order.OutcomeRejected, Took: time.Hour}
			},
			lookup: func(context.Context, *order.Order) order.Finding {
				time.Sleep(15 * time.Millisecond) // within a bubble
				return order.Finding{Verdict: order.VerdictNotFound}
			},
		})
		if a, f := r.try(t.Context(), t), r.ask(t.Context(), t); a.Took != 40*time.Millisecond || f.Took != 15*time.Millisecond {
			t.Errorf("calls took %v and %v: want 40ms and 15ms, whatever the handler says", a.Took, f.Took)
		}
		if err := r.submit.Force(breaker.ForceOpen, time.Minute); err != nil {
			t.Fatal(err)
		}
		r.try(t.Context(), t)
		if n, sum := observed(t, r.took, order.LaneLive, order.OutcomeRejected); n != 1 || sum != 40*time.Millisecond {
			t.Errorf("%d submits in %v: want one of 40ms", n, sum)
		}
		if n, sum := observed(t, r.took, order.LaneCompensate, order.OutcomeSucceeded); n != 1 || sum != 15*time.Millisecond {
			t.Errorf("%d lookups in %v: want one of 15ms", n, sum)
		}
		if n, _ := observed(t, r.took, order.LaneLive, order.OutcomeRefused); n != 0 {
			t.Errorf("%d refusals were timed: want none, nothing was called", n)
		}
	})
}

func TestHistogramMayBeLeftOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, answers(order.Answer{Outcome: order.OutcomeSucceeded}))
	r.Attempter = attempt.New(attempt.Config{Submit: submitTime, Lookup: lookupTime}, nil, r.permits,
		answers(order.Answer{Outcome: order.OutcomeSucceeded}), r.submit, r.lookup, nil)
	if a := r.try(t.Context(), t); a.Outcome != order.OutcomeSucceeded {
		t.Errorf("%v, want SUCCEEDED", a.Outcome)
	}
}

func TestNothingIsSentOnALeaseThatEndsBeforeTheCallMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(t, handler{submit: func(context.Context, *order.Order) order.Answer {
			calls++
			return order.Answer{Outcome: order.OutcomeSucceeded}
		}})
		for _, c := range []struct {
			left time.Duration
			want order.Answer
		}{
			{submitTime, order.Answer{Outcome: order.OutcomeSucceeded}},
			{submitTime - 1, order.Answer{Outcome: order.OutcomeCancelled, Reason: order.DeadlineExceeded}},
			{-time.Second, order.Answer{Outcome: order.OutcomeCancelled, Reason: order.DeadlineExceeded}},
		} {
			if !r.TryAcquire(order.LaneReplay) {
				t.Fatal("no permit is free")
			}
			got := r.Submit(t.Context(), order.LaneReplay, &order.Order{Due: time.Now().Add(c.left)})
			r.Release(order.LaneReplay)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("with %v of the lease left (-want +got):\n%s", c.left, diff)
			}
		}
		if calls != 1 || r.permits.InUse() != 0 {
			t.Errorf("%d calls, %d permits held: want one call and no permit", calls, r.permits.InUse())
		}
		if s := samples(r.submit); s != [2]int{0, 1} {
			t.Errorf("breaker counted %v: want the one call alone", s)
		}
	})
}

// submitOpen reports whether no submit would be let through.
func submitOpen(r *rig) bool {
	n, _ := r.Room()
	return n == 0
}

// lookupOpen reports whether no lookup would be let through.
func lookupOpen(r *rig) bool {
	n, _ := r.LookupRoom()
	return n == 0
}
