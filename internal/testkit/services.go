package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The environment variables of the service tests.
const (
	kafkaEnv    = "SPILLWAY_TEST_KAFKA"
	redisEnv    = "SPILLWAY_TEST_REDIS"
	postgresEnv = "SPILLWAY_TEST_POSTGRES"
	kafkaLibEnv = "SPILLWAY_TEST_KAFKA_LIB"
	countEnv    = "SPILLWAY_TEST_COUNT"
)

// callTimeout bounds one administrative call to a server.
const callTimeout = 30 * time.Second

// Kafka returns the host:port of the shared broker.
func Kafka(t testing.TB) string {
	t.Helper()
	return need(t, kafkaEnv)
}

// Redis returns the URL of the shared Redis server. Keys start with the test's Prefix.
func Redis(t testing.TB) string {
	t.Helper()
	return need(t, redisEnv)
}

// Postgres returns the DSN of a new, empty database on the shared server. It is dropped when the test ends.
func Postgres(t testing.TB) string {
	t.Helper()
	return Database(t, need(t, postgresEnv))
}

// Database creates an empty database on the server that dsn leads to and returns its DSN. It is dropped when the test
// ends, with whatever is still connected to it.
func Database(t testing.TB, dsn string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("the DSN of the test's server: %v", err)
	}
	name := "t_" + strings.ReplaceAll(unique(t, 40), "-", "_")
	execute(t.Context(), t, dsn, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx := context.WithoutCancel(t.Context())
		execute(ctx, t, dsn, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	})
	address.Path = "/" + name
	return address.String()
}

// execute runs one statement in a session of its own. Its failure is the test's.
func execute(ctx context.Context, t testing.TB, dsn, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Errorf("connect to the test's Postgres: %v", err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

// Prefix returns a prefix for Redis keys, consumer groups and the like that no other test and no other run uses. It
// ends in a colon and holds no braces.
func Prefix(t testing.TB) string {
	t.Helper()
	return "test:" + unique(t, 60) + ":"
}

// unique makes a name of lower-case letters, digits and dashes, of at most limit characters, out of the test's name
// and eight random digits.
func unique(t testing.TB, limit int) string {
	t.Helper()
	var salt [4]byte
	if _, err := rand.Read(salt[:]); err != nil {
		t.Fatalf("random bytes: %v", err)
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	return name[:min(len(name), limit-9)] + "-" + hex.EncodeToString(salt[:])
}

// need returns the value of an environment variable, or ends the test when there is none.
func need(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		missing(t, variable+` is not set (run: eval "$(scripts/services env)" after scripts/services up)`)
	}
	count(t, "run")
	return value
}

// missing ends a test that lacks a server: skipped, but failed under CI.
func missing(t testing.TB, why string) {
	t.Helper()
	count(t, "skip")
	if os.Getenv("CI") == "true" {
		t.Fatalf("a service test may not be skipped under CI: %s", why)
	}
	t.Skip(why)
}

// count adds the test to the file that "make test" counts service tests in. A test that is added twice counts once.
func count(t testing.TB, what string) {
	t.Helper()
	path := os.Getenv(countEnv)
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("count the service test: %v", err)
	}
	// One write of one short line: test binaries that run side by side do not mix their lines.
	_, err = fmt.Fprintf(file, "%s %s %s\n", what, filepath.Base(os.Args[0]), t.Name())
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		t.Fatalf("count the service test: %v", err)
	}
}
