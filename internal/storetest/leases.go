package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

func leases() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"ALeaseThatRanOutMakesTheOrderUnknown":       workerDied,
		"AnUnknownOrderIsClaimedForAnotherLookup":    claimUnknown,
		"AReplayingOrderIsClaimedAsItIs":             claimReplaying,
		"WhatIsDueLongestIsClaimedFirst":             claimOldest,
		"AClaimEndsTheOwnersSay":                     claimFences,
		"ClaimsAtTheSameTimeNeverOverlap":            claimTogether,
		"ARenewedLeaseIsNotClaimed":                  renew,
		"ALostLeaseIsNotRenewed":                     renewLost,
		"BeginStartsTheNextAttemptOfReplayingOrders": begin,
		"BeginLeavesAllOthersAlone":                  beginOthers,
		"TwoWorkersNeverBeginTheSameAttempt":         beginTogether,
	}
}

func workerDied(f *fixture) {
	o := f.admit(past, "T-1")[0]
	got := f.claim("w2", 10)
	if len(got) != 1 {
		f.Fatalf("claimed %v, want one", got)
	}
	c := got[0]
	f.stands(c, order.Processing, order.Unknown, 2)
	f.counts(c, 1, 1, 1, 0)
	if c.ID != o.ID || c.Reason != order.WorkerDied || c.Outcome != order.OutcomeUnknown || c.Number != "T-1" || c.Route != f.route {
		f.Errorf("claimed %+v", c)
	}
	if until := time.Until(c.Due); until < hour-time.Minute || until > hour+time.Minute {
		f.Errorf("lease ends in %s, want an hour", until)
	}
	if !c.LastAttempt.After(o.LastAttempt) {
		f.Errorf("last attempt %s, admitted with %s: it may have begun until the lease was over", c.LastAttempt, o.LastAttempt)
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Processing, order.Unknown, 2)
	if v.Owner != "w2" || len(v.History) != 1 {
		f.Fatalf("owner %q, history %+v", v.Owner, v.History)
	}
	e := v.History[0]
	if e.Kind != desk.Transition || e.Phase != order.Unknown || e.Reason != order.WorkerDied || e.Version != 2 || e.Actor != "w2" {
		f.Errorf("entry %+v", e)
	}
	if again := f.claim("w3", 10); len(again) != 0 {
		f.Errorf("claimed %v while it is leased", again)
	}
}

func claimUnknown(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, unknown(time.Time{}))
	ended := f.view("T-1").Order.LastAttempt
	if !ended.After(f.view("T-1").Order.AdmittedAt) {
		f.Errorf("last attempt %s: it may have begun until it ended unknown", ended)
	}
	got, err := f.s.ClaimDue(f.Context(), f.route, "w2", past, 10)
	f.must(err)
	if len(got) != 1 {
		f.Fatalf("claimed %v, want one", got)
	}
	f.stands(got[0], order.Processing, order.Unknown, 3)
	f.counts(got[0], 1, 1, 1, 0)
	got = f.claim("w3", 10) // the lease of w2 ended at once
	if len(got) != 1 {
		f.Fatalf("claimed %v, want one", got)
	}
	f.stands(got[0], order.Processing, order.Unknown, 4)
	f.counts(got[0], 1, 1, 2, 0)
	if got[0].Reason != order.UpstreamTimeout || got[0].Outcome != order.OutcomeUnknown {
		f.Errorf("reason %s, outcome %s, want those of the attempt", got[0].Reason, got[0].Outcome)
	}
	v := f.view("T-1")
	if len(v.History) != 1 {
		f.Errorf("history %+v: a claim is no transition", v.History)
	}
	if !v.Order.LastAttempt.Equal(ended) {
		f.Errorf("last attempt moved from %s to %s by lookups", ended, v.Order.LastAttempt)
	}
}

func claimReplaying(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, replaying(time.Time{}))
	got := f.claim("w2", 10)
	if len(got) != 1 {
		f.Fatalf("claimed %v, want one", got)
	}
	f.stands(got[0], order.Processing, order.Replaying, 3)
	f.counts(got[0], 1, 1, 0, 0)
	if again := f.claim("w3", 10); len(again) != 0 {
		f.Errorf("claimed %v while it is leased", again)
	}
}

func claimOldest(f *fixture) {
	os := f.admit(hour, "T-1", "T-2", "T-3", "T-4")
	now := time.Now()
	for i, ago := range []time.Duration{time.Minute, 3 * time.Minute, 2 * time.Minute} {
		f.move(os[i], unknown(now.Add(-ago)))
	}
	// T-4 is not due.
	var got []string
	for range 3 {
		for _, o := range f.claim("w2", 1) {
			got = append(got, o.Number)
		}
	}
	if !slices.Equal(got, []string{"T-2", "T-3", "T-1"}) {
		f.Errorf("claimed %v", got)
	}
}

func claimFences(f *fixture) {
	o := f.admit(past, "T-1")[0]
	c := f.claim("w2", 1)[0]
	if got := f.settle(o, succeeded()); got != order.Stale {
		f.Errorf("the first owner settled: %d, want Stale", got)
	}
	f.move(c, succeeded())
	if got := f.settle(o, failed()); got != order.Conflict {
		f.Errorf("the first owner contradicted: %d, want Conflict", got)
	}
}

