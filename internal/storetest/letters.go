package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"spillway/internal/desk"
	"spillway/order"
)

func deadLetters() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"ABuriedRecordIsWrittenOnceAndKeptExact":  bury,
		"TheBytesOfAQueueItemAreKept":             buryRaw,
		"ARecordOfATopicMadeAnewIsAnotherRecord":  buryAnew,
		"ARequeuedOrderStartsANewLifeWithALookup": requeue,
		"RequeueingTwiceIsRefused":                requeueTwice,
		"EachLifeThatEndsLeavesALetter":           lives,
		"ALetterWithoutAnOrderBecomesOne":         requeueRecord,
		"ALetterThatCanNotBecomeAnOrderSaysWhy":   requeueRefused,
		"ADiscardedOrderIsFinal":                  discard,
		"OfManyRequeuesAtOnceOneIsDone":           requeueTogether,
		"NobodyResolvesWithoutAName":              unsigned,
	}
}

func ann() desk.Sign { return desk.Sign{Operator: "ann", Note: "service was mended"} }

func (f *fixture) dead(number string, reason order.Reason) order.DeadRecord {
	return order.DeadRecord{
		Route: f.route, Number: number, Message: f.admission(number, "not json").Message,
		Reason: reason, Detail: "at byte 0",
	}
}

func bury(f *fixture) {
	d := f.dead("", order.Undecodable)
	d.Message.Key = nil
	wild := f.dead("bad\x00number\xff", order.NoNumber)
	wild.Detail = "a\x00b"
	for range 3 {
		f.must(f.s.Bury(f.Context(), []order.DeadRecord{d, wild, d}))
	}
	ls := f.waiting()
	if len(ls) != 2 {
		f.Fatalf("%d letters, want 2", len(ls))
	}
	for _, l := range ls {
		if l.Message.Value != nil || l.Message.Offset == 0 || l.OrderID != 0 || l.Unreadable {
			f.Errorf("listed %+v", l)
		}
		full, err := f.s.ShowDeadLetter(f.Context(), l.ID)
		f.must(err)
		want, number, detail := d, "", "at byte 0"
		if full.Reason == order.NoNumber {
			want, number, detail = wild, "bad?number?", "a?b"
		}
		f.sameMessage(full.Message, want.Message)
		if full.Reason != want.Reason || full.Number != number || full.Detail != detail {
			f.Errorf("letter %+v", full)
		}
	}
	// A record that was resolved stays resolved when it is delivered again.
	_, err := f.s.Discard(f.Context(), ann(), []int64{ls[0].ID, ls[1].ID})
	f.must(err)
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{d, wild}))
	if n := len(f.waiting()); n != 0 {
		f.Errorf("%d letters wait after a redelivery of what was discarded", n)
	}
}

func buryRaw(f *fixture) {
	items := make([]order.DeadRecord, 0, 3)
	for _, raw := range []string{"", "null", `{"v":1}xx`} {
		items = append(items, order.DeadRecord{Route: f.route, Raw: []byte(raw), Reason: order.QueueItemUnreadable})
	}
	for range 2 {
		f.must(f.s.Bury(f.Context(), items))
	}
	ls := f.waiting()
	if len(ls) != len(items) {
		f.Fatalf("%d letters, want %d", len(ls), len(items))
	}
	seen := map[string]bool{}
	for _, l := range ls {
		full, err := f.s.ShowDeadLetter(f.Context(), l.ID)
		f.must(err)
		if !full.Unreadable || !l.Unreadable || full.Raw == nil || l.Raw != nil {
			f.Errorf("letter %+v", full)
		}
		seen[string(full.Raw)] = true
	}
	for _, d := range items {
		if !seen[string(d.Raw)] {
			f.Errorf("no letter keeps %q", d.Raw)
		}
	}
	_, err := f.s.Discard(f.Context(), ann(), []int64{ls[0].ID})
	f.must(err)
	f.must(f.s.Bury(f.Context(), items))
	if n := len(f.waiting()); n != len(items) {
		f.Errorf("%d letters wait, want %d: the same bytes came again after they were discarded", n, len(items))
	}
}

func buryAnew(f *fixture) {
	a := f.dead("", order.Undecodable)
	b := a
	b.Message.Value = []byte("another record at the same offset")
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{a, b}))
	if n := len(f.waiting()); n != 2 {
		f.Errorf("%d letters, want 2", n)
	}
}

func (f *fixture) requeue(rs ...desk.Requeue) []desk.Resolved {
	f.Helper()
	got, err := f.s.Requeue(f.Context(), ann(), rs)
	f.must(err)
	if len(got) != len(rs) {
		f.Fatalf("%d answers to %d requeues", len(got), len(rs))
	}
	return got
}

