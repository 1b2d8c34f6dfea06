package postgres_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/order"
)

func TestThePlainWayIsOneTripEachWay(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	open(t, url)
	var trips atomic.Int64
	s := postgres.OpenCounting(t, url, &trips)
	ask := func(what string, want int64, f func() error) {
		t.Helper()
		trips.Store(0)
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := trips.Load(); got != want {
			t.Errorf("%s: %d statements, want %d", what, got, want)
		}
	}
	as := make([]order.Admission, 50)
	for i := range as {
		as[i] = order.Admission{Number: fmt.Sprintf("T-%d", i), Message: order.Message{Topic: "t", Offset: int64(i), Value: []byte("v")}}
	}
	os := make([]order.Order, len(as))
	ask("admit", 1, func() error {
		got, err := s.Admit(t.Context(), "pay", "w1", time.Hour, as)
		for i := range got {
			os[i] = got[i].Order
		}
		return err
	})
	ask("admit again", 2, func() error {
		_, err := s.Admit(t.Context(), "pay", "w1", time.Hour, as)
		return err
	})
	ask("settle", 1, func() error {
		_, err := s.Settle(t.Context(), "w1", confirm(os[:40]...))
		return err
	})
	ask("settle with history and letters", 1, func() error {
		ss := confirm(os[40:]...)
		ss[0].State, ss[1].State, ss[1].Phase, ss[1].Straight = order.Dead, order.Processing, order.Unknown, false
		_, err := s.Settle(t.Context(), "w1", ss)
		return err
	})
	ask("settle again", 2, func() error {
		_, err := s.Settle(t.Context(), "w1", confirm(os[:40]...))
		return err
	})
}

// A plan is kept, while the table grows and what is under way becomes more or less: whatever the table was like when it
// was made, it must look up each key of the batch by itself.
func TestPlansAreRightWhateverTheTableWasLikeWhenTheyWereMade(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	check := func(when string) {
		t.Helper()
		for _, name := range []string{"settle", "tell", "known", "back", "renew", "begin"} {
			plan := postgres.Plan(t, s, name)
			byKey := strings.Contains(plan, "Index Cond: (id = ANY (ARRAY[u.id]))") ||
				strings.Contains(plan, "Index Cond: ((route = $1) AND (number = u.number))")
			if !byKey || strings.Contains(plan, "Seq Scan on orders") || strings.Contains(plan, "orders_due") || strings.Contains(plan, "Join Filter") {
				t.Errorf("%s, %s:\n%s", name, when, plan)
			}
		}
		if plan := postgres.Plan(t, s, "admit"); !strings.Contains(plan, "Conflict Arbiter Indexes: orders_route_number_key") {
			t.Errorf("admit, %s:\n%s", when, plan)
		}
	}
	check("empty")
	exec(t, url, "ANALYZE orders")
	check("empty and analyzed")
	fillOrders(t, url, order.Processing, order.InFlight, 1)
	exec(t, url, "ANALYZE orders")
	check("analyzed with one order")
	fillOrders(t, url, order.Succeeded, 0, 20_000)
	check("grown since it was analyzed")
	exec(t, url, "VACUUM ANALYZE orders")
	check("analyzed with next to nothing under way")
	fillOrders(t, url, order.Processing, order.InFlight, 2_000)
	exec(t, url, "VACUUM ANALYZE orders")
	check("analyzed with much under way")
}

// fillOrders makes n orders of route pay, those under way due one after the other since a while ago.
func fillOrders(t *testing.T, url string, state order.State, phase order.Phase, n int) {
	t.Helper()
	exec(t, url, fmt.Sprintf(`INSERT INTO orders (version, off, admitted_at, due, updated_at, part, attempts, attempts_total, lookups, life, state,
		phase, outcome, route, number, reason, detail, topic, value)
	SELECT 1, i, now(), CASE WHEN %[1]d = 1 THEN now() - i * interval '1 millisecond' END, now(), 0, 1, 1, 0, 0, %[1]d,
		%[2]d, 0, 'pay', 'T-%[1]d-%[3]d-' || i, '', '', 'orders.in', 'v' FROM generate_series(1, %[3]d) i`, state, phase, n))
}

func TestAClaimReadsTheLowEndOfItsIndex(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	fillOrders(t, url, order.Succeeded, 0, 20_000)
	fillOrders(t, url, order.Processing, order.Unknown, 5_000)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, url, "ANALYZE orders")
		}
		for _, n := range []int{1, 100, 500} {
			plan := postgres.ClaimPlan(t, s, "pay", n)
			if !strings.Contains(plan, "Index Scan using orders_due") || strings.Contains(plan, "Seq Scan on orders") {
				t.Errorf("claim of %d, analyzed %t:\n%s", n, analyzed, plan)
			}
		}
	}
}
