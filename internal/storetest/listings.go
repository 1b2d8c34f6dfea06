package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"spillway/internal/desk"
	"spillway/order"
)

func listings() map[string]func(*fixture) {
	return map[string]func(*fixture){
		"OrdersAreListedByWhatIsAskedFor":      listOrders,
		"OrdersAreListedPageByPage":            pages,
		"DeadLettersAreListedByWhatIsAskedFor": listLetters,
		"WhatIsNotThereIsNotFound":             notFound,
		"CountsShowPhasesAgeAndLetters":        counts,
		"TheTallyIsWholeAfterEachStep":         tally,
	}
}

func numbersOf(os []order.Order) string {
	names := make([]string, len(os))
	for i := range os {
		names[i] = os[i].Number
	}
	return strings.Join(names, " ")
}

func listOrders(f *fixture) {
	var os []order.Order
	for _, n := range []string{"A-1", "A-2", "B_1", "Bx1", "A%3"} { // one by one, so that the newest is known
		os = append(os, f.admit(hour, n)...)
	}
	f.move(os[1], succeeded())
	f.move(os[2], replaying(time.Now().Add(hour)))
	f.move(os[3], dead())
	for want, filter := range map[string]desk.OrderFilter{
		"A%3 Bx1 B_1 A-2 A-1": {},
		"A%3 A-2 A-1":         {Prefix: "A"},
		"A%3":                 {Prefix: "A%"},
		"B_1":                 {Prefix: "B_"},
		"A%3 B_1 A-1":         {State: order.Processing},
		"A-2":                 {State: order.Succeeded},
		"Bx1":                 {State: order.Dead},
		"A%3 A-1":             {State: order.Processing, Phase: order.InFlight},
		"B_1 ":                {Phase: order.Replaying},
		"":                    {OlderThan: hour},
		"A-1":                 {Before: os[1].ID},
		"A%3 Bx1":             {Limit: 2},
	} {
		filter.Route = f.route
		got, err := f.s.ListOrders(f.Context(), filter)
		f.must(err)
		if numbersOf(got) != strings.TrimSpace(want) {
			f.Errorf("%+v: %q, want %q", filter, numbersOf(got), want)
		}
		for _, o := range got {
			if o.Message.Value != nil || o.Message.Key != nil || o.Message.Headers != nil || o.Message.Topic != "orders.in" {
				f.Errorf("listed with the record's bytes: %+v", o.Message)
			}
		}
	}
}

func pages(f *fixture) {
	var numbers []string
	for i := range 7 {
		numbers = append(numbers, fmt.Sprintf("T-%d", i))
	}
	f.admit(hour, numbers...)
	var got []string
	filter := desk.OrderFilter{Route: f.route, Limit: 3}
	for range 4 {
		page, err := f.s.ListOrders(f.Context(), filter)
		f.must(err)
		if len(page) == 0 {
			break
		}
		got = append(got, numbersOf(page))
		filter.Before = page[len(page)-1].ID
	}
	if s := strings.Join(got, " | "); s != "T-6 T-5 T-4 | T-3 T-2 T-1 | T-0" {
		f.Errorf("pages %s", s)
	}
}

func listLetters(f *fixture) {
	o := f.admit(hour, "T-1")[0]
	f.move(o, dead())
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{f.dead("U-1", order.PayloadConflict)}))
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{f.dead("U-2", order.Undecodable)}))
	all, err := f.s.ListDeadLetters(f.Context(), desk.LetterFilter{Route: f.route})
	f.must(err)
	if len(all) != 3 {
		f.Fatalf("%d letters, want 3", len(all))
	}
	_, err = f.s.Discard(f.Context(), ann(), []int64{all[1].ID})
	f.must(err)
	for want, filter := range map[string]desk.LetterFilter{
		"U-2 U-1 T-1": {},
		"U-2 T-1":     {Status: desk.Waiting},
		"U-1":         {Status: desk.Discarded},
		"":            {Status: desk.Requeued},
		"T-1":         {Reason: order.RequestRejected},
		"U-2 U-1":     {Prefix: "U-"},
		" ":           {OlderThan: hour},
		"U-1 T-1":     {Before: all[0].ID},
		"U-2":         {Limit: 1},
	} {
		filter.Route = f.route
		got, err := f.s.ListDeadLetters(f.Context(), filter)
		f.must(err)
		var names []string
		for _, l := range got {
			names = append(names, l.Number)
		}
		if s := strings.Join(names, " "); s != strings.TrimSpace(want) {
			f.Errorf("%+v: %q, want %q", filter, s, want)
		}
	}
}

func notFound(f *fixture) {
	if _, err := f.s.ShowOrder(f.Context(), f.route, "T-404"); !errors.Is(err, desk.ErrNotFound) {
		f.Errorf("order: %v", err)
	}
	if _, err := f.s.ShowDeadLetter(f.Context(), 1<<60); !errors.Is(err, desk.ErrNotFound) {
		f.Errorf("letter: %v", err)
	}
}

func counts(f *fixture) {
	empty, err := f.s.Counts(f.Context(), f.route)
	f.must(err)
	if empty.Oldest != 0 || empty.Capped || empty.DeadWaiting != 0 || len(empty.Processing) != 3 {
		f.Errorf("counts of nothing: %+v", empty)
	}
	os := f.admit(hour, "T-1", "T-2", "T-3", "T-4", "T-5")
	f.move(os[0], succeeded())
	f.move(os[1], dead())
	f.move(os[2], unknown(time.Now()))
	f.move(os[3], replaying(time.Now()))
	f.must(f.s.Bury(f.Context(), []order.DeadRecord{f.dead("", order.Undecodable)}))
	c, err := f.s.Counts(f.Context(), f.route)
	f.must(err)
	for _, p := range order.Phases() {
		if c.Processing[p] != 1 {
			f.Errorf("%d orders %s, want 1", c.Processing[p], p)
		}
	}
	if c.DeadWaiting != 2 || c.Capped || c.Oldest < 0 || c.Oldest > time.Minute {
		f.Errorf("counts %+v", c)
	}
}

func tally(f *fixture) {
	const n = 5
	os := f.admit(hour, "T-1", "T-2", "T-3", "T-4", "T-5")
	sum := func(step string) {
		f.Helper()
		if got := f.tally().Total(); got != n {
			f.Errorf("%s: %d orders, want %d", step, got, n)
		}
	}
	sum("admitted")
	f.move(os[0], succeeded())
	f.move(os[1], failed())
	f.move(os[2], dead())
	f.move(os[3], replaying(time.Now()))
	sum("settled")
	_, err := f.s.Begin(f.Context(), "w2", past, []int64{os[3].ID})
	f.must(err)
	sum("begun")
	f.claim("w3", n)
	sum("claimed")
	want := map[desk.Place]int64{
		{State: order.Succeeded}: 1, {State: order.Failed}: 1, {State: order.Dead}: 1,
		{State: order.Processing, Phase: order.Unknown}: 1, {State: order.Processing, Phase: order.InFlight}: 1,
	}
	t := f.tally()
	for p, c := range want {
		if t.Orders[p] != c {
			f.Errorf("%s/%s: %d, want %d", p.State, p.Phase, t.Orders[p], c)
		}
	}
	f.must(f.requeue(desk.Requeue{ID: f.view("T-3").Letter})[0].Err)
	sum("requeued")
}
