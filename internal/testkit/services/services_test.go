package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway/internal/embed"
	"spillway/internal/testkit/server"
)

// newYard is a yard of the test's own; what it starts is stopped with the test.
func newYard(t *testing.T) (yard, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	y := yard{dir: filepath.Join(t.TempDir(), "services"), out: &out, errs: &out}
	t.Cleanup(func() {
		if err := y.down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return y, &out
}

// startRedis starts one Redis server in the yard.
func startRedis(t *testing.T, y yard) state {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err := os.MkdirAll(y.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	known := make(state)
	if err := y.startAll(t.Context(), known, []server.Kind{server.KindRedis}); err != nil {
		t.Fatal(err)
	}
	return known
}

func TestDownStopsWhatUpStartedAndDeletesItsData(t *testing.T) {
	t.Parallel()
	y, out := newYard(t)
	redis := startRedis(t, y)[server.KindRedis]
	if err := y.env(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "export SPILLWAY_TEST_REDIS='" + redis.Spec.URL() + "'\n"; !strings.Contains(out.String(), want) {
		t.Errorf("env prints %q, want %q in it", out, want)
	}
	if all, err := y.status(t.Context()); err != nil || all {
		t.Errorf("status says that all run: %v, %v", all, err)
	}
	if err := y.down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if redis.runs(t.Context()) {
		t.Error("it still runs")
	}
	if _, err := os.Stat(redis.Spec.Dir); !os.IsNotExist(err) {
		t.Errorf("its data is still there: %v", err)
	}
	if known, err := y.load(); err != nil || len(known) != 0 {
		t.Errorf("the state still holds %v, %v", known, err)
	}
}

func TestDownLeavesAStrangerWithARecycledProcessIDAlone(t *testing.T) {
	t.Parallel()
	y, _ := newYard(t)
	stranger, err := embed.Launch(exec.Command("sleep", "60"), embed.Owner{}, embed.Tied, 9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Signal(9) })
	dir := filepath.Join(t.TempDir(), "redis")
	spec := server.Spec{Kind: server.KindRedis, Argv: []string{"redis-server", "--dir", dir}, Dir: dir, Port: 1}
	if err := os.MkdirAll(y.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := y.save(state{server.KindRedis: {Spec: spec, PID: stranger.PID()}}); err != nil { //nolint:exhaustive // one is enough
		t.Fatal(err)
	}
	if err := y.down(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stranger.Done():
		t.Error("down ended a process that is not ours")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestOnlyCIComplainsAboutWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	y, out := newYard(t)
	known := state{server.KindKafka: {Absent: "no Java"}} //nolint:exhaustive // one is enough
	if err := y.complain(known); err != nil {
		t.Errorf("at a developer's: %v", err)
	}
	if _, err := y.show(t.Context(), known); err != nil || !strings.Contains(out.String(), "left out  no Java") {
		t.Errorf("status prints %q, %v", out, err)
	}
	y.ci = true
	if err := y.complain(known); err == nil || !strings.Contains(err.Error(), "no Java") {
		t.Errorf("under CI: %v", err)
	}
}

func TestInstallersWordsNameNoHosts(t *testing.T) {
	t.Parallel()
	got := firstError("[INFO] x\n[ERROR] Plugin a.b.c:d:1 from central (https://mirror.example.org/m2): Unknown host mirror.example.org\n")
	want := "Plugin a.b.c:d:1 from central (its registry): Unknown host its registry"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
