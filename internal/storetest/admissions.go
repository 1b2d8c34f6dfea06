package storetest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

func admissions() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"NewOrdersAreBornInFlightWithTheirFirstAttemptCounted": newOrders,
		"RecordsComeBackByteForByte":                           bytesExact,
		"TheSameValueAgainIsADuplicateAndMovesNothing":         duplicate,
		"AnotherValueUnderTheNumberIsAClashAndADeadLetter":     clash,
		"NullAndEmptyValuesAreNotTheSame":                      nullIsNotEmpty,
		"OfTwoRecordsInOneBatchTheFirstWins":                   inBatch,
		"AnIllegalNumberRefusesTheBatch":                       illegalNumber,
		"RoutesDoNotShareNumbers":                              routesApart,
		"TwoWorkersAdmitTheSameRecordsOnce":                    admitTogether,
		"AnEmptyBatchIsNothing":                                emptyBatches,
		"AWithdrawnOrderIsTakenBackByItsOwnRecord":             takenBack,
		"AWithdrawnOrderIsADuplicateForOthers":                 notTakenBack,
		"OnlyAWithdrawnOrderIsTakenBack":                       onlyWithdrawn,
		"TwoReadersTakeAnOrderBackOnce":                        takenBackOnce,
	}
}

func newOrders(f *fixture) {
	before := time.Now().Add(-time.Minute) // the database's clock may be a little behind
	got := f.admit(hour, "T-2", "T-1")
	after := time.Now().Add(time.Minute)
	for i, number := range []string{"T-2", "T-1"} {
		for _, o := range []order.Order{got[i], f.view(number).Order} {
			if o.Number != number || o.Route != f.route || o.ID != got[i].ID || o.ID == 0 {
				f.Errorf("order %d %q of %q, want %q of %q", o.ID, o.Number, o.Route, number, f.route)
			}
			f.stands(o, order.Processing, order.InFlight, 1)
			f.counts(o, 1, 1, 0, 0)
			if o.Outcome != order.NoOutcome || o.Reason != order.NoReason {
				f.Errorf("outcome %s reason %q at birth", o.Outcome, o.Reason)
			}
			for _, at := range []time.Time{o.AdmittedAt, o.LastAttempt, o.UpdatedAt, o.Due.Add(-hour)} {
				if at.Before(before) || at.After(after) {
					f.Errorf("time %s, want about %s", at, before)
				}
			}
		}
	}
	v := f.view("T-1")
	if v.Owner != "w1" || len(v.History) != 0 || v.Letter != 0 {
		f.Errorf("owner %q, history %v, letter %d at birth", v.Owner, v.History, v.Letter)
	}
}

func bytesExact(f *fixture) {
	a := f.admission("T-1", "\x00\xff\x1b[2J")
	a.Message.Key = []byte{0, 1, 2}
	b := f.admission("T-2", "")
	b.Message.Key, b.Message.Headers, b.Message.Time = nil, nil, time.Time{}
	c := f.admission("T-3", "x")
	c.Message.Key, c.Message.Value = []byte{}, nil
	c.Message.Headers = []order.Header{{Key: "", Value: []byte("\x00")}, {Key: "z\xff", Value: bytes.Repeat([]byte("v"), 300)}}
	for _, want := range []order.Admission{a, b, c} {
		_, err := f.s.Admit(f.Context(), f.route, "w1", past, []order.Admission{want})
		f.must(err)
		f.sameMessage(f.view(want.Number).Order.Message, want.Message)
	}
	claimed, err := f.s.ClaimDue(f.Context(), f.route, "w2", hour, 10)
	f.must(err)
	for i, want := range []order.Admission{a, b, c} {
		f.sameMessage(claimed[i].Message, want.Message)
	}
}

