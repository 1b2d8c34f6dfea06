package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

func settlements() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"AFirstAttemptThatIsFinalWritesNoHistory":       straight,
		"ATransitionIsInTheHistory":                     history,
		"ADeadOrderHasOneLetterThatWaits":               deadOrder,
		"AStaleSettlementMovesNothing":                  stale,
		"AnAnswerThatContradictsAFinalStateIsAConflict": conflict,
		"AFinalAnswerToADeadOrderIsKeptForThePerson":    late,
		"TheSameSettlementTwiceInOneBatchAppliesOnce":   twiceInBatch,
		"AMixedBatchAnswersInItsOwnOrder":               mixedBatch,
		"TextThatNoColumnTakesDoesNotFailTheBatch":      wildText,
		"OfManySettlementsOfOneVersionOneApplies":       settleTogether,
		"BatchesInOppositeOrdersSettleSideBySide":       oppositeOrders,
		"DueComesFromTheSettlement":                     dueMoves,
	}
}

func straight(f *fixture) {
	os := f.admit(hour, "T-1", "T-2")
	got, err := f.s.Settle(f.Context(), "w1", []order.Settlement{os[1].Settle(failed()), os[0].Settle(succeeded())})
	f.must(err)
	if len(got) != 2 || got[0] != order.Applied || got[1] != order.Applied {
		f.Fatalf("settled %v, want both Applied", got)
	}
	for number, state := range map[string]order.State{"T-1": order.Succeeded, "T-2": order.Failed} {
		v := f.view(number)
		f.stands(v.Order, state, order.NoPhase, 2)
		f.counts(v.Order, 1, 1, 0, 0)
		if v.Owner != "" || len(v.History) != 0 || !v.Order.Due.IsZero() {
			f.Errorf("%s: owner %q, history %v, due %s", number, v.Owner, v.History, v.Order.Due)
		}
	}
	o := f.view("T-1").Order
	if o.Outcome != order.OutcomeSucceeded || o.Reason != order.Confirmed || o.Detail != "200" {
		f.Errorf("outcome %s, reason %s, detail %q", o.Outcome, o.Reason, o.Detail)
	}
}

func history(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	o = f.move(o, unknown(time.Now()))
	f.stands(o, order.Processing, order.Unknown, 2)
	t := succeeded()
	t.Lookups = 1
	o = f.move(o, t)
	f.stands(o, order.Succeeded, order.NoPhase, 3)
	h := f.view("T-1").History
	if len(h) != 2 {
		f.Fatalf("history %v, want two entries", h)
	}
	a, b := h[0], h[1]
	if a.Kind != desk.Transition || a.Version != 2 || a.From != order.Processing || a.To != order.Processing ||
		a.Phase != order.Unknown || a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout ||
		a.Detail != "no answer" || a.AttemptsTotal != 1 || a.Actor != "w1" || a.At.IsZero() {
		f.Errorf("first entry %+v", a)
	}
	if b.Kind != desk.Transition || b.Version != 3 || b.To != order.Succeeded || b.Phase != order.NoPhase || b.Lookups != 1 {
		f.Errorf("second entry %+v", b)
	}
}

func deadOrder(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	o = f.move(o, dead())
	f.stands(o, order.Dead, order.NoPhase, 2)
	v := f.view("T-1")
	if len(v.History) != 1 || v.History[0].To != order.Dead {
		f.Errorf("history %v, want the way to DEAD", v.History)
	}
	ls := f.waiting()
	if len(ls) != 1 || ls[0].ID != v.Letter {
		f.Fatalf("letters %v, the order's is %d", ls, v.Letter)
	}
	l, err := f.s.ShowDeadLetter(f.Context(), v.Letter)
	f.must(err)
	if l.OrderID != o.ID || l.Number != "T-1" || l.Route != f.route || l.Reason != order.RequestRejected || l.Detail != "400" ||
		l.AttemptsTotal != 1 || l.Life != 0 || l.Status != desk.Waiting || l.CreatedAt.IsZero() || !l.ResolvedAt.IsZero() {
		f.Errorf("letter %+v", l)
	}
	f.sameMessage(l.Message, o.Message)
}

