package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spillway/internal/desk"
	"spillway/internal/memstore"
	"spillway/internal/storetest"
	"spillway/internal/testkit"
	"spillway/order"
)

// TestTheDatabaseDoesWhatTheModelDoes walks both stores through the same random steps and compares every answer, and at
// the end every order and letter. A seed repeats a walk.
func TestTheDatabaseDoesWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w := &walk{
				T: t, rng: rand.New(rand.NewPCG(seed, 1)), route: fmt.Sprintf("walk-%d", seed),
				real: s, model: memstore.New(time.Now), realID: map[string]int64{}, modelID: map[string]int64{},
			}
			for range 120 {
				w.step()
			}
			w.compare()
		})
	}
}

// walk is one random walk. Orders are told by their numbers, because the two stores give different IDs.
type walk struct {
	*testing.T
	rng             *rand.Rand
	route           string
	real, model     storetest.Store
	realID, modelID map[string]int64 // orders by number
	offset          int64
	known           []known
	records         []order.Admission
}

// known is a version of an order that somebody once read, and may settle.
type known struct {
	number  string
	version int64
}

func (w *walk) step() {
	switch w.rng.IntN(8) {
	case 0, 1:
		w.admit()
	case 2, 3, 4:
		w.settle()
	case 5:
		w.begin()
	case 6:
		w.claim()
	case 7:
		w.resolve()
	}
}

func (w *walk) number() string { return fmt.Sprintf("T-%d", w.rng.IntN(40)) }

// lease is over at once, or not within the walk.
func (w *walk) lease() time.Duration { return time.Duration(w.rng.IntN(2)) * time.Hour }

func (w *walk) admit() {
	as := make([]order.Admission, 1+w.rng.IntN(5))
	for i := range as {
		w.offset++
		as[i] = order.Admission{Number: w.number(), Message: order.Message{Topic: "orders.in", Offset: w.offset, Value: []byte("v")}}
		switch w.rng.IntN(8) {
		case 0:
			as[i].Message.Value = nil
		case 1:
			as[i].Message.Value = []byte{}
		}
		if len(w.records) > 0 && w.rng.IntN(3) == 0 {
			as[i] = w.records[w.rng.IntN(len(w.records))] // read again
		}
	}
	w.records = append(w.records, as...)
	lease := w.lease()
	a, err := w.real.Admit(w.Context(), w.route, "w1", lease, as)
	w.must(err)
	b, err := w.model.Admit(w.Context(), w.route, "w1", lease, as)
	w.must(err)
	for i := range as {
		w.realID[as[i].Number], w.modelID[as[i].Number] = a[i].Order.ID, b[i].Order.ID
		w.same("admitted "+as[i].Number, fmt.Sprint(a[i].Kind, shape(&a[i].Order)), fmt.Sprint(b[i].Kind, shape(&b[i].Order)))
		w.know(&a[i].Order)
	}
}

func (w *walk) know(o *order.Order) { w.known = append(w.known, known{o.Number, o.Version}) }

func (w *walk) settle() {
	if len(w.known) == 0 {
		return
	}
	var a, b []order.Settlement
	for range 1 + w.rng.IntN(4) {
		k := w.known[max(0, len(w.known)-1-w.rng.IntN(8))]
		t := w.transition()
		s := order.Settlement{ID: w.realID[k.number], Version: k.version, Transition: t, Straight: k.version == 1 && t.State.Final()}
		a = append(a, s)
		s.ID = w.modelID[k.number]
		b = append(b, s)
	}
	got, err := w.real.Settle(w.Context(), "w2", a)
	w.must(err)
	want, err := w.model.Settle(w.Context(), "w2", b)
	w.must(err)
	// Of two settlements in one batch for one version of one order, the first wins in both.
	w.same(fmt.Sprintf("settled %+v", a), fmt.Sprint(got), fmt.Sprint(want))
	for i := range got {
		if got[i] == order.Applied {
			w.known = append(w.known, known{w.numberOf(a[i].ID), a[i].Version + 1})
		}
	}
}

func (w *walk) numberOf(id int64) string {
	for number, have := range w.realID {
		if have == id {
			return number
		}
	}
	return ""
}

func (w *walk) transition() order.Transition {
	t := order.Transition{
		State: order.Processing, Attempts: w.rng.IntN(3), AttemptsTotal: w.rng.IntN(5), Lookups: w.rng.IntN(3),
		Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Detail: "d",
	}
	if w.rng.IntN(3) == 0 { // with Replaying and no attempts it is a withdrawal
		t.Outcome, t.Reason, t.AttemptsTotal = order.OutcomeCancelled, order.Revoked, w.rng.IntN(2)
	}
	if w.rng.IntN(2) == 0 {
		t.Due = time.Now().Add(time.Hour)
	}
	switch w.rng.IntN(5) {
	case 0:
		t.State = order.Succeeded
	case 1:
		t.State = order.Failed
	case 2:
		t.State = order.Dead
	case 3:
		t.Phase = order.Unknown
	case 4:
		t.Phase = order.Replaying
	}
	return t
}

