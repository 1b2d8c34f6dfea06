package config

import (
	"os"
	"strings"
	"testing"
	"time"
)

// minimal is the shortest file that passes.
func minimal(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustParse(t *testing.T, text string, env ...string) *Config {
	t.Helper()
	c, err := Parse("spillway.yaml", []byte(text), env)
	if err != nil {
		t.Fatalf("unexpected problems:\n%v", err)
	}
	return c
}

func TestMinimalFileLeavesEverythingElseAtItsDefault(t *testing.T) {
	t.Parallel()
	c := mustParse(t, minimal(t))
	r := &c.Routes[0]
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"kafka.session_timeout", c.Kafka.SessionTimeout, 8 * time.Second},
		{"shutdown.grace", c.Shutdown.Grace, 5 * time.Second},
		{"group", r.Group, "spillway-wallet"},
		{"lookup_timeout", r.Downstream.LookupTimeout, 300 * time.Millisecond},
		{"slow", r.Downstream.Slow, 150 * time.Millisecond},
		{"permits.limit", r.Permits.Limit, 50},
		{"prefetch.bytes", r.Prefetch.Bytes, Size(64 << 20)},
		{"breaker.failure_rate", r.Breaker.FailureRate.Share(), 0.5},
		{"breaker.slow_window", r.Breaker.SlowWindow, 10 * time.Second},
		{"breaker.open_wait_max", r.Breaker.OpenWaitMax, 5 * time.Minute},
		{"policy attempts", r.Policy().ReplayAttempts, 3},
		{"policy grace", r.Policy().Grace, 10 * time.Second},
	} {
		if x.got != x.want {
			t.Errorf("%s = %v, want %v", x.name, x.got, x.want)
		}
	}
}

func TestDerivedDefaultsFollowWhatWasGiven(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal(t), "      url: http", "      timeout: 800ms\n      url: http", 1) +
		"    breaker: {window: 30s, minimum_calls: 3, open_wait: 10m}\n"
	r := mustParse(t, text).Routes[0]
	if r.Downstream.LookupTimeout != 800*time.Millisecond || r.Downstream.Slow != 400*time.Millisecond {
		t.Errorf("lookup_timeout %v, slow %v", r.Downstream.LookupTimeout, r.Downstream.Slow)
	}
	b := r.Breaker
	if b.SlowWindow != 30*time.Second || b.SlowMinimumCalls != 3 || b.OpenWaitMax != 10*time.Minute || b.RampMinimumCalls != 3 {
		t.Errorf("breaker %+v", b)
	}
	r = mustParse(t, text, "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_SLOW=0s").Routes[0]
	if r.Downstream.Slow != 0 {
		t.Errorf("slow = %v, want it off", r.Downstream.Slow)
	}
}

func TestPollIsOffOrNotTooOften(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"0s": "", "100ms": "", "1h": "",
		"99ms":   "spillway.yaml:16:16: reload.poll: 99ms is too small; accepted: at least 100ms, or 0s for no looks",
		"61m":    "spillway.yaml:16:16: reload.poll: 61m is too large; accepted: a duration with a unit (ms, s, m, h), 0s to 1h, such as 5s",
		"5":      "spillway.yaml:16:16: reload.poll: 5 has no unit; accepted: a duration with a unit (ms, s, m, h), 0s to 1h, such as 5s",
		"always": "spillway.yaml:16:16: reload.poll: always is not a duration; accepted: a duration with a unit (ms, s, m, h), 0s to 1h, such as 5s",
	} {
		_, err := Parse("spillway.yaml", []byte(minimal(t)+"reload: {poll: "+value+"}\n"), nil)
		if got := text(err); got != want {
			t.Errorf("%s: %s\nwant %s", value, got, want)
		}
	}
}

// text is an error's, or "" where there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