func stale(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	moved := f.move(o, unknown(time.Now().Add(hour)))
	for name, t := range map[string]order.Transition{"final": succeeded(), "unknown": unknown(time.Now()), "dead": dead()} {
		if got := f.settle(o, t); got != order.Stale {
			f.Errorf("%s settlement of an old version: %d, want Stale", name, got)
		}
	}
	f.stands(f.view("T-1").Order, order.Processing, order.Unknown, 2)
	f.move(moved, succeeded())
	if got := f.settle(moved, succeeded()); got != order.Stale {
		f.Errorf("the same answer again: %d, want Stale", got)
	}
	gone := order.Order{ID: 1 << 60, Version: 1}
	if got := f.settle(gone, succeeded()); got != order.Stale {
		f.Errorf("an order that is not there: %d, want Stale", got)
	}
	if h := f.view("T-1").History; len(h) != 2 {
		f.Errorf("history %v, want two transitions", h)
	}
	if ls := f.waiting(); len(ls) != 0 {
		f.Errorf("letters %v", ls)
	}
}

func conflict(f *fixture) {
	for number, states := range map[string][2]order.Transition{
		"T-1": {succeeded(), failed()}, "T-2": {failed(), succeeded()},
	} {
		o := f.admit(hour, number)[0]
		f.move(o, states[0])
		if got := f.settle(o, states[1]); got != order.Conflict {
			f.Errorf("%s after %s: %d, want Conflict", states[1].State, states[0].State, got)
		}
		v := f.view(number)
		f.stands(v.Order, states[0].State, order.NoPhase, 2)
		if v.Order.Reason != states[0].Reason {
			f.Errorf("reason %s, want %s", v.Order.Reason, states[0].Reason)
		}
		if len(v.History) != 1 {
			f.Fatalf("history %v, want the conflict", v.History)
		}
		e := v.History[0]
		if e.Kind != desk.Conflict || e.From != states[0].State || e.To != states[1].State || e.Version != 2 ||
			e.Reason != states[1].Reason || e.Detail != states[1].Detail || e.Actor != "w1" {
			f.Errorf("entry %+v", e)
		}
	}
}

func late(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, dead())
	if got := f.settle(o, succeeded()); got != order.Stale {
		f.Errorf("an answer to a dead letter: %d, want Stale", got)
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Dead, order.NoPhase, 2)
	if len(v.History) != 2 || v.History[1].Kind != desk.Late || v.History[1].To != order.Succeeded {
		f.Errorf("history %+v, want the late answer at its end", v.History)
	}
	done, err := f.s.Discard(f.Context(), desk.Sign{Operator: "ann"}, []int64{v.Letter})
	f.must(err)
	f.must(done[0].Err)
	if got := f.settle(o, failed()); got != order.Stale {
		f.Errorf("a refusal after a discard: %d, want Stale", got)
	}
	if got := f.settle(o, succeeded()); got != order.Conflict {
		f.Errorf("a confirmation after a discard: %d, want Conflict", got)
	}
	f.stands(f.view("T-1").Order, order.Discarded, order.NoPhase, 3)
}

func twiceInBatch(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	got, err := f.s.Settle(f.Context(), "w1", []order.Settlement{
		o.Settle(succeeded()), o.Settle(succeeded()), o.Settle(failed()),
	})
	f.must(err)
	want := []order.Settled{order.Applied, order.Stale, order.Conflict}
	for i := range want {
		if got[i] != want[i] {
			f.Errorf("settlement %d: %d, want %d", i, got[i], want[i])
		}
	}
	f.stands(f.view("T-1").Order, order.Succeeded, order.NoPhase, 2)
}

