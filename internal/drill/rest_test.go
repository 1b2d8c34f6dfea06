package drill

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
)

// TestAnIdleWorkerRests is the end of case A1: nothing to fetch is no reason to spin.
func TestAnIdleWorkerRests(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 12})
	r.produce(100)
	p := r.command()
	r.awaitFinal(100, time.Minute)
	r.awaitCommitted(20 * time.Second)
	const watched = 5 * time.Second
	before := cpuTime(t, p.PID())
	<-time.After(watched)
	if used := cpuTime(t, p.PID()) - before; used > watched/5 {
		t.Errorf("%s of CPU time in %s at rest, want at most a fifth", used, watched)
	}
}

// cpuTime is what a process has used so far, in user and system mode.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest) // from the third field of proc(5) on
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}

// TestSIGTERMInTheMiddleOfARebalanceEndsInTime is case H3 b.
func TestSIGTERMInTheMiddleOfARebalanceEndsInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 6})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	const orders = 2000
	r.produce(orders)
	a := r.work()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return r.wallet.Counts().Effects > 50, "the flow has not begun"
	})
	b := r.work()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return strings.Contains(a.Output(), "partitions drained"), "no rebalance"
	})
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	if code := a.Wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, tail(a.Output()))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("ended after %s with a grace of 2s", took)
	}
	r.awaitFinal(orders, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	b.Kill()
}
