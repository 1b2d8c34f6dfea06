package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/order"
)

func admit(t *testing.T, s *postgres.Store, numbers ...string) []order.Order {
	t.Helper()
	var out []order.Order
	for i, n := range numbers { // one by one: the IDs grow in this order
		got, err := s.Admit(t.Context(), "pay", "w1", time.Hour, []order.Admission{{
			Number: n, Message: order.Message{Topic: "orders.in", Offset: int64(i), Value: []byte("v")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got[0].Order)
	}
	return out
}

func confirm(os ...order.Order) []order.Settlement {
	ss := make([]order.Settlement, len(os))
	for i := range os {
		ss[i] = os[i].Settle(order.Transition{State: order.Succeeded, Attempts: 1, AttemptsTotal: 1, Outcome: order.OutcomeSucceeded, Reason: order.Confirmed})
	}
	return ss
}

func TestAStatementThatLostADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	os := admit(t, open(t, url), "T-1", "T-2")
	var log strings.Builder
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The other session waits for ever before it looks for a deadlock, so the store's session is the one that loses.
	for _, sql := range []string{"SET LOCAL deadlock_timeout = '1h'", "SELECT 1 FROM orders WHERE number = 'T-2' FOR UPDATE"} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		got []order.Settled
		err error
	}
	settled := make(chan result, 1)
	go func() {
		got, err := s.Settle(t.Context(), "w1", confirm(os...))
		settled <- result{got, err}
	}()
	waitForLock(t, url)
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM orders WHERE number = 'T-1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := <-settled
	if r.err != nil || r.got[0] != order.Applied || r.got[1] != order.Applied {
		t.Errorf("settled %v, %v", r.got, r.err)
	}
	if !strings.Contains(log.String(), "40P01") {
		t.Errorf("no deadlock was lost; log: %q", log.String())
	}
}

// waitForLock waits until a session of the database waits for a row.
func waitForLock(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0, "no session waits for a lock"
	})
}

func TestAClaimDoesNotWaitForARowThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	admit(t, s, "T-1", "T-2")
	exec(t, url, "UPDATE orders SET due = now()")
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM orders WHERE number = 'T-1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	got, err := s.ClaimDue(t.Context(), "pay", "w2", time.Hour, 10)
	if err != nil || len(got) != 1 || got[0].Number != "T-2" {
		t.Errorf("claimed %v, %v, want T-2 alone", got, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err = s.ClaimDue(t.Context(), "pay", "w2", time.Hour, 10); err != nil || len(got) != 1 {
		t.Errorf("claimed %v, %v, want T-1 afterwards", got, err)
	}
}

func TestALetterOfAnOrderThatIsNotDeadIsRefused(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	o := admit(t, s, "T-1")[0]
	if _, err := s.Settle(t.Context(), "w1", []order.Settlement{o.Settle(order.Transition{State: order.Dead})}); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "UPDATE orders SET state = 2") // by a hand that should not have
	v, err := s.ShowOrder(t.Context(), "pay", "T-1")
	if err != nil {
		t.Fatal(err)
	}
	by := desk.Sign{Operator: "ann"}
	requeued, err := s.Requeue(t.Context(), by, []desk.Requeue{{ID: v.Letter, Number: "T-1"}})
	if err != nil || !errors.Is(requeued[0].Err, desk.ErrRefused) {
		t.Errorf("requeued %v, %v", requeued, err)
	}
	discarded, err := s.Discard(t.Context(), by, []int64{v.Letter})
	if err != nil || !errors.Is(discarded[0].Err, desk.ErrRefused) {
		t.Errorf("discarded %v, %v", discarded, err)
	}
	if v, err = s.ShowOrder(t.Context(), "pay", "T-1"); err != nil || v.Order.State != order.Succeeded || v.Order.Version != 2 {
		t.Errorf("the order moved: %+v, %v", v.Order, err)
	}
}

func TestAStatementThatWaitsTooLongIsEnded(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	os := admit(t, open(t, url), "T-1")
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url, StatementTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM orders FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Settle(t.Context(), "w1", confirm(os...))
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" {
		t.Errorf("%v, want the statement cancelled", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Settle(t.Context(), "w1", confirm(os...))
	if err != nil || got[0] != order.Applied {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestTheServersEndIsReportedAndItsReturnIsEnough(t *testing.T) {
	t.Parallel()
	server := testkit.StartPostgres(t)
	url := server.URL()
	s := open(t, url)
	os := admit(t, s, "T-1")
	server.Stop()
	began := time.Now()
	for range 3 {
		if _, err := s.Settle(t.Context(), "w1", confirm(os...)); err == nil {
			t.Error("settled without a server")
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("three refusals took %s", took)
	}
	server.Start()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		err := s.Ping(t.Context())
		return err == nil, fmt.Sprintf("ping: %v", err)
	})
	got, err := s.Settle(t.Context(), "w1", confirm(os...))
	if err != nil || got[0] != order.Applied {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestNothingStaysHalfDoneWhenACallerGivesUp(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	os := admit(t, s, "T-1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Settle(ctx, "w1", confirm(os...)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context canceled", err)
	}
	got, err := s.Settle(t.Context(), "w1", confirm(os...))
	if err != nil || got[0] != order.Applied {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestSessionsAreBoundedInTime(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url+"&application_name=mine")
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	settings := postgres.SessionSettings(t, s, "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit", "application_name")
	if got := strings.Join(settings, " "); got != "10s 10s on mine" {
		t.Errorf("session has %s", got)
	}
}