// sameMessage fails the test unless both are the same record, null apart from empty.
func (f *fixture) sameMessage(got, want order.Message) {
	f.Helper()
	if got.Topic != want.Topic || got.Partition != want.Partition || got.Offset != want.Offset || !got.Time.Equal(want.Time) {
		f.Errorf("record %s/%d/%d at %s, want %s/%d/%d at %s", got.Topic, got.Partition, got.Offset, got.Time,
			want.Topic, want.Partition, want.Offset, want.Time)
	}
	if !sameBytes(got.Key, want.Key) || !sameBytes(got.Value, want.Value) {
		f.Errorf("key %#v value %#v, want %#v and %#v", got.Key, got.Value, want.Key, want.Value)
	}
	if len(got.Headers) != len(want.Headers) {
		f.Fatalf("%d headers, want %d", len(got.Headers), len(want.Headers))
	}
	for i, h := range got.Headers {
		if h.Key != want.Headers[i].Key || !sameBytes(h.Value, want.Headers[i].Value) {
			f.Errorf("header %d: %#v, want %#v", i, h, want.Headers[i])
		}
	}
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func (f *fixture) admitOne(a order.Admission) order.Admitted {
	f.Helper()
	got, err := f.s.Admit(f.Context(), f.route, "w2", hour, []order.Admission{a})
	f.must(err)
	if len(got) != 1 {
		f.Fatalf("admitted %d of 1", len(got))
	}
	return got[0]
}

func duplicate(f *fixture) {
	first := f.admission("T-1", "v")
	born := f.admitOne(first)
	f.move(born.Order, succeeded())
	again := f.admission("T-1", "v") // another offset
	got := f.admitOne(again)
	if got.Kind != order.Duplicate || got.Order.ID != born.Order.ID {
		f.Errorf("kind %d order %d, want Duplicate of %d", got.Kind, got.Order.ID, born.Order.ID)
	}
	f.stands(got.Order, order.Succeeded, order.NoPhase, 2)
	f.stands(f.view("T-1").Order, order.Succeeded, order.NoPhase, 2)
	if ls := f.waiting(); len(ls) != 0 {
		f.Errorf("dead letters of a duplicate: %v", ls)
	}
}

func clash(f *fixture) {
	born := f.admitOne(f.admission("T-1", "v"))
	other := f.admission("T-1", "w")
	for range 2 { // a redelivery writes no second letter
		got := f.admitOne(other)
		if got.Kind != order.Clash || got.Order.ID != born.Order.ID {
			f.Errorf("kind %d order %d, want Clash with %d", got.Kind, got.Order.ID, born.Order.ID)
		}
		f.stands(got.Order, order.Processing, order.InFlight, 1)
	}
	ls := f.waiting()
	if len(ls) != 1 {
		f.Fatalf("%d dead letters, want 1", len(ls))
	}
	l, err := f.s.ShowDeadLetter(f.Context(), ls[0].ID)
	f.must(err)
	if l.OrderID != 0 || l.Reason != order.PayloadConflict || l.Number != "T-1" || l.Unreadable {
		f.Errorf("letter %+v", l)
	}
	f.sameMessage(l.Message, other.Message)
	if got := f.view("T-1").Order.Message.Value; string(got) != "v" {
		f.Errorf("the order's value became %q", got)
	}
}

func nullIsNotEmpty(f *fixture) {
	empty, null := f.admission("T-1", ""), f.admission("T-1", "")
	null.Message.Value = nil
	if got := f.admitOne(empty); got.Kind != order.New {
		f.Fatalf("kind %d, want New", got.Kind)
	}
	if got := f.admitOne(null); got.Kind != order.Clash {
		f.Errorf("null after empty: kind %d, want Clash", got.Kind)
	}
	if got := f.admitOne(empty); got.Kind != order.Duplicate {
		f.Errorf("empty after empty: kind %d, want Duplicate", got.Kind)
	}
}

func inBatch(f *fixture) {
	f.admitOne(f.admission("T-1", "v"))
	as := []order.Admission{
		f.admission("T-3", "c"), f.admission("T-2", "b"), f.admission("T-3", "c"), f.admission("T-1", "v"),
		f.admission("T-2", "other"), f.admission("T-1", "other"), f.admission("T-3", "c"),
	}
	want := []order.AdmitKind{
		order.New, order.New, order.Duplicate, order.Duplicate, order.Clash, order.Clash, order.Duplicate,
	}
	got, err := f.s.Admit(f.Context(), f.route, "w1", hour, as)
	f.must(err)
	for i := range want {
		if got[i].Kind != want[i] || got[i].Order.Number != as[i].Number {
			f.Errorf("record %d: kind %d of %q, want %d of %q", i, got[i].Kind, got[i].Order.Number, want[i], as[i].Number)
		}
	}
	if got[2].Order.ID != got[0].Order.ID || got[2].Order.ID == 0 {
		f.Errorf("the duplicate in the batch is order %d, want %d", got[2].Order.ID, got[0].Order.ID)
	}
	if string(f.view("T-2").Order.Message.Value) != "b" {
		f.Error("the second record of the number won")
	}
	if n := len(f.waiting()); n != 2 {
		f.Errorf("%d dead letters, want 2", n)
	}
}

func illegalNumber(f *fixture) {
	as := []order.Admission{f.admission("T-1", "v"), f.admission("T-\x00", "v")}
	if _, err := f.s.Admit(f.Context(), f.route, "w1", hour, as); err == nil {
		f.Error("a number with a control character was admitted")
	}
	if t := f.tally(); t.Total() != 0 {
		f.Errorf("%d orders of a refused batch", t.Total())
	}
}

func (f *fixture) tally() desk.Tally {
	f.Helper()
	t, err := f.s.Tally(f.Context(), f.route)
	f.must(err)
	return t
}

func routesApart(f *fixture) {
	f.admit(hour, "T-1")
	got, err := f.s.Admit(f.Context(), f.route+"-other", "w1", hour, []order.Admission{f.admission("T-1", "else")})
	f.must(err)
	if got[0].Kind != order.New {
		f.Errorf("kind %d on another route, want New", got[0].Kind)
	}
}

func admitTogether(f *fixture) {
	const workers, records = 4, 200
	as := make([]order.Admission, records)
	for i := range as {
		as[i] = f.admission(fmt.Sprintf("T-%d", i), "v")
	}
	var mu sync.Mutex
	news := map[string]int{}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			mine := make([]order.Admission, records) // each in another order
			for i := range as {
				mine[i] = as[(i*7+w*50)%records]
			}
			got, err := f.s.Admit(f.Context(), f.route, fmt.Sprintf("w%d", w), hour, mine)
			if err != nil {
				f.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range got {
				switch got[i].Kind {
				case order.New:
					news[mine[i].Number]++
				case order.Clash:
					f.Errorf("%s clashes with itself", mine[i].Number)
				case order.Duplicate:
				}
			}
		})
	}
	all.Wait()
	for i := range as {
		if n := news[as[i].Number]; n != 1 {
			f.Errorf("%s was new %d times", as[i].Number, n)
		}
	}
}

