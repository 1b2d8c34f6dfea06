package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/internal/testkit"
)

// breakerEvent is a move of the submit breaker of a route.
func breakerEvent(route, worker string, generation uint64, age time.Duration, to string) desk.BreakerEvent {
	return desk.BreakerEvent{
		At: time.Now().Add(-age), Worker: worker, Route: route, Endpoint: "submit", From: "closed", To: to, Reason: "failure-rate",
		Source: "local", Mode: "enforce", Generation: generation, Window: 10 * time.Second, Samples: 20, Failures: 12, Slow: 1,
		Rate: 0.6, Bound: 0.39, Threshold: 0.5, Wait: 30 * time.Second, Operator: "ada", Note: "why",
		Errors: []desk.CallError{},
	}
}

func add(t *testing.T, s *postgres.Store, events ...desk.BreakerEvent) {
	t.Helper()
	if err := s.AddBreakerEvents(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func TestBreakerEventsComeBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	e := breakerEvent("wallet", "w1", 1, time.Minute, "open")
	e.Errors = []desk.CallError{
		{At: time.Now().UTC().Truncate(time.Microsecond), Number: "A-1", Outcome: "UNKNOWN", Reason: "UPSTREAM_5XX", Status: 502, Detail: "no\x00 \xff"},
	}
	for range 9 {
		e.Errors = append(e.Errors, desk.CallError{At: e.Errors[0].At, Number: "B", Outcome: "UNKNOWN"})
	}
	e.Errors[0], e.Errors[9] = e.Errors[9], e.Errors[0]
	add(t, s, e, breakerEvent("ledger", "w1", 1, 0, "open"))
	got, err := s.BreakerEvents(t.Context(), desk.BreakerEventFilter{Route: "wallet"})
	if err != nil || len(got) != 1 {
		t.Fatalf("%d events, %v", len(got), err)
	}
	if age := time.Since(got[0].At); age < 50*time.Second || age > 70*time.Second {
		t.Errorf("written as %v ago, want a minute", age)
	}
	want := e
	want.At = got[0].At
	want.Errors = append([]desk.CallError(nil), e.Errors[5:]...)
	want.Errors[4].Detail = "no? ?"
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Errorf("came back otherwise (-want +got):\n%s", d)
	}
	if err := s.AddBreakerEvents(t.Context(), make([]desk.BreakerEvent, postgres.MaxBreakerEvents+1)); err == nil ||
		!strings.Contains(err.Error(), "want at most 256") {
		t.Errorf("too many at once: %v", err)
	}
}

func TestABreakerEventWrittenTwiceIsThereOnce(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	e := breakerEvent("wallet", "w1", 1, 0, "open")
	add(t, s, e, e)
	add(t, s, e, breakerEvent("wallet", "w2", 1, 0, "open"))
	add(t, s)
	got, err := s.BreakerEvents(t.Context(), desk.BreakerEventFilter{})
	if err != nil || len(got) != 2 || got[0].Worker != "w2" {
		t.Errorf("%d events, %v", len(got), err)
	}
}

func TestBreakerEventsArePickedByRouteEndpointAndAge(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	lookup := breakerEvent("wallet", "w1", 4, 0, "open")
	lookup.Endpoint = "lookup"
	add(t, s, breakerEvent("wallet", "w1", 1, 3*time.Hour, "open"), breakerEvent("wallet", "w1", 2, time.Hour, "half-open"),
		breakerEvent("ledger", "w1", 3, 0, "open"), lookup)
	for want, f := range map[string]desk.BreakerEventFilter{
		"[4 3 2 1]": {},
		"[4 2 1]":   {Route: "wallet"},
		"[4 3 2]":   {Since: 2 * time.Hour},
		"[4]":       {Endpoint: "lookup"},
		"[4 3]":     {Limit: 2},
		"[]":        {Route: "none"},
	} {
		events, err := s.BreakerEvents(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		got := []uint64{}
		for _, e := range events {
			got = append(got, e.Generation)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%+v: %v, want %s", f, got, want)
		}
	}
}

func TestOldBreakerEventsAreDeletedByWhoWrites(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	s := open(t, url)
	exec(t, url, `INSERT INTO breaker_events (at, worker, route, endpoint, from_state, to_state, reason, source, mode, generation, window_us,
		samples, failures, slow, rate, bound, threshold, wait_us, operator, note, errors)
		SELECT now() - CASE WHEN n <= 1500 THEN interval '31 days' ELSE interval '29 days' END, 'w0', 'wallet', 'submit', 'closed', 'open', 'x', 'local', 'enforce',
			n, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '[]' FROM generate_series(1, 2000) n`)
	count := func() (n int) {
		t.Helper()
		events, err := s.BreakerEvents(t.Context(), desk.BreakerEventFilter{Limit: desk.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	add(t, s, breakerEvent("wallet", "w1", 1, 0, "open"))
	add(t, s, breakerEvent("wallet", "w1", 2, 0, "open"))
	if n := count(); n != 502 {
		t.Errorf("%d events are left, want 502", n)
	}
	// As if very many had been written meanwhile.
	exec(t, url, `ALTER TABLE breaker_events ALTER COLUMN id RESTART WITH 200000`)
	add(t, s, breakerEvent("wallet", "w1", 3, 0, "open"))
	add(t, s, breakerEvent("wallet", "w1", 4, 0, "open"))
	if n := count(); n != 2 {
		t.Errorf("%d events are left, want 2", n)
	}
}

func TestTheSummaryOfBreakersIsThatOfAllWorkers(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	half := breakerEvent("wallet", "w1", 2, 90*time.Minute, "half-open")
	half.From = "open"
	add(t, s, breakerEvent("wallet", "w1", 1, 2*time.Hour, "open"), half,
		breakerEvent("wallet", "w2", 1, 2*time.Hour-time.Minute, "open"), breakerEvent("wallet", "w0", 1, 30*time.Hour, "open"))
	got, err := s.BreakerSummary(t.Context(), 24*time.Hour)
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if g := got[0]; g.Route != "wallet" || g.Endpoint != "submit" || g.Openings != 2 || g.Workers != 2 || g.LastReason != "failure-rate" ||
		g.Open.Round(time.Minute) != 30*time.Minute || time.Since(g.LastOpened).Round(time.Minute) != 119*time.Minute {
		t.Errorf("summary %+v", g)
	}
}
