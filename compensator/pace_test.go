package compensator

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestPaceOfClaims(t *testing.T) {
	t.Parallel()
	p := newPace(Config{Route: "r", Owner: "w"}.withDefaults())
	for _, step := range []struct {
		round round
		wait  time.Duration
		claim int // with plenty of permits
	}{
		{round{}, time.Second, 64},
		{round{full: true, looked: 64}, 0, 64},
		{round{full: true, away: true}, time.Second / 8, 64},
		{round{refused: true}, time.Second, 1},
		{round{refused: true}, 2 * time.Second, 1},
		{round{full: true, looked: 1}, 0, 2},
		{round{full: true, looked: 2}, 0, 4},
		{round{failed: true}, time.Second, 4},
		{round{failed: true}, 2 * time.Second, 4},
		{round{failed: true}, 4 * time.Second, 4},
		{round{refused: true}, time.Second, 1},
	} {
		if got := p.after(step.round); got != step.wait {
			t.Errorf("%+v: wait %v, want %v", step.round, got, step.wait)
		}
		if got := p.claim(1000, false); got != step.claim {
			t.Errorf("%+v: claim %d, want %d", step.round, got, step.claim)
		}
	}
	for range 100 {
		if got := p.after(round{refused: true}); got > 30*time.Second {
			t.Fatalf("wait %v", got)
		}
	}
	if got := p.claim(0, true); got != 64 {
		t.Errorf("claim %d with the breaker open: want a batch for the orders the queue forgot", got)
	}
	if got := p.claim(0, false); got != 0 {
		t.Errorf("claim %d without permits", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := Config{Route: "r", Owner: "w"}
	reg := prometheus.NewRegistry()
	for _, route := range []string{"a", "b"} {
		c := good
		c.Route = route
		if _, err := New(c, testPolicy(), newStore(), newCalls(1, nil), newQueue(), slog.New(slog.DiscardHandler), reg); err != nil {
			t.Errorf("route %s: %v", route, err)
		}
	}
	families, err := reg.Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("%d metrics: %v", len(families), err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "spillway_compensator_") {
			t.Errorf("metric %s", f.GetName())
		}
	}
	for want, change := range map[string]func(*Config){
		"no route": func(c *Config) { c.Route = "" },
		"no owner": func(c *Config) { c.Owner = "" },
		"batch":    func(c *Config) { c.Batch = 501 },
		"negative": func(c *Config) { c.Grace = -1 },
		"lease":    func(c *Config) { c.Lease = time.Second },
	} {
		c := good
		change(&c)
		if _, err := New(c, testPolicy(), newStore(), newCalls(1, nil), newQueue(), slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}