func requeue(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	t := dead()
	t.Attempts, t.AttemptsTotal = 3, 5
	f.move(o, t)
	letter := f.view("T-1").Letter
	got := f.requeue(desk.Requeue{ID: letter})
	f.must(got[0].Err)
	if got[0].ID != letter || got[0].OrderID != o.ID {
		f.Errorf("resolved %+v, want order %d", got[0], o.ID)
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Processing, order.Unknown, 3)
	f.counts(v.Order, 0, 0, 0, 1)
	if v.Order.Reason != order.Requeued || v.Order.Detail != ann().Note || v.Order.LastAttempt.IsZero() || v.Letter != 0 {
		f.Errorf("order %+v, letter %d", v.Order, v.Letter)
	}
	e := v.History[len(v.History)-1]
	if e.Actor != "ann" || e.From != order.Dead || e.To != order.Processing || e.Phase != order.Unknown || e.Life != 1 || e.Detail != ann().Note {
		f.Errorf("entry %+v", e)
	}
	l, err := f.s.ShowDeadLetter(f.Context(), letter)
	f.must(err)
	if l.Status != desk.Requeued || l.ResolvedBy != "ann" || l.Note != ann().Note || l.ResolvedAt.IsZero() || l.AttemptsTotal != 5 {
		f.Errorf("letter %+v", l)
	}
	c := f.claim("w2", 10)
	if len(c) != 1 {
		f.Fatalf("claimed %v, want the requeued order at once", c)
	}
	f.counts(c[0], 0, 0, 1, 1)
}

func requeueTwice(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, dead())
	letter := f.view("T-1").Letter
	got := f.requeue(desk.Requeue{ID: letter}, desk.Requeue{ID: letter}, desk.Requeue{ID: 1 << 60})
	f.must(got[0].Err)
	if err := got[1].Err; !errors.Is(err, desk.ErrResolved) || !strings.Contains(err.Error(), "requeued by ann") {
		f.Errorf("twice in one call: %v", err)
	}
	if !errors.Is(got[2].Err, desk.ErrNotFound) {
		f.Errorf("a letter that is not there: %v", got[2].Err)
	}
	if err := f.requeue(desk.Requeue{ID: letter})[0].Err; !errors.Is(err, desk.ErrResolved) {
		f.Errorf("again: %v", err)
	}
	d, err := f.s.Discard(f.Context(), ann(), []int64{letter, 1 << 60})
	f.must(err)
	if !errors.Is(d[0].Err, desk.ErrResolved) || !errors.Is(d[1].Err, desk.ErrNotFound) {
		f.Errorf("discarded after a requeue: %v", d)
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Processing, order.Unknown, 3)
	f.counts(v.Order, 0, 0, 0, 1)
}

func lives(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	var earlier int64
	for life := range 3 {
		f.move(o, dead())
		v := f.view("T-1")
		if v.Letter == 0 || v.Letter == earlier || v.Order.Life != life {
			f.Fatalf("life %d letter %d, want life %d and a new letter", v.Order.Life, v.Letter, life)
		}
		if earlier != 0 {
			if err := f.requeue(desk.Requeue{ID: earlier})[0].Err; !errors.Is(err, desk.ErrResolved) {
				f.Errorf("the letter of an earlier life: %v", err)
			}
			f.stands(f.view("T-1").Order, order.Dead, order.NoPhase, v.Order.Version)
		}
		earlier = v.Letter
		f.must(f.requeue(desk.Requeue{ID: v.Letter})[0].Err)
		o = f.view("T-1").Order
	}
	t := f.tally()
	if t.OrderLetters[desk.Requeued] != 3 || t.OrderLetters[desk.Waiting] != 0 || t.Total() != 1 {
		f.Errorf("tally %+v", t)
	}
}

func requeueRecord(f *fixture) {
	d, e := f.dead("", order.NoNumber), f.dead("", order.NoNumber)
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{d, e}))
	ls := f.waiting() // the newest first
	got := f.requeue(desk.Requeue{ID: ls[0].ID, Number: "T-9"}, desk.Requeue{ID: ls[1].ID, Number: "T-9"})
	done, refused := got[0], got[1]
	if done.Err != nil {
		done, refused = refused, done
	}
	f.must(done.Err)
	if !errors.Is(refused.Err, desk.ErrRefused) || !strings.Contains(refused.Err.Error(), "T-9") {
		f.Errorf("two records became one order: %v", refused.Err)
	}
	v := f.view("T-9")
	f.stands(v.Order, order.Processing, order.Replaying, 1)
	f.counts(v.Order, 0, 0, 0, 1)
	if v.Order.ID != done.OrderID || !v.Order.LastAttempt.IsZero() || v.Order.Reason != order.Requeued {
		f.Errorf("order %+v, resolved %+v", v.Order, done)
	}
	want := d.Message
	if v.Order.Message.Offset == e.Message.Offset {
		want = e.Message
	}
	f.sameMessage(v.Order.Message, want)
	if len(v.History) != 1 || v.History[0].Actor != "ann" || v.History[0].From != order.Dead {
		f.Errorf("history %+v", v.History)
	}
	if n := len(f.waiting()); n != 1 {
		f.Errorf("%d letters wait, want the refused one", n)
	}
	c := f.claim("w2", 10)
	if len(c) != 1 || c[0].Phase != order.Replaying {
		f.Fatalf("claimed %v, want the new order", c)
	}
	// Delivered again, the record that became an order is no new letter.
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{d, e}))
	if n := len(f.waiting()); n != 1 {
		f.Errorf("%d letters wait after a redelivery, want one", n)
	}
}

