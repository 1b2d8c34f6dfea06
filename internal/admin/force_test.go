package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
)

// slate is a store of one view, whose moves may get lost on their way back.
type slate struct {
	view  fleet.View
	notes []fleet.Note
	lose  error
	mute  error
}

func (s *slate) Exchange(context.Context, string, []fleet.Report) ([]fleet.View, error) {
	return nil, errors.New("an operator is no worker")
}

func (s *slate) Look(context.Context, []breaker.Key) ([]fleet.View, error) {
	return []fleet.View{s.view}, s.mute
}

func (s *slate) Move(_ context.Context, moves []fleet.Move) ([]bool, error) {
	if s.lose != nil {
		return nil, s.lose
	}
	s.view.Record = moves[0].Record
	s.notes = append([]fleet.Note{*moves[0].Note}, s.notes...)
	return []bool{true}, nil
}

func (s *slate) Audit(context.Context, breaker.Key, int) ([]fleet.Note, error) { return s.notes, nil }

func wallet() breaker.Key { return breaker.Key{Service: "wallet", Endpoint: "submit"} }

func TestABreakerIsShownWithItsWorkersAndOrders(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &slate{
		view: fleet.View{
			Record: breaker.Record{
				Epoch: 7, State: breaker.Open, Age: 10 * time.Second, Wait: 30 * time.Second, Opens: 2, By: "worker-b\x1b[2J",
				Why: breaker.Grounds{Reason: breaker.ReasonFailureRate, Samples: 40, Failures: 31, Slow: 2, Rate: 0.775, Bound: 0.625, Threshold: 0.5},
			},
			Members: []fleet.Member{
				{Worker: "worker-b", Seen: 200 * time.Millisecond, Evidence: breaker.Evidence{
					Epoch: 7, State: breaker.Open, Failure: breaker.Window{Samples: 40, Failures: 31, Slow: 2}, Slow: breaker.Window{Samples: 40, Failures: 31, Slow: 2},
				}},
				{Worker: "worker-a", Seen: 300 * time.Millisecond, Evidence: breaker.Evidence{Epoch: 6, State: breaker.Open, Own: true, Slots: 1}},
				{Worker: "worker-c", Seen: 9 * time.Second, Evidence: breaker.Evidence{Epoch: 5}},
			},
		},
		notes: []fleet.Note{
			{At: now.Add(-time.Hour), Operator: "lee", Reason: "over", Epoch: 4},
			{At: now.Add(-2 * time.Hour), Force: breaker.ForceObserve, For: 30 * time.Minute, Operator: "kim", Reason: "\u202ewatch\n", Epoch: 3},
		},
	}
	v, err := ShowFleetBreaker(t.Context(), s, wallet(), now)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := v.Write(&out, now); err != nil {
		t.Fatal(err)
	}
	const want = `breaker wallet/submit: open
  since         2026-03-01T11:59:50Z (10s ago)
  next probe    2026-03-01T12:00:20Z (in 20s)
  reason        failure-rate (31 failures and 2 slow of 40: rate 0.78, bound 0.62, threshold 0.5)
  by            worker-b\x1b[2J
  openings      2 since it was last well
  epoch         7

WORKER    SEEN    FOLLOWS  STATE           FORCE  FAILURES   SLOW     PROBES
worker-a  0s ago  not yet  open (its own)  none   -          -        0 of 1
worker-b  0s ago  yes      open            none   31/40 78%  2/40 5%  0 of 0
worker-c  9s ago  silent   closed          none   -          -        0 of 0

ORDER    GIVEN                            UNTIL                            OPERATOR  REASON
release  2026-03-01T11:00:00Z (1h0m ago)  -                                lee       over
observe  2026-03-01T10:00:00Z (2h0m ago)  2026-03-01T10:30:00Z (1h30m ago)  kim       \u202ewatch\n
`
	if squeeze(out.String()) != squeeze(want) {
		t.Errorf("shown\n%s\nwant\n%s", out.String(), want)
	}
}

// squeeze takes the padding of columns out.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

func TestAForceThatRanOutWhileNoWorkerRanIsNotShownAsStanding(t *testing.T) {
	t.Parallel()
	s := &slate{view: fleet.View{Record: breaker.Record{Epoch: 3, State: breaker.HalfOpen, Force: breaker.ForceOpen}}}
	v, err := ShowFleetBreaker(t.Context(), s, wallet(), time.Now())
	if err != nil || v.Force != "none" || v.State != "half-open" || !v.ForceEnds.IsZero() {
		t.Errorf("%+v, %v", v, err)
	}
	s.view.Record.ForceLeft = time.Minute
	if v, err = ShowFleetBreaker(t.Context(), s, wallet(), time.Now()); err != nil || v.Force != "open" || v.State != "open" || v.After != "half-open" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAnOrderTellsNothingDoneFromMayBeDone(t *testing.T) {
	t.Parallel()
	order := fleet.Order{Key: wallet(), Force: breaker.ForceOpen, For: time.Hour, Operator: "kim", Reason: "why"}
	lost := errors.New("the line was cut")
	_, err := GiveOrder(t.Context(), &slate{mute: lost}, order, time.Second)
	if err == nil || errors.Is(err, ErrUnconfirmed) {
		t.Errorf("a record that could not be read: %v", err)
	}
	_, err = GiveOrder(t.Context(), &slate{lose: lost}, order, time.Second)
	if !errors.Is(err, ErrUnconfirmed) || !strings.Contains(err.Error(), lost.Error()) {
		t.Errorf("an answer that was lost: %v", err)
	}
}

func TestAnOrderSaysHowManyWorkersHaveTakenIt(t *testing.T) {
	t.Parallel()
	order := fleet.Order{Key: wallet(), Force: breaker.ForceClosed, For: time.Hour, Operator: "kim", Reason: "why"}
	s := &slate{view: fleet.View{Members: []fleet.Member{
		{Worker: "a", Evidence: breaker.Evidence{Epoch: 1}}, {Worker: "b"}, {Worker: "gone", Seen: time.Minute},
	}}}
	a, err := GiveOrder(t.Context(), s, order, 50*time.Millisecond)
	if err != nil || a.Workers != 2 || a.Follow != 1 || a.Order.Epoch != 1 || a.Order.Order != "force-close" {
		t.Errorf("%+v, %v", a, err)
	}
	for follow, want := range map[int]string{1: "1 of 2 workers have taken it so far", 2: "taken by all workers: 2"} {
		var out strings.Builder
		a.Follow = follow
		if err := a.Write(&out, time.Now()); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q, %v, want %q", out.String(), err, want)
		}
	}
}
