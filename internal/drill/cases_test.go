package drill

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
)

// TestNoOffsetIsCommittedAboveARunningOne is case A8.
func TestNoOffsetIsCommittedAboveARunningOne(t *testing.T) {
	t.Parallel()
	const orders = 10
	var first sync.Once
	hold := make(chan struct{})
	r := newRig(t, world{partitions: 1, wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPost && q.Header.Get("Idempotency-Key") == "T-000001" {
				first.Do(func() {
					select {
					case <-hold:
					case <-q.Context().Done():
					}
				})
			}
			next.ServeHTTP(w, q)
		})
	}, env: callsOf(9 * time.Second)})
	r.produce(orders)
	p := r.work()
	var highest int64
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		done := r.tally().State(order.Succeeded)
		highest = max(highest, sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)))
		return done == orders-1, fmt.Sprintf("%d of the others done", done)
	})
	for range 10 {
		highest = max(highest, sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)))
		<-time.After(100 * time.Millisecond)
	}
	if highest != 0 {
		t.Errorf("committed %d while offset 0 was running", highest)
	}
	p.Kill()
	close(hold)
	r.work()
	r.awaitFinal(orders, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
}

// TestMemoryStaysBoundedWhileTheDownstreamStalls is case B3 and a record larger than the grant.
func TestMemoryStaysBoundedWhileTheDownstreamStalls(t *testing.T) {
	t.Parallel()
	const partitions, each = 12, 30
	r := newRig(t, world{partitions: partitions, topicConfigs: map[string]string{"max.message.bytes": "4194304"}, route: `
    permits: {limit: 10}
    prefetch: {bytes: 64MiB, partition_bytes: 1MiB}
`, env: callsOf(9*time.Second, "SPILLWAY_ROUTES_WALLET_BREAKER_MODE=disabled")})
	r.wallet.SetMode(wallet.Timeouts(0, 0, 0))
	pad := strings.Repeat("x", 1<<20-200)
	for p := range int32(partitions) {
		for range each {
			r.number++
			no := fmt.Sprintf("T-%06d", r.number)
			r.broker.ProduceTo(t, r.topic, p, record(no, fmt.Sprintf(`{"order_no":%q,"pad":%q}`, no, pad)))
		}
	}
	r.number++
	no := fmt.Sprintf("T-%06d", r.number)
	r.broker.ProduceTo(t, r.topic, 0, record(no, fmt.Sprintf(`{"order_no":%q,"pad":%q}`, no, pad+pad)))
	p := r.command()
	addr := r.addr(p)
	peak := 0
	watch := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
			peak = max(peak, resident(t, p.PID()))
		}
	}
	watch(20 * time.Second)
	if paused := r.metric(addr, "spillway_paused_partitions"); paused != partitions {
		t.Errorf("%v partitions paused with a stalled downstream, want %d", paused, partitions)
	}
	if waiting := r.metric(addr, "spillway_held_bytes"); waiting > 64<<20+2<<20 {
		t.Errorf("%v bytes held under a ceiling of 64 MiB", waiting)
	}
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	deadline := time.Now().Add(2 * time.Minute)
	for r.tally().State(order.Succeeded) < partitions*each+1 && time.Now().Before(deadline) {
		watch(500 * time.Millisecond)
	}
	r.awaitFinal(partitions*each+1, time.Second)
	r.awaitCommitted(20 * time.Second)
	r.conserved(partitions*each + 1)
	t.Logf("peak resident memory %d MiB", peak>>20)
	if peak > 256<<20 {
		t.Errorf("peak resident memory %d MiB, want at most 256", peak>>20)
	}
}

