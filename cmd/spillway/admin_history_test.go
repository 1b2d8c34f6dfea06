package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"spillway/internal/admin"
	"spillway/internal/desk"
)

func TestTheListOfBreakersTellsOfTheLastDay(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(`{"owner":"host-1","at":"2026-03-01T12:00:00Z","breakers":[]}`))
	}))
	t.Cleanup(server.Close)
	o := newOffice(t)
	event := desk.BreakerEvent{
		Worker: "host-1", Route: "wallet", Endpoint: "submit", From: "closed", To: "open", Reason: "slow-rate", Source: "local",
		Mode: "enforce", Wait: 10 * time.Minute, At: time.Now().Add(-time.Hour),
	}
	again := event
	again.Worker, again.At = "host-2", event.At.Add(5*time.Minute)
	o.must(o.store.AddBreakerEvents(t.Context(), []desk.BreakerEvent{event, again}))
	var list admin.FleetBreakers
	o.ask(exitOK, &list, "breakers", "list", "--worker", server.URL)
	if len(list.History) != 1 || list.HistoryError != "" {
		t.Fatalf("history %+v, %q", list.History, list.HistoryError)
	}
	h := list.History[0]
	if h.Route != "wallet" || h.Endpoint != "submit" || h.Openings != 2 || h.Workers != 2 || h.LastReason != "slow-rate" ||
		h.OpenSeconds < 899 || h.OpenSeconds > 901 {
		t.Errorf("history %+v", h)
	}
	out, _ := o.do(exitOK, "breakers", "list", "--worker", server.URL)
	if !strings.Contains(out, "LAST 24H") || !strings.Contains(out, "slow-rate") {
		t.Errorf("list:\n%s", out)
	}
}

func TestBreakersAreListedWithoutPostgres(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(`{"owner":"host-1","at":"2026-03-01T12:00:00Z","breakers":[]}`))
	}))
	t.Cleanup(server.Close)
	path := example(t, "postgres://spillway@127.0.0.1:5432/spillway", "postgres://spillway:C4NARY@127.0.0.1:1/spillway")
	code, out, errs := spill(t, nil, "admin", "breakers", "list", "--worker", server.URL, "-c", path, "--timeout", "2s")
	if code != exitOK || !strings.Contains(out, "no history from PostgreSQL: ") || strings.Contains(out+errs, "C4NARY") {
		t.Errorf("exit %d:\n%s%s", code, out, errs)
	}
}