func claimTogether(f *fixture) {
	const n = 200
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = fmt.Sprintf("T-%d", i)
	}
	f.admit(past, numbers...)
	var mu sync.Mutex
	claims := map[string]int{}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			empty := 0
			for empty < 3 { // rows that others have locked are skipped, so an empty claim is not the end
				got, err := f.s.ClaimDue(f.Context(), f.route, fmt.Sprintf("w%d", w), hour, 7)
				if err != nil {
					f.Error(err)
					return
				}
				if len(got) == 0 {
					empty++
				}
				mu.Lock()
				for _, o := range got {
					claims[o.Number]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(claims) != n {
		f.Errorf("%d orders claimed, want %d", len(claims), n)
	}
	for number, times := range claims {
		if times != 1 {
			f.Errorf("%s claimed %d times", number, times)
		}
	}
}

func (f *fixture) renew(owner string, ls ...order.Lease) []bool {
	f.Helper()
	got, err := f.s.Renew(f.Context(), owner, hour, ls)
	f.must(err)
	if len(got) != len(ls) {
		f.Fatalf("%d answers to %d leases", len(got), len(ls))
	}
	return got
}

func renew(f *fixture) {
	o := f.admit(past, "T-1")[0]
	if got := f.renew("w1", order.Lease{ID: o.ID, Version: 1}); !got[0] {
		f.Error("a lease that nobody claimed was lost")
	}
	if got := f.claim("w2", 1); len(got) != 0 {
		f.Errorf("claimed %v after it was renewed", got)
	}
	v := f.view("T-1")
	f.stands(v.Order, order.Processing, order.InFlight, 1)
	if until := time.Until(v.Order.Due); until < hour-time.Minute {
		f.Errorf("lease ends in %s, want an hour", until)
	}
	f.move(o, succeeded())
}

func renewLost(f *fixture) {
	os := f.admit(past, "T-1", "T-2", "T-3")
	f.move(os[1], succeeded())
	held := order.Lease{ID: os[2].ID, Version: 1}
	if got := f.renew("w1", held); !got[0] {
		f.Fatal("lost a lease that nobody claimed")
	}
	f.claim("w2", 10)
	got := f.renew("w1", order.Lease{ID: os[0].ID, Version: 1}, order.Lease{ID: os[1].ID, Version: 1}, held, held,
		order.Lease{ID: os[0].ID, Version: 2})
	if !slices.Equal(got, []bool{false, false, true, true, false}) {
		f.Errorf("renewed %v: claimed by another, settled, held twice, another's version", got)
	}
	if got := f.renew("w2", held); got[0] {
		f.Error("renewed another's lease")
	}
	if c := f.view("T-1"); c.Owner != "w2" || c.Order.Version != 2 {
		f.Errorf("owner %q version %d", c.Owner, c.Order.Version)
	}
}

func begin(f *fixture) {
	os := f.admit(hour, "T-1", "T-2")
	for _, o := range os {
		f.move(o, replaying(time.Now()))
	}
	got, err := f.s.Begin(f.Context(), "w2", hour, []int64{os[1].ID, os[0].ID, os[1].ID})
	f.must(err)
	if len(got) != 2 || got[0].Number != "T-2" || got[1].Number != "T-1" {
		f.Fatalf("begun %v, want T-2 and T-1", got)
	}
	for i, o := range got {
		f.stands(o, order.Processing, order.InFlight, 3)
		f.counts(o, 2, 2, 0, 0)
		f.sameMessage(o.Message, os[1-i].Message)
		if time.Since(o.LastAttempt) > time.Minute || time.Until(o.Due) < hour-time.Minute {
			f.Errorf("last attempt %s, due %s", o.LastAttempt, o.Due)
		}
	}
	if v := f.view("T-1"); v.Owner != "w2" {
		f.Errorf("owner %q, want w2", v.Owner)
	}
	t := succeeded()
	t.Attempts, t.AttemptsTotal = 2, 2
	f.move(got[0], t)
	if h := f.view("T-2").History; len(h) != 2 {
		f.Errorf("history %+v, want the spill and the success", h)
	}
}

func beginOthers(f *fixture) {
	os := f.admit(hour, "T-1", "T-2", "T-3", "T-4")
	f.move(os[1], unknown(time.Now()))
	f.move(os[2], succeeded())
	f.move(os[3], dead())
	ids := []int64{os[0].ID, os[1].ID, os[2].ID, os[3].ID, 1 << 60}
	got, err := f.s.Begin(f.Context(), "w2", hour, ids)
	f.must(err)
	if len(got) != 0 {
		f.Errorf("begun %v: in flight, unknown, succeeded, dead, not there", got)
	}
	f.stands(f.view("T-1").Order, order.Processing, order.InFlight, 1)
}

func beginTogether(f *fixture) {
	const n = 100
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = fmt.Sprintf("T-%d", i)
	}
	os := f.admit(hour, numbers...)
	ids := make([]int64, n)
	ss := make([]order.Settlement, n)
	for i, o := range os {
		ids[i], ss[i] = o.ID, o.Settle(replaying(time.Now()))
	}
	_, err := f.s.Settle(f.Context(), "w1", ss)
	f.must(err)
	var mu sync.Mutex
	begun := map[int64]int{}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			mine := slices.Clone(ids)
			if w%2 == 1 {
				slices.Reverse(mine)
			}
			got, err := f.s.Begin(f.Context(), fmt.Sprintf("w%d", w), hour, mine)
			if err != nil {
				f.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, o := range got {
				begun[o.ID]++
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if begun[id] != 1 {
			f.Errorf("order %d begun %d times", id, begun[id])
		}
	}
}
