package demo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"spillway/internal/demo"
	"spillway/internal/embed"
	"spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func() int{"demo": child})
}

// child is a demo in a process of its own, so that it can be killed.
func child() int {
	if _, err := demo.Run(context.Background(), demo.Config{Out: os.Stdout, Duration: demo.MinDuration}); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// installed skips a test on a machine without PostgreSQL; CI has it.
func installed(t *testing.T) {
	t.Helper()
	if _, err := embed.Find(""); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

func TestDemoStoryHolds(t *testing.T) {
	t.Parallel()
	installed(t)
	var out bytes.Buffer
	r, err := demo.Run(t.Context(), demo.Config{Duration: 12 * time.Second, Out: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	holds(t, r, out.String())
	if lines := strings.Count(out.String(), "\n"); lines < 8 {
		t.Errorf("the board printed %d lines:\n%s", lines, out.String())
	}
	for _, phase := range []string{"healthy", "the wallet slows", "the wallet fails", "calls time out", "recovery"} {
		if !strings.Contains(out.String(), phase) {
			t.Errorf("the board never said %q:\n%s", phase, out.String())
		}
	}
}

// holds checks each number of a report by itself.
func holds(t *testing.T, r demo.Report, board string) {
	t.Helper()
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	for name, n := range map[string]int64{
		"lost": r.Lost, "uncommitted": r.Uncommitted, "processing": r.Processing, "duplicate effects": r.DuplicateEffects,
		"false success": r.FalseSuccess, "false failure": r.FalseFailure, "altered bodies": r.AlteredBodies,
	} {
		if n != 0 {
			t.Errorf("%s: %d, want 0", name, n)
		}
	}
	for name, n := range map[string]int64{
		"produced": r.Produced, "succeeded": r.Succeeded, "failed": r.Failed, "bad records": r.BadRecords,
		"pauses": r.Pauses, "spilled": r.Spilled, "replayed": r.Replayed, "compensated": r.Compensated,
		"breaker opened": r.BreakerOpened, "max in flight": r.MaxInFlight,
	} {
		if n <= 0 {
			t.Errorf("%s: %d, want more than 0", name, n)
		}
	}
	if r.Consumed != r.Produced || r.Produced != r.Succeeded+r.Failed+r.Dead {
		t.Errorf("produced %d, consumed %d, succeeded %d + failed %d + dead %d", r.Produced, r.Consumed, r.Succeeded, r.Failed, r.Dead)
	}
	if r.Dead != r.BadRecords+r.DeadOrders {
		t.Errorf("dead %d, want the %d bad records and %d orders", r.Dead, r.BadRecords, r.DeadOrders)
	}
	if r.MaxInFlight > r.Permits {
		t.Errorf("%d calls in flight with %d permits", r.MaxInFlight, r.Permits)
	}
	if !r.Holds || len(r.Problems) > 0 {
		t.Errorf("the report does not hold: %q\n%s", r.Problems, board)
	}
}

func TestKilledDemoLeavesNoServer(t *testing.T) {
	t.Parallel()
	installed(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	victim := testkit.Child(t, "demo")
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		return strings.Contains(victim.Output(), "consumed"), "no board yet: " + victim.Output()
	})
	servers := children(t, victim.PID())
	if len(servers) == 0 {
		t.Fatal("the demo has no child process: where is its PostgreSQL?")
	}
	for _, pid := range servers {
		servers = append(servers, children(t, pid)...)
	}
	victim.Kill()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		for _, pid := range servers {
			if embed.CommandNames(pid, "postgres") {
				return false, fmt.Sprintf("process %d still runs", pid)
			}
		}
		return true, ""
	})
}

// children lists the processes that a process has started and that still run.
func children(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The name, in parentheses, may hold anything; state and parent follow it.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestInterruptedDemoGivesNoVerdict(t *testing.T) {
	t.Parallel()
	installed(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelOn{text: "consumed", cancel: cancel}
	done := make(chan error, 1)
	go func() {
		_, err := demo.Run(ctx, demo.Config{Out: out})
		done <- err
	}()
	<-ctx.Done()
	select {
	case err := <-done:
		if !errors.Is(err, demo.ErrInterrupted) {
			t.Errorf("Run returns %v, want ErrInterrupted", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("an interrupted demo does not end")
	}
}

// cancelOn ends a context once a text was written.
type cancelOn struct {
	text   string
	cancel context.CancelFunc
}

func (c *cancelOn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(c.text)) {
		c.cancel()
	}
	return len(p), nil
}