func emptyBatches(f *fixture) {
	admitted, err := f.s.Admit(f.Context(), f.route, "w1", hour, nil)
	f.must(err)
	settled, err := f.s.Settle(f.Context(), "w1", nil)
	f.must(err)
	begun, err := f.s.Begin(f.Context(), "w1", hour, nil)
	f.must(err)
	renewed, err := f.s.Renew(f.Context(), "w1", hour, nil)
	f.must(err)
	claimed, err := f.s.ClaimDue(f.Context(), f.route, "w1", hour, 0)
	f.must(err)
	f.must(f.s.Bury(f.Context(), nil))
	if n := len(admitted) + len(settled) + len(begun) + len(renewed) + len(claimed); n != 0 {
		f.Errorf("%d answers to nothing", n)
	}
}

// withdraw lets go of an order that was never sent.
func (f *fixture) withdraw(o order.Order) order.Order {
	f.Helper()
	p := order.Policy{Reread: hour}
	got, err := f.s.Settle(f.Context(), "w1", []order.Settlement{p.Withdraw(&o, order.Revoked, time.Now())})
	f.must(err)
	if got[0] != order.Applied {
		f.Fatalf("withdrawal: %d, want Applied", got[0])
	}
	return f.view(o.Number).Order
}

func takenBack(f *fixture) {
	a, b := f.admission("T-1", "v"), f.admission("T-2", "v")
	born := f.admitOne(a).Order
	f.admitOne(b)
	was := f.withdraw(born)
	f.stands(was, order.Processing, order.Replaying, 2)
	f.counts(was, 0, 0, 0, 0)
	if !order.Withdrawn(&was) {
		f.Errorf("%+v does not count as withdrawn", was)
	}
	got, err := f.s.Admit(f.Context(), f.route, "w2", hour, []order.Admission{b, a})
	f.must(err)
	if got[0].Kind != order.Duplicate || got[1].Kind != order.New {
		f.Fatalf("kinds %d and %d, want Duplicate and New", got[0].Kind, got[1].Kind)
	}
	o := got[1].Order
	if !born.Fresh || !o.Fresh || o.ID != born.ID || o.Number != "T-1" || o.Route != f.route {
		f.Errorf("taken back: %+v", o)
	}
	f.sameMessage(o.Message, a.Message)
	if d := o.AdmittedAt.Sub(was.AdmittedAt); d < -time.Second || d > time.Second {
		f.Errorf("admitted %s, before the withdrawal %s", o.AdmittedAt, was.AdmittedAt)
	}
	if until := time.Until(o.Due); until < hour-time.Minute || until > hour+time.Minute {
		f.Errorf("lease ends in %s, want an hour", until)
	}
	v := f.view("T-1")
	for _, o := range []order.Order{o, v.Order} {
		f.stands(o, order.Processing, order.InFlight, 3)
		f.counts(o, 1, 1, 0, 0)
		if o.Outcome != order.NoOutcome || o.Reason != order.NoReason {
			f.Errorf("outcome %s reason %q of an order that was never sent", o.Outcome, o.Reason)
		}
	}
	if v.Owner != "w2" || len(v.History) != 0 {
		f.Errorf("owner %q, history %v", v.Owner, v.History)
	}
	if late := f.settle(born, succeeded()); late != order.Stale {
		f.Errorf("who withdrew it may settle it: %d", late)
	}
	f.move(o, succeeded())
}

