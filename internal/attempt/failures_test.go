package attempt_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/internal/attempt"
	"spillway/internal/permit"
	"spillway/order"
)

func TestTheLastFailedCallsAreKnownWhenTheBreakerOpens(t *testing.T) {
	t.Parallel()
	var a *attempt.Attempter
	var seen []attempt.Failure
	b := map[string]*breaker.Breaker{}
	for _, endpoint := range []string{"submit", "lookup"} {
		made, err := breaker.New(breaker.Key{Endpoint: endpoint}, breaker.Config{ConsecutiveFailures: 7}, nil, func(breaker.Event) {
			seen = a.SubmitFailures(time.Time{})
		})
		if err != nil {
			t.Fatal(err)
		}
		b[endpoint] = made
	}
	n := 0
	h := handler{
		submit: func(context.Context, *order.Order) order.Answer {
			n++
			switch n {
			case 1:
				return order.Answer{Outcome: order.OutcomeSucceeded}
			case 2:
				return order.Answer{Outcome: order.OutcomeRejected}
			}
			return order.Answer{Outcome: order.OutcomeUnknown, Reason: order.Upstream5xx, Status: 502, RequestID: fmt.Sprint("req-", n), Detail: strings.Repeat("é", 150) + fmt.Sprint(n)}
		},
		lookup: func(context.Context, *order.Order) order.Finding {
			return order.Finding{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed, Detail: "refused"}
		},
	}
	a = attempt.New(attempt.Config{Submit: time.Second, Lookup: time.Second}, nil, permit.New(permit.Config{Limit: 1}), h, b["submit"], b["lookup"], nil)
	for i := range 9 {
		if !a.TryAcquire(order.LaneLive) {
			t.Fatal("no permit")
		}
		a.Submit(t.Context(), order.LaneLive, &order.Order{Number: fmt.Sprint("A-", i)})
		a.Release(order.LaneLive)
	}
	if len(seen) != attempt.MaxFailures {
		t.Fatalf("%d failures are known as the breaker opens", len(seen))
	}
	for i, f := range seen {
		if f.Number != fmt.Sprint("A-", i+4) || f.Outcome != order.OutcomeUnknown || f.Reason != order.Upstream5xx || f.Status != 502 ||
			f.RequestID != fmt.Sprint("req-", i+5) ||
			len(f.Detail) > 200 || !strings.HasSuffix(f.Detail, "é...") || time.Since(f.At) > time.Minute {
			t.Errorf("failure %d: %+v", i, f)
		}
	}
	if got := a.SubmitFailures(time.Now().Add(time.Minute)); got != nil {
		t.Errorf("since the future: %+v", got)
	}
	if got := a.LookupFailures(time.Time{}); got != nil {
		t.Errorf("lookups that were not made failed: %+v", got)
	}
	a.TryAcquire(order.LaneCompensate)
	a.Lookup(t.Context(), order.LaneCompensate, &order.Order{Number: strings.Repeat("x", 500)})
	if got := a.LookupFailures(time.Time{}); len(got) != 1 || got[0].Reason != order.ConnectFailed || len(got[0].Number) != 128 {
		t.Errorf("lookups: %+v", got)
	}
}