// resident is a process's resident memory in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestEveryAttemptOfAnOrderIsTheSameRequest is case F3: key and body stay what they were over retries, restarts and a redrive.
func TestEveryAttemptOfAnOrderIsTheSameRequest(t *testing.T) {
	t.Parallel()
	type call struct{ key, body string }
	var mu sync.Mutex
	var calls []call
	r := newRig(t, world{partitions: 1, wrap: recordCalls(func(key, body string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call{key, body})
	})})
	r.wallet.SetMode(wallet.Resets(0)) // not applied, connection dropped: looked up, not found, sent again
	r.produce(1)
	p := r.work()
	seen := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(calls)
	}
	testkit.Eventually(t, 30*time.Second, func() (bool, string) { return seen() >= 1, "no call yet" })
	p.Kill()
	p = r.work()
	testkit.Eventually(t, 60*time.Second, func() (bool, string) { return seen() >= 2, "no second call" })
	p.Kill()
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.work()
	r.awaitFinal(1, time.Minute)
	r.conserved(1)
	mu.Lock()
	defer mu.Unlock()
	for _, c := range calls {
		if c != calls[0] || c.key != "T-000001" || c.body == "" {
			t.Errorf("call %+v differs from %+v", c, calls[0])
		}
	}
}

// TestSIGTERMFinishesCommitsAndHandsOver is case H3 a: what is in flight is finished and committed before the member leaves.
func TestSIGTERMFinishesCommitsAndHandsOver(t *testing.T) {
	t.Parallel()
	const orders = 10
	r := newRig(t, world{partitions: 2, env: callsOf(5*time.Second, "SPILLWAY_KAFKA_SESSION_TIMEOUT=12s", "SPILLWAY_SHUTDOWN_GRACE=8s")})
	r.wallet.SetMode(wallet.Healthy(2 * time.Second))
	r.produce(orders)
	a := r.work()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		c := r.wallet.Counts()
		return c.InFlight == orders, fmt.Sprintf("%+v", c)
	})
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	b := r.work()
	if code := a.Wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, tail(a.Output()))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the drain took %s: the calls took two", took)
	}
	if committed := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)); committed != orders {
		t.Errorf("committed %d before leaving, want %d", committed, orders)
	}
	left := time.Now()
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.produce(1)
	r.awaitFinal(orders+1, 5*time.Second)
	t.Logf("the next worker served %s after the first had left", time.Since(left).Round(time.Millisecond))
	r.conserved(orders + 1)
	if posts := r.wallet.Counts().Posts; posts != orders+1 {
		t.Errorf("%d POSTs for %d orders", posts, orders+1)
	}
	b.Kill()
}

// TestSIGTERMWithAHungDownstreamEndsAtTheGrace is case H3 c: nothing is lost, and cancels are not the service's failures.
func TestSIGTERMWithAHungDownstreamEndsAtTheGrace(t *testing.T) {
	t.Parallel()
	const orders = 10
	r := newRig(t, world{partitions: 2, env: callsOf(9 * time.Second)})
	r.wallet.SetMode(wallet.Timeouts(0.5, 0, 0))
	r.produce(orders)
	a := r.work()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		c := r.wallet.Counts()
		return c.InFlight == orders, fmt.Sprintf("%+v", c)
	})
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	if code := a.Wait(10 * time.Second); code != 0 {
		t.Errorf("exit code %d:\n%s", code, tail(a.Output()))
	}
	if took := time.Since(start); took > 3500*time.Millisecond {
		t.Errorf("ended after %s with a grace of 2s", took)
	}
	if strings.Contains(a.Output(), "breaker moved") {
		t.Errorf("our own cancels moved the breaker:\n%s", tail(a.Output()))
	}
	if n := r.tally().Orders[unknown]; n != orders {
		t.Errorf("%d UNKNOWN after the drain, want %d: %+v", n, orders, r.tally())
	}
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.work()
	r.awaitFinal(orders, time.Minute)
	r.conserved(orders)
}

