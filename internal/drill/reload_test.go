package drill

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/admin"
	"spillway/internal/testkit"
	"spillway/internal/wallet"
)

// flight counts the POSTs in flight at the service.
type flight struct {
	mu        sync.Mutex // guards what follows
	now, peak int
	refuse    int // POSTs still to be answered 503
}

func (f *flight) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost {
			next.ServeHTTP(w, q)
			return
		}
		refused := f.enter()
		defer f.leave() // before the answer goes out, for it fits into the server's buffer
		if refused {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, q)
	})
}

func (f *flight) enter() (refused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now++
	f.peak = max(f.peak, f.now)
	if f.refuse > 0 {
		f.refuse--
		return true
	}
	return false
}

func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
}

// read returns how many are in flight and the most since the last restart.
func (f *flight) read() (now, peak int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.peak
}

// restart measures the peak anew.
func (f *flight) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peak = f.now
}

// settings changes the settings file: each old text in it gives way to the new one after it.
func (r *rig) settings(oldNew ...string) {
	r.t.Helper()
	text, err := os.ReadFile(r.config)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(string(text), oldNew[i]) {
			r.t.Fatalf("%q is not in the settings:\n%s", oldNew[i], text)
		}
	}
	changed := r.config + ".new"
	if err := os.WriteFile(changed, []byte(strings.NewReplacer(oldNew...).Replace(string(text))), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(changed, r.config); err != nil {
		r.t.Fatal(err)
	}
}

// failures reads what the submit breaker's window holds.
func (r *rig) failures(addr string) (samples, bad int) {
	r.t.Helper()
	body, _ := r.get("http://" + addr + admin.BreakersPath)
	var report admin.WorkerBreakers
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		r.t.Fatal(err)
	}
	for _, b := range report.Breakers {
		if b.Endpoint == "submit" {
			return b.Failure.Samples, b.Failure.Bad
		}
	}
	r.t.Fatalf("no breaker of submits in %s", body)
	return 0, 0
}

// slowCalls is settings with which a call of a loaded machine is in time, and a breaker's window is longer than the test.
func slowCalls() []string {
	return []string{"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_TIMEOUT=900ms", "SPILLWAY_ROUTES_WALLET_DOWNSTREAM_SLOW=0s"}
}

func TestPermitsFollowTheSettingsUnderLoadAndNothingElseMoves(t *testing.T) {
	t.Parallel()
	const orders, failed = 12_000, 10
	f := &flight{refuse: failed}
	r := newRig(t, world{
		partitions: 6, wrap: f.around, env: slowCalls(), breaker: "    breaker: {window: 4m, minimum_calls: 100000}",
		route: "    permits: {limit: 5}\n    prefetch: {bytes: 64MiB}\nreload: {poll: 0s}\n",
	})
	r.wallet.SetMode(wallet.Healthy(50 * time.Millisecond))
	r.produce(orders)
	p := r.command()
	addr := r.addr(p)
	// reaches waits until as many calls are in flight, and then sees that for a second there are never more.
	reaches := func(from time.Time, limit int) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			now, _ := f.read()
			return now == limit, fmt.Sprintf("%d calls in flight, want %d", now, limit)
		})
		took := time.Since(from)
		f.restart()
		<-time.After(time.Second)
		_, peak := f.read()
		t.Logf("%d permits: reached %v after the signal, at most %d in flight in the second after that", limit, took.Round(time.Millisecond), peak)
		if peak != limit || took > time.Second {
			t.Errorf("%d calls in flight at once with %d permits, %v after the signal", peak, limit, took)
		}
	}
	taken := func(result string, n float64) {
		t.Helper()
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			got := r.metric(addr, "spillway_settings_reloads_total", `result="`+result+`"`)
			return got == n, fmt.Sprintf("%v reloads %s, want %v", got, result, n)
		})
	}
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		_, bad := r.failures(addr)
		now, _ := f.read()
		return bad == failed && now == 5, fmt.Sprintf("%d failures counted, want %d; %d calls in flight, want 5", bad, failed, now)
	})
	reaches(time.Now(), 5)
	samples, _ := r.failures(addr)
	generation := r.metric(addr, "spillway_group_generation")
	fingerprint := r.metric(addr, "spillway_settings_fingerprint")

	for i, limit := range []int{20, 3} {
		r.settings(fmt.Sprintf("permits: {limit: %d}", []int{5, 20}[i]), fmt.Sprintf("permits: {limit: %d}", limit))
		from := time.Now()
		p.Signal(syscall.SIGHUP)
		reaches(from, limit)
	}
	taken("applied", 2)
	if now := r.metric(addr, "spillway_settings_fingerprint"); now == fingerprint {
		t.Error("the fingerprint is the same with other settings")
	}

	// What can't be taken leaves everything as it is, and says why.
	r.settings("permits: {limit: 3}", "permits: {limit: 0}")
	p.Signal(syscall.SIGHUP)
	taken("invalid", 1)
	r.settings("permits: {limit: 0}", "permits: {limit: 50}", "lease: 4s\n", "lease: 5s\n")
	p.Signal(syscall.SIGHUP)
	taken("needs_restart", 1)
	reaches(time.Now(), 3)
	for _, want := range []string{"routes.wallet.permits.limit: 0 is too small", "needs a restart, nothing was changed: routes.wallet.lease: 4s → 5s"} {
		if !strings.Contains(p.Output(), want) {
			t.Errorf("the log lacks %q: %s", want, tail(p.Output()))
		}
	}
	if r.metric(addr, "spillway_settings_taken") != 0 || r.metric(addr, "spillway_permits") != 3 {
		t.Error("the refusal is not shown, or 3 permits are no more")
	}

	// Much is read ahead where many orders go, and less once that is worked off.
	r.settings("lease: 5s\n", "lease: 4s\n")
	r.wallet.SetMode(wallet.Healthy(10 * time.Millisecond))
	p.Signal(syscall.SIGHUP)
	taken("applied", 3)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		held := r.metric(addr, "spillway_held_bytes")
		return held > 64<<10, fmt.Sprintf("%v bytes held, want more than 64 KiB", held)
	})
	r.settings("{bytes: 64MiB}", "{bytes: 64KiB, partition_bytes: 4KiB, records: 100}")
	p.Signal(syscall.SIGHUP)
	taken("applied", 4)
	within := 0
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		held, lag := r.metric(addr, "spillway_held_bytes"), r.metric(addr, "spillway_kafka_lag_records")
		if held <= 64<<10 && lag > 0 {
			within++
		}
		return within >= 10 || lag == 0, fmt.Sprintf("%v bytes held, %v records to come", held, lag)
	})
	if within < 10 {
		t.Errorf("seen %d times within 64 KiB while more was to come", within)
	}

	now, bad := r.failures(addr)
	if bad < failed || now < samples {
		t.Errorf("the breaker's window holds %d results and %d failures, had %d and %d", now, bad, samples, failed)
	}
	if g := r.metric(addr, "spillway_group_generation"); g != generation {
		t.Errorf("generation %v, was %v: a reload is no rebalance", g, generation)
	}
	r.awaitFinal(orders, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
}

