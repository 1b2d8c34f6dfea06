package postgres

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SessionSettings reads settings of a session of the store.
func SessionSettings(t *testing.T, s *Store, names ...string) []string {
	t.Helper()
	out := make([]string, len(names))
	for i, name := range names {
		if err := s.pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// OpenCounting opens a store that adds one to trips for each statement it sends.
func OpenCounting(t *testing.T, url string, trips *atomic.Int64) *Store {
	t.Helper()
	c := Config{URL: url}.withDefaults()
	p, err := c.poolConfig()
	if err != nil {
		t.Fatal(err)
	}
	p.ConnConfig.Tracer = tracer{trips}
	s, err := connect(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

type tracer struct{ trips *atomic.Int64 }

func (r tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.trips.Add(1)
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Plan explains a prepared statement with a plan kept for all arguments.
func Plan(t *testing.T, s *Store, name string) string {
	t.Helper()
	statements := map[string]struct{ sql, args string }{
		"admit":  {admitSQL, "'pay', 'w1', 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'"},
		"settle": {settleSQL, "'w1', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'"},
		"tell":   {settleTellSQL, "'w1', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'"},
		"known":  {knownSQL, "'w1', '{}', '{}', '{}', '{}', '{}', '{}'"},
		"back":   {takeBackSQL, "'w1', 1, '{}', '{}'"},
		"renew":  {renewSQL, "'w1', 1, '{}', '{}'"},
		"begin":  {beginSQL, "'w1', 1, '{}'"},
	}
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	st := statements[name]
	for _, sql := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE " + name + " AS " + st.sql} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	plan := explain(t, conn, "EXPLAIN EXECUTE "+name+"("+st.args+")")
	if _, err := conn.Exec(t.Context(), "DEALLOCATE "+name); err != nil {
		t.Fatal(err)
	}
	return plan
}

// ClaimPlan explains the claim of n orders, planned as ClaimDue has it.
func ClaimPlan(t *testing.T, s *Store, route string, n int) string {
	t.Helper()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	return explain(t, conn, "EXPLAIN "+claimSQL, route, "w1", int64(1), n, int64(claimBytes))
}

func explain(t *testing.T, conn *pgxpool.Conn, sql string, args ...any) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
