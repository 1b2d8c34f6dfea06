package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"spillway/internal/postgres"
	"spillway/internal/testkit"
)

// A plan that was made on an empty table is kept while the table grows: it must be the one for a large table.
func TestPlansOfTheEmptyTableAreRightForALargeOne(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	for _, name := range []string{"settle", "tell", "known", "renew", "begin"} {
		plan := postgres.Plan(t, s, name)
		if strings.Contains(plan, "Seq Scan on orders") || !strings.Contains(plan, "Index Scan using orders_") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
	if plan := postgres.Plan(t, s, "admit"); !strings.Contains(plan, "Conflict Arbiter Indexes: orders_route_number_key") {
		t.Errorf("admit:\n%s", plan)
	}
}

func TestAClaimReadsTheLowEndOfItsIndex(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	fill := `INSERT INTO orders (version, off, admitted_at, due, updated_at, part, attempts, attempts_total, lookups, life, state,
		phase, outcome, route, number, reason, detail, topic, value)
	SELECT 1, i, now(), CASE WHEN %[1]d = 1 THEN now() - i * interval '1 millisecond' END, now(), 0, 1, 1, 0, 0, %[1]d,
		%[2]d, 0, 'pay', 'T-%[1]d-' || i, '', '', 'orders.in', 'v' FROM generate_series(1, %[3]d) i`
	exec(t, url, fmt.Sprintf(fill, 2, 0, 20_000))
	exec(t, url, fmt.Sprintf(fill, 1, 3, 5_000))
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