// TestReloadsDuringARebalanceAndADrainLoseNothing changes the file that two workers look at while one joins and while one
// leaves, and then asks for a thousand reloads in a row.
func TestReloadsDuringARebalanceAndADrainLoseNothing(t *testing.T) {
	t.Parallel()
	const orders = 6000
	f := &flight{}
	r := newRig(t, world{
		partitions: 6, wrap: f.around, env: slowCalls(),
		route: "    permits: {limit: 5}\nreload: {poll: 100ms}\n",
	})
	r.wallet.SetMode(wallet.Healthy(20 * time.Millisecond))
	r.produce(orders)
	limit := 5
	change := func(to int) {
		t.Helper()
		r.settings(fmt.Sprintf("{limit: %d}", limit), fmt.Sprintf("{limit: %d}", to))
		limit = to
	}
	first := r.command()
	firstAddr := r.addr(first)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		return r.metric(firstAddr, "spillway_assigned_partitions") == 6, "the first worker has no partitions"
	})
	second := r.command()
	for i := range 20 { // the second starts, joins, and the first hands over half
		<-time.After(250 * time.Millisecond)
		change(3 + i)
	}
	change(6)
	secondAddr := r.addr(second)
	agreed := func(addrs ...string) {
		t.Helper()
		testkit.Eventually(t, 20*time.Second, func() (bool, string) {
			for _, addr := range addrs {
				if n := r.metric(addr, "spillway_permits"); n != float64(limit) {
					return false, fmt.Sprintf("%v permits, want %d", n, limit)
				}
			}
			return true, ""
		})
	}
	agreed(firstAddr, secondAddr)
	if a, b := r.metric(firstAddr, "spillway_settings_fingerprint"), r.metric(secondAddr, "spillway_settings_fingerprint"); a != b {
		t.Errorf("fingerprints %v and %v of the same settings", a, b)
	}
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		a, b := r.metric(firstAddr, "spillway_assigned_partitions"), r.metric(secondAddr, "spillway_assigned_partitions")
		return a == 3 && b == 3, fmt.Sprintf("%v and %v partitions", a, b)
	})

	r.wallet.SetMode(wallet.Healthy(400 * time.Millisecond)) // calls are in flight while the first drains
	<-time.After(100 * time.Millisecond)
	first.Signal(syscall.SIGTERM)
	change(9)
	first.Signal(syscall.SIGHUP)
	if code := first.Wait(20 * time.Second); code != 0 {
		t.Errorf("exit code %d after a drain with a reload", code)
	}
	agreed(secondAddr)

	r.wallet.SetMode(wallet.Healthy(5 * time.Millisecond))
	storm := func(times int) {
		for i := range times {
			change(10 + i%5)
			second.Signal(syscall.SIGHUP)
			<-time.After(2 * time.Millisecond)
		}
		change(50)
		agreed(secondAddr)
	}
	storm(100)
	r.awaitFinal(orders, time.Minute)
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)

	before := r.metric(secondAddr, "spillway_settings_reloads_total", `result="applied"`)
	goroutines, files := r.metric(secondAddr, "go_goroutines"), r.metric(secondAddr, "process_open_fds")
	storm(1000)
	applied := r.metric(secondAddr, "spillway_settings_reloads_total", `result="applied"`) - before
	if applied < 50 || r.metric(secondAddr, "spillway_settings_reloads_total", `result="invalid"`) != 0 {
		t.Errorf("%v reloads applied", applied)
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		g, n := r.metric(secondAddr, "go_goroutines"), r.metric(secondAddr, "process_open_fds")
		return g <= goroutines+5 && n <= files+5, fmt.Sprintf("%v goroutines and %v files after %v reloads, were %v and %v", g, n, applied, goroutines, files)
	})
	t.Logf("%v reloads: %v goroutines before, %v after", applied, goroutines, r.metric(secondAddr, "go_goroutines"))
}