// TestASecondSignalEndsAtOnce is case H3 d, with the real command.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	const orders = 10
	r := newRig(t, world{partitions: 2, env: callsOf(9*time.Second, "SPILLWAY_KAFKA_SESSION_TIMEOUT=12s", "SPILLWAY_SHUTDOWN_GRACE=8s")})
	r.wallet.SetMode(wallet.Timeouts(0, 0, 0))
	r.produce(orders)
	a := r.command()
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		c := r.wallet.Counts()
		return c.InFlight == orders, fmt.Sprintf("%+v", c)
	})
	a.Signal(syscall.SIGTERM)
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		return strings.Contains(a.Output(), "draining"), "the first signal was not heard"
	})
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	if code := a.Wait(5 * time.Second); code != 130 {
		t.Errorf("exit code %d, want 130:\n%s", code, tail(a.Output()))
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("ended %s after the second signal", took)
	}
	if committed := sum(r.broker.CommittedOffsets(t, "g-"+r.topic, r.topic)); committed != 0 {
		t.Errorf("%d offsets committed of records that did not finish", committed)
	}
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.work()
	r.awaitFinal(orders, time.Minute)
	r.conserved(orders)
}

// TestARollingRestartLosesNothing is case H3 e: three workers, one after the other, under 50 orders a second.
func TestARollingRestartLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 6})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	workers := []*testkit.Proc{r.work(), r.work(), r.work()}
	const rounds = 60
	for i := range rounds {
		r.produce(10)
		<-time.After(200 * time.Millisecond)
		if i%20 == 10 {
			n := i / 20
			workers[n].Signal(syscall.SIGTERM)
			if code := workers[n].Wait(10 * time.Second); code != 0 {
				t.Errorf("worker %d ended with %d:\n%s", n, code, tail(workers[n].Output()))
			}
			workers[n] = r.work()
		}
	}
	r.awaitFinal(rounds*10, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(rounds * 10)
	if c := r.wallet.Counts(); c.Posts != rounds*10 {
		t.Errorf("%d POSTs for %d orders", c.Posts, rounds*10)
	}
}

// TestPauseStateFollowsTheAssignment is case B1: permits run out, the group is rebalanced again and again, and nothing is
// called meanwhile; then everything flows.
func TestPauseStateFollowsTheAssignment(t *testing.T) {
	t.Parallel()
	r := newRig(t, world{partitions: 3, route: `
    permits: {limit: 2}
`, env: callsOf(9*time.Second, "SPILLWAY_ROUTES_WALLET_BREAKER_MODE=disabled")})
	const orders = 300
	r.wallet.SetMode(wallet.Timeouts(0, 0, 0))
	r.produce(orders)
	a := r.work()
	addr := r.addr(a)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		paused, assigned := r.metric(addr, "spillway_paused_partitions"), r.metric(addr, "spillway_assigned_partitions")
		return paused == 3 && assigned == 3, fmt.Sprintf("%v of %v assigned partitions paused", paused, assigned)
	})
	for range 4 {
		b := r.work()
		<-time.After(1500 * time.Millisecond)
		if paused, assigned := r.metric(addr, "spillway_paused_partitions"), r.metric(addr, "spillway_assigned_partitions"); paused > assigned {
			t.Errorf("%v paused of %v assigned", paused, assigned)
		}
		b.Kill()
	}
	if c := r.wallet.Counts(); c.MaxPayment > 4 {
		t.Errorf("%d calls in flight at once from two workers of two permits each", c.MaxPayment)
	}
	r.wallet.SetMode(wallet.Healthy(time.Millisecond))
	r.awaitFinal(orders, 90*time.Second)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		paused := r.metric(addr, "spillway_paused_partitions")
		return paused == 0, fmt.Sprintf("%v partitions still paused", paused)
	})
}

func recordCalls(seen func(key, body string)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPost {
				body := readBody(q)
				seen(q.Header.Get("Idempotency-Key"), body)
			}
			next.ServeHTTP(w, q)
		})
	}
}

// callsOf is the settings of a route whose calls may take as long as timeout, and more of them.
func callsOf(timeout time.Duration, more ...string) []string {
	const route = "SPILLWAY_ROUTES_WALLET_"
	return append([]string{
		route + "DOWNSTREAM_TIMEOUT=" + timeout.String(), route + "DOWNSTREAM_SLOW=0s",
		route + "LEASE=" + (2*timeout + 4*time.Second).String(), route + "REPLAY_LEASE=" + (2*timeout + 4*time.Second).String(),
		route + "COMPENSATE_GRACE=" + (timeout + time.Second).String(),
	}, more...)
}
