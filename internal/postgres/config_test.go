package postgres_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"spillway/internal/postgres"
)

// canary is a password that must not be seen anywhere.
const canary = "C4N4RY"

func TestNoErrorShowsThePassword(t *testing.T) {
	t.Parallel()
	closed := closedPort(t)
	for name, url := range map[string]string{
		"nobody listens":         "postgres://user:" + canary + "@" + closed + "/db",
		"no such host":           "postgres://user:" + canary + "@host.invalid:5432/db",
		"space in the host":      "postgres://:" + canary + "@ho st:99999",
		"port out of range":      "postgres://user:" + canary + "@localhost:99999/db",
		"port is no number":      "postgres://user:" + canary + "@localhost:five/db",
		"percent":                "postgres://user:" + canary + "%@localhost/db",
		"at sign":                "postgres://user:x@" + canary + "@ho st/db",
		"slash":                  "postgres://user:x/" + canary + "@localhost:1/db",
		"hash":                   "postgres://user:x#" + canary + "@localhost:1/db",
		"question mark":          "postgres://user:x?" + canary + "@localhost:1/db",
		"no host":                "postgres://user:" + canary,
		"control character":      "postgres://user:" + canary + "\x7f@localhost/db",
		"in a parameter":         "postgres://localhost:five/db?password=" + canary,
		"in a parameter, parsed": "postgres://" + closed + "/db?password=" + canary + "&user=u",
		"bad parameter":          "postgres://user:" + canary + "@localhost/db?sslmode=" + canary,
		"not a URL":              "host=" + strings.ReplaceAll(closed, ":", " port=") + " password=" + canary,
		"another scheme":         "mysql://user:" + canary + "@localhost/db",
		"bracket":                "postgres://user:" + canary + "@[::1/db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := postgres.Config{URL: url, ConnectTimeout: time.Second}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			s, err := postgres.Open(ctx, c)
			if err == nil {
				err = s.Ping(ctx)
				s.Close()
			}
			if err == nil {
				t.Fatal("connected")
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("open: %v", err)
			}
			if _, err = postgres.Migrate(ctx, c, postgres.Up); err == nil {
				t.Fatal("migrated")
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// closedPort is an address nobody listens at.
func closedPort(t *testing.T) string {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestAnErrorShowsTheHost(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://:" + canary + "@ho st:99999"})
	if err == nil || !strings.Contains(err.Error(), "ho st:99999") || !strings.Contains(err.Error(), "want postgres://") {
		t.Errorf("%v", err)
	}
	closed := closedPort(t)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://user:" + canary + "@" + closed + "/db"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), closed) {
		t.Errorf("%v, want %s in it", err, closed)
	}
}

func TestNumbersOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	const url = "postgres://localhost/db"
	for name, c := range map[string]postgres.Config{
		"connections below one":            {URL: url, MaxConnections: -1},
		"connections above a bound":        {URL: url, MaxConnections: 1001},
		"negative connect timeout":         {URL: url, ConnectTimeout: -1},
		"negative timeout":                 {URL: url, StatementTimeout: -1},
		"timeout the server reads as none": {URL: url, StatementTimeout: time.Microsecond},
	} {
		if _, err := postgres.Open(t.Context(), c); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