func requeueRefused(f *fixture) {
	f.admit(hour, "T-1")
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{
		f.dead("", order.Undecodable), f.dead("T-1", order.PayloadConflict),
		{Route: f.route, Raw: []byte("junk"), Reason: order.QueueItemUnreadable},
	}))
	for _, c := range []struct {
		reason       order.Reason
		number, want string
	}{
		{order.Undecodable, "", "business number is empty"},
		{order.PayloadConflict, "T-1", `business number "T-1" is order`},
		{order.QueueItemUnreadable, "T-5", "can't be read"},
	} {
		ls, err := f.s.ListDeadLetters(f.Context(), desk.LetterFilter{Route: f.route, Reason: c.reason})
		f.must(err)
		err = f.requeue(desk.Requeue{ID: ls[0].ID, Number: c.number})[0].Err
		if !errors.Is(err, desk.ErrRefused) || !strings.Contains(err.Error(), c.want) {
			f.Errorf("%s: %v", c.reason, err)
		}
	}
	if n := len(f.waiting()); n != 3 {
		f.Errorf("%d letters wait, want all three", n)
	}
}

func discard(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, dead())
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{f.dead("", order.NullValue)}))
	var ids []int64
	for _, l := range f.waiting() {
		ids = append(ids, l.ID)
	}
	got, err := f.s.Discard(f.Context(), ann(), ids)
	f.must(err)
	for i := range got {
		f.must(got[i].Err)
		if got[i].ID != ids[i] {
			f.Errorf("answer %d is for letter %d, want %d", i, got[i].ID, ids[i])
		}
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Discarded, order.NoPhase, 3)
	f.counts(v.Order, 1, 1, 0, 0)
	e := v.History[len(v.History)-1]
	if v.Order.Reason != order.DiscardedByOperator || e.To != order.Discarded || e.From != order.Dead || e.Actor != "ann" {
		f.Errorf("order %+v, entry %+v", v.Order, e)
	}
	again, err := f.s.Discard(f.Context(), ann(), ids)
	f.must(err)
	for _, r := range again {
		if !errors.Is(r.Err, desk.ErrResolved) || !strings.Contains(r.Err.Error(), "discarded by ann") {
			f.Errorf("discarded twice: %v", r.Err)
		}
	}
	t := f.tally()
	if t.Letters[desk.Discarded] != 1 || t.OrderLetters[desk.Discarded] != 1 || t.State(order.Discarded) != 1 {
		f.Errorf("tally %+v", t)
	}
}

func requeueTogether(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, dead())
	letter := f.view("T-1").Letter
	var mu sync.Mutex
	done := 0
	var all sync.WaitGroup
	for w := range 6 {
		all.Go(func() {
			by := desk.Sign{Operator: fmt.Sprintf("op%d", w)}
			var got []desk.Resolved
			var err error
			if w%2 == 0 {
				got, err = f.s.Requeue(f.Context(), by, []desk.Requeue{{ID: letter}})
			} else {
				got, err = f.s.Discard(f.Context(), by, []int64{letter})
			}
			if err != nil {
				f.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got[0].Err == nil {
				done++
			} else if !errors.Is(got[0].Err, desk.ErrResolved) {
				f.Error(got[0].Err)
			}
		})
	}
	all.Wait()
	if done != 1 {
		f.Errorf("%d of 6 people resolved one letter", done)
	}
	if v := f.view("T-1"); v.Order.Version != 3 || len(v.History) != 2 {
		f.Errorf("version %d, history %+v", v.Order.Version, v.History)
	}
}

func unsigned(f *fixture) {
	for _, by := range []desk.Sign{{}, {Operator: strings.Repeat("x", desk.MaxOperator+1)}} {
		if _, err := f.s.Requeue(f.Context(), by, []desk.Requeue{{ID: 1}}); err == nil {
			f.Errorf("%q requeued", by.Operator)
		}
		if _, err := f.s.Discard(f.Context(), by, []int64{1}); err == nil {
			f.Errorf("%q discarded", by.Operator)
		}
	}
	if _, err := f.s.Discard(f.Context(), ann(), make([]int64, desk.MaxPage+1)); err == nil {
		f.Error("a call without a bound was taken")
	}
}