func (w *walk) begin() {
	var a, b []int64
	for range 4 {
		if n := w.number(); w.realID[n] != 0 && !slices.Contains(a, w.realID[n]) {
			a, b = append(a, w.realID[n]), append(b, w.modelID[n])
		}
	}
	lease := w.lease()
	got, err := w.real.Begin(w.Context(), "w3", lease, a)
	w.must(err)
	want, err := w.model.Begin(w.Context(), "w3", lease, b)
	w.must(err)
	w.sameOrders("begun", got, want)
}

// claim takes all that is due, because which of those due at the same moment come first is open.
func (w *walk) claim() {
	lease := w.lease()
	got, err := w.real.ClaimDue(w.Context(), w.route, "w4", lease, 1000)
	w.must(err)
	want, err := w.model.ClaimDue(w.Context(), w.route, "w4", lease, 1000)
	w.must(err)
	for _, os := range [][]order.Order{got, want} {
		slices.SortFunc(os, func(a, b order.Order) int { return int(a.Message.Offset - b.Message.Offset) })
	}
	w.sameOrders("claimed", got, want)
}

// resolve requeues or discards the oldest letter that waits, and asks for it twice.
func (w *walk) resolve() {
	f := desk.LetterFilter{Route: w.route, Status: desk.Waiting}
	a, err := w.real.ListDeadLetters(w.Context(), f)
	w.must(err)
	b, err := w.model.ListDeadLetters(w.Context(), f)
	w.must(err)
	w.same("letters", fmt.Sprint(len(a)), fmt.Sprint(len(b)))
	if len(a) == 0 || w.Failed() {
		return
	}
	by := desk.Sign{Operator: "ann", Note: "n"}
	// The same letter in both: a batch may have written them in another order.
	x := a[w.rng.IntN(len(a))]
	at := slices.IndexFunc(b, func(l desk.Letter) bool {
		return l.Message.Offset == x.Message.Offset && (l.OrderID == 0) == (x.OrderID == 0)
	})
	if at < 0 {
		w.Fatalf("the model has no letter for %+v", x)
	}
	number := w.number()
	if w.rng.IntN(2) == 0 {
		number = ""
	}
	var got, want []desk.Resolved
	if w.rng.IntN(2) == 0 {
		got, err = w.real.Requeue(w.Context(), by, []desk.Requeue{{ID: x.ID, Number: number}, {ID: x.ID, Number: number}})
		w.must(err)
		want, err = w.model.Requeue(w.Context(), by, []desk.Requeue{{ID: b[at].ID, Number: number}, {ID: b[at].ID, Number: number}})
	} else {
		got, err = w.real.Discard(w.Context(), by, []int64{x.ID, x.ID})
		w.must(err)
		want, err = w.model.Discard(w.Context(), by, []int64{b[at].ID, b[at].ID})
	}
	w.must(err)
	for i := range got {
		w.same("resolved", fmt.Sprint(got[i].Err == nil, (got[i].OrderID == 0)), fmt.Sprint(want[i].Err == nil, (want[i].OrderID == 0)))
	}
	if x.OrderID == 0 && got[0].Err == nil && got[0].OrderID != 0 {
		w.realID[number], w.modelID[number] = got[0].OrderID, want[0].OrderID
		w.known = append(w.known, known{number, 1})
	}
}

func (w *walk) sameOrders(what string, got, want []order.Order) {
	w.Helper()
	if len(got) != len(want) {
		w.Fatalf("%s %d orders, want %d", what, len(got), len(want))
	}
	for i := range got {
		w.same(what, shape(&got[i]), shape(&want[i]))
		w.know(&got[i])
	}
}

func (w *walk) same(what, got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %s, the model says %s", what, got, want)
	}
}

func (w *walk) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// shape is all of an order that does not depend on clocks and IDs.
func shape(o *order.Order) string {
	return fmt.Sprint(o.Number, " ", o.State, " ", o.Phase, " v", o.Version, " ", o.Attempts, o.AttemptsTotal, o.Lookups, o.Life,
		" ", o.Outcome, " ", o.Reason, " ", o.Detail, o.Message.Offset, o.Message.Value == nil, o.LastAttempt.IsZero(), o.Due.IsZero())
}

// compare compares every order, its history, and the counts of both stores.
func (w *walk) compare() {
	a, err := w.real.Tally(w.Context(), w.route)
	w.must(err)
	b, err := w.model.Tally(w.Context(), w.route)
	w.must(err)
	w.same("tally", fmt.Sprint(a), fmt.Sprint(b))
	if w.Failed() {
		return
	}
	if int(a.Total()) != len(w.realID) {
		w.Errorf("%d orders, want the %d that were admitted", a.Total(), len(w.realID))
	}
	for number := range w.realID {
		x, err := w.real.ShowOrder(w.Context(), w.route, number)
		w.must(err)
		y, err := w.model.ShowOrder(w.Context(), w.route, number)
		w.must(err)
		w.same("order", shape(&x.Order)+" "+x.Owner, shape(&y.Order)+" "+y.Owner)
		w.same(number+" letter", fmt.Sprint(x.Letter != 0), fmt.Sprint(y.Letter != 0))
		w.same(number+" history", events(x.History), events(y.History))
	}
}

func events(es []desk.Event) string {
	var out []string
	for _, e := range es {
		e.At = time.Time{}
		out = append(out, fmt.Sprintf("%+v", e))
	}
	return fmt.Sprint(out)
}