func notTakenBack(f *fixture) {
	first := f.admission("T-1", "v")
	f.withdraw(f.admitOne(first).Order)
	for _, again := range []order.Admission{f.admission("T-1", "v"), first, f.admission("T-1", "w")} {
		if again.Message.Offset == first.Message.Offset {
			again.Message.Topic = "orders.out"
		}
		if got := f.admitOne(again); got.Kind == order.New {
			f.Errorf("a record at %s/%d took back an order that is not its own", again.Message.Topic, again.Message.Offset)
		}
	}
	f.stands(f.view("T-1").Order, order.Processing, order.Replaying, 2)
	both := []order.Admission{f.admission("T-1", "v"), first}
	got, err := f.s.Admit(f.Context(), f.route, "w2", hour, both)
	f.must(err)
	if got[0].Kind != order.Duplicate || got[1].Kind != order.New {
		f.Errorf("kinds %d and %d, want Duplicate and New", got[0].Kind, got[1].Kind)
	}
}

func onlyWithdrawn(f *fixture) {
	for i, t := range []order.Transition{
		{State: order.Processing, Phase: order.Replaying, Outcome: order.OutcomeRefused, Reason: order.CircuitOpen, Due: time.Now().Add(hour)},
		{State: order.Processing, Phase: order.Replaying, Outcome: order.OutcomeCancelled, AttemptsTotal: 1, Due: time.Now().Add(hour)},
		{State: order.Processing, Phase: order.Unknown, Outcome: order.OutcomeCancelled, Due: time.Now().Add(hour)},
		succeeded(),
	} {
		a := f.admission(fmt.Sprint("T-", i), "v")
		f.move(f.admitOne(a).Order, t)
		if got := f.admitOne(a); got.Kind != order.Duplicate {
			f.Errorf("%s/%s %s with %d attempts: kind %d, want Duplicate", t.State, t.Phase, t.Outcome, t.AttemptsTotal, got.Kind)
		}
	}
}

func takenBackOnce(f *fixture) {
	a := f.admission("T-1", "v")
	f.withdraw(f.admitOne(a).Order)
	kinds := make([]order.AdmitKind, 8)
	var readers sync.WaitGroup
	for i := range kinds {
		readers.Go(func() {
			if got, err := f.s.Admit(f.Context(), f.route, fmt.Sprint("r", i), hour, []order.Admission{a}); err != nil {
				f.Error(err)
			} else {
				kinds[i] = got[0].Kind
			}
		})
	}
	readers.Wait()
	won := 0
	for _, k := range kinds {
		if k == order.New {
			won++
		}
	}
	if won != 1 {
		f.Errorf("%d readers took the order back, want 1", won)
	}
}