func mixedBatch(f *fixture) {
	os := f.admit(hour, "T-1", "T-2", "T-3", "T-4", "T-5")
	f.move(os[3], succeeded())
	due := time.Now().Add(hour)
	got, err := f.s.Settle(f.Context(), "w1", []order.Settlement{
		os[4].Settle(dead()), os[3].Settle(failed()), os[2].Settle(succeeded()), os[1].Settle(replaying(due)),
		os[0].Settle(unknown(due)),
	})
	f.must(err)
	want := []order.Settled{order.Applied, order.Conflict, order.Applied, order.Applied, order.Applied}
	for i := range want {
		if got[i] != want[i] {
			f.Errorf("settlement %d: %d, want %d", i, got[i], want[i])
		}
	}
	for number, events := range map[string]int{"T-1": 1, "T-2": 1, "T-3": 0, "T-4": 1, "T-5": 1} {
		if h := f.view(number).History; len(h) != events {
			f.Errorf("%s: history %+v, want %d entries", number, h, events)
		}
	}
	if n := len(f.waiting()); n != 1 {
		f.Errorf("%d letters, want one", n)
	}
}

func wildText(f *fixture) {
	os := f.admit(hour, "T-1", "T-2")
	bad := succeeded()
	bad.Detail = "a\x00b\xff" + strings.Repeat("x", 2*order.MaxDetail)
	for i, o := range os {
		t := bad
		if i == 1 {
			t = dead()
			t.Detail = bad.Detail
		}
		f.move(o, t)
		if d := f.view(o.Number).Order.Detail; len(d) > order.MaxDetail || !strings.HasPrefix(d, "a?b?x") {
			f.Errorf("detail %q", d)
		}
	}
}

func settleTogether(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	var mu sync.Mutex
	applied := 0
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			t := succeeded()
			if w%2 == 0 {
				t = failed()
			}
			got, err := f.s.Settle(f.Context(), fmt.Sprintf("w%d", w), []order.Settlement{o.Settle(t)})
			if err != nil {
				f.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got[0] == order.Applied {
				applied++
			}
		})
	}
	all.Wait()
	if applied != 1 {
		f.Errorf("%d of 8 settlements of one version applied", applied)
	}
	v := f.view("T-1")
	f.stands(v.Order, v.Order.State, order.NoPhase, 2)
	if len(v.History) != 4 {
		f.Errorf("history %+v, want the four that contradict", v.History)
	}
}

func oppositeOrders(f *fixture) {
	const n = 100
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = fmt.Sprintf("T-%d", i)
	}
	os := f.admit(hour, numbers...)
	var mu sync.Mutex
	applied := 0
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			ss := make([]order.Settlement, n)
			for i := range os {
				at := i
				if w%2 == 1 {
					at = n - 1 - i
				}
				ss[i] = os[at].Settle(dead())
			}
			got, err := f.s.Settle(f.Context(), fmt.Sprintf("w%d", w), ss)
			if err != nil {
				f.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, g := range got {
				if g == order.Applied {
					applied++
				}
			}
		})
	}
	all.Wait()
	if applied != n {
		f.Errorf("%d settlements applied, want %d", applied, n)
	}
	if n := f.tally().OrderLetters[desk.Waiting]; n != 100 {
		f.Errorf("%d letters of 100 dead orders", n)
	}
}

func dueMoves(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	o = f.move(o, unknown(time.Now().Add(hour)))
	if got := f.claim("w2", 10); len(got) != 0 {
		f.Errorf("claimed %v before it was due", got)
	}
	if until := time.Until(o.Due); until < hour-time.Minute || until > hour+time.Minute {
		f.Errorf("due in %s, want an hour", until)
	}
	f.move(o, unknown(time.Time{}))
	if got := f.claim("w2", 10); len(got) != 1 {
		f.Errorf("claimed %v, want the order that is due", got)
	}
}

func (f *fixture) claim(owner string, n int) []order.Order {
	f.Helper()
	got, err := f.s.ClaimDue(f.Context(), f.route, owner, hour, n)
	f.must(err)
	return got
}
