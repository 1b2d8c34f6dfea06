package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/compensator"
	"spillway/consumer"
	"spillway/internal/config"
	"spillway/internal/permit"
	"spillway/internal/quota"
	"spillway/internal/rate"
	"spillway/internal/redis"
	"spillway/order"
	"spillway/replay"
)

// text is settings of two routes; permits stand for themselves in it.
const reloadSettings = `
kafka: {brokers: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379/0"}
postgres: {url: "postgres://spillway@127.0.0.1:5432/spillway"}
log: {level: %s}
routes:
  - {name: a, topic: a, permits: {limit: %d}, downstream: {url: "http://127.0.0.1:8080", submit: {path: /a}, lookup: {path: "/a/{number}"}}}
  - {name: b, topic: b, permits: {limit: %d}, downstream: {url: "http://127.0.0.1:8080", submit: {path: /b}, lookup: {path: "/b/{number}"}}}
`

func reloadText(level string, a, b int) string { return fmt.Sprintf(reloadSettings, level, a, b) }

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := config.Parse("spillway.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// log is a logger's text, safe to read while it is written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// standing is a worker with the parts that reloads concern, on nothing.
func standing(t *testing.T, text string) (*Worker, *log) {
	t.Helper()
	cfg, out := parsed(t, text), &log{}
	level := new(slog.LevelVar)
	level.Set(cfg.Log.Slog())
	w := &Worker{cfg: cfg, opts: Options{
		Logger: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})), Level: level, Registry: prometheus.NewRegistry(),
	}}
	var err error
	if w.inForce, err = newInForce(cfg, w.opts.Registry); err != nil {
		t.Fatal(err)
	}
	client, err := redis.Open(redis.Config{URL: cfg.Redis.URL.Reveal(), Prefix: cfg.Redis.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // it was never connected
	for i := range cfg.Routes {
		r := &route{cfg: &cfg.Routes[i], permits: permit.New(permitConfig(&cfg.Routes[i])), rates: rate.New(rateConfig(&cfg.Routes[i]), time.Now())}
		r.lane = consumer.New(laneConfig(cfg, r.cfg, "me", w.opts), nil, nil, nil, nil)
		r.queue = client.Queue(r.cfg.Name, r.cfg.Replay.Capacity)
		r.replay, err = replay.New(replay.Config{Route: r.cfg.Name, Owner: "me"}, r.cfg.Policy(), r.queue, nil, nil, w.opts.Logger, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.scanner, err = compensator.New(compensator.Config{Route: r.cfg.Name, Owner: "me"}, r.cfg.Policy(), nil, nil, r.replay, w.opts.Logger, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.routes = append(w.routes, r)
	}
	return w, out
}

func (w *Worker) limits() [2]int {
	return [2]int{w.routes[0].permits.Limit(), w.routes[1].permits.Limit()}
}

// shows is a metric's value, summed over the label values that hold one.
func (w *Worker) shows(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	families, err := w.opts.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (w *Worker) reloads(t *testing.T, result string) float64 {
	t.Helper()
	return w.shows(t, "spillway_settings_reloads_total", result)
}

func TestReloadAppliesAllOfTheHotSettingsAndLogsEach(t *testing.T) {
	t.Parallel()
	w, out := standing(t, reloadText("info", 5, 6))
	pool := w.routes[0].permits
	for range 5 {
		pool.TryAcquire(order.LaneLive)
	}
	before := w.shows(t, "spillway_settings_fingerprint", "")
	cfg := parsed(t, reloadText("debug", 3, 60))
	if err := w.Reload(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if w.limits() != [2]int{3, 60} || pool.InUse() != 5 || w.opts.Level.Level() != slog.LevelDebug {
		t.Errorf("limits %v, %d in use, level %v", w.limits(), pool.InUse(), w.opts.Level)
	}
	for _, want := range []string{
		"setting=routes.a.permits.limit old=5 new=3", "setting=routes.b.permits.limit old=6 new=60", "setting=log.level old=info new=debug",
		fmt.Sprintf("changed=5 fingerprint=%d", cfg.Fingerprint()),
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out)
		}
	}
	if after := w.shows(t, "spillway_settings_fingerprint", ""); after == before || after != float64(cfg.Fingerprint()) {
		t.Errorf("fingerprint %v, was %v, want %v", after, before, cfg.Fingerprint())
	}
	quiet, told := parsed(t, reloadText("error", 3, 60)), "setting=log.level old=debug new=error"
	if err := w.Reload(t.Context(), quiet); err != nil || w.opts.Level.Level() != slog.LevelError || !strings.Contains(out.String(), told) {
		t.Errorf("%v, level %v: the last thing told is that no more is told\n%s", err, w.opts.Level, out)
	}
	// What the caller does with its config afterwards is no reload, and giving the changed one is.
	cfg.Routes[0].Permits.Limit = 4
	if w.limits()[0] != 3 {
		t.Error("the worker works by the caller's memory")
	}
	if err := w.Reload(t.Context(), cfg); err != nil || w.limits()[0] != 4 {
		t.Errorf("%v, limits %v, want 4 of route a", err, w.limits())
	}
	if err := w.Reload(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	if w.reloads(t, reloadApplied) != 3 || w.reloads(t, reloadUnchanged) != 1 {
		t.Errorf("%v applied and %v unchanged, want 3 and 1", w.reloads(t, reloadApplied), w.reloads(t, reloadUnchanged))
	}
}

func TestReloadChangesRatesAndTheReplayQueuesBound(t *testing.T) {
	t.Parallel()
	w, _ := standing(t, reloadText("info", 5, 6))
	rates, now := w.routes[0].rates, time.Now()
	asks := func() (n int) {
		for n < 100 && rates.Pace(now, order.LaneLive, "") == 0 {
			n++
		}
		return n
	}
	if n := asks(); n != 100 {
		t.Fatalf("%d submits without a limit", n)
	}
	text := strings.Replace(reloadText("info", 5, 6), "{name: a, ", "{name: a, replay: {capacity: 1234}, rate: {limit: 10/s, burst: 3}, ", 1)
	if err := w.Reload(t.Context(), parsed(t, text)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	if n := asks(); n != 3 {
		t.Errorf("%d submits at once, want the burst of 3", n)
	}
	if n := w.routes[0].queue.Capacity(); n != 1234 {
		t.Errorf("the replay queue takes %d, want 1234", n)
	}
	if err := w.Reload(t.Context(), parsed(t, reloadText("info", 5, 6))); err != nil {
		t.Fatal(err)
	}
	if n := asks(); n != 100 {
		t.Errorf("%d submits after the limit was taken away", n)
	}
}

func TestReloadChangesNothingWhereAnotherSettingNeedsARestart(t *testing.T) {
	t.Parallel()
	w, _ := standing(t, reloadText("info", 5, 6))
	text := strings.Replace(reloadText("info", 50, 60), "topic: b", "topic: b, lease: 40s, degrade: hold", 1)
	err := w.Reload(t.Context(), parsed(t, strings.Replace(text, "kafka: {", "kafka: {client_id: me, ", 1)))
	var restart *RestartError
	if !errors.As(err, &restart) || w.limits() != [2]int{5, 6} {
		t.Fatalf("%v, limits %v", err, w.limits())
	}
	want := "needs a restart, nothing was changed: kafka.client_id: spillway → me; routes.b.lease: 30s → 40s; routes.b.degrade: spill → hold"
	if err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if w.reloads(t, reloadRestart) != 1 || w.shows(t, "spillway_settings_taken", "") != 0 {
		t.Error("the refusal is not shown")
	}
	for _, text := range []string{
		strings.Replace(reloadText("info", 5, 6), "name: b", "name: c", 1),
		strings.Join(strings.Split(reloadText("info", 5, 6), "\n")[:7], "\n"),
	} {
		if err := w.Reload(t.Context(), parsed(t, text)); !errors.As(err, &restart) || !strings.Contains(err.Error(), "routes.b: a route → not there") {
			t.Errorf("%v, want that route b is missing", err)
		}
	}
	if err := w.Reload(t.Context(), parsed(t, reloadText("info", 5, 6))); err != nil || w.shows(t, "spillway_settings_taken", "") != 1 {
		t.Errorf("%v: with the settings in force given again all is well", err)
	}
}

// TestReloadChecksAllRoutesBeforeItChangesOne gives settings that no file can hold: a program may have made them.
func TestReloadChecksAllRoutesBeforeItChangesOne(t *testing.T) {
	t.Parallel()
	w, _ := standing(t, reloadText("info", 5, 6))
	cfg := parsed(t, reloadText("info", 50, 60))
	cfg.Routes[1].Permits.Limit = -1
	err := w.Reload(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "route b: ") || !strings.Contains(err.Error(), "-1") || w.limits() != [2]int{5, 6} {
		t.Errorf("%v, limits %v, want an error of route b and nothing changed", err, w.limits())
	}
	if w.reloads(t, reloadInvalid) != 1 {
		t.Error("the refusal is not counted")
	}
	for want, change := range map[string]func(r *config.Route){
		"prefetch.records: 0 is too small":                  func(r *config.Route) { r.Prefetch.Records = 0 },
		"prefetch.bytes: -5B is negative":                   func(r *config.Route) { r.Prefetch.Bytes = -5 },
		"permits.wait: 0s is too small":                     func(r *config.Route) { r.Permits.Wait = 0 },
		"permits.mode: often is not known":                  func(r *config.Route) { r.Permits.Mode = "often" },
		"permits.shares.live: NaN% is not a percentage":     func(r *config.Route) { r.Permits.Shares.Live = config.Percent(math.NaN()) },
		"replay.attempts: -1 is negative":                   func(r *config.Route) { r.Replay.Attempts = -1 },
		"replay.capacity: 0 is too small":                   func(r *config.Route) { r.Replay.Capacity = 0 },
		"rate.limit: 2000000/s is too large":                func(r *config.Route) { r.Rate.Limit = 2e6 },
		"compensate.delay: -1s is negative; accepted: a du": func(r *config.Route) { r.Compensate.Delay = -time.Second },
	} {
		cfg := parsed(t, reloadText("info", 50, 60))
		change(&cfg.Routes[1])
		if err := w.Reload(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "routes.b."+want) || w.limits() != [2]int{5, 6} {
			t.Errorf("%v, limits %v, want that %s and nothing changed", err, w.limits(), want)
		}
	}
}

// TestWhatTheCheckTakesIsTakenByTheParts gives settings at the edges of what the check lets pass.
func TestWhatTheCheckTakesIsTakenByTheParts(t *testing.T) {
	t.Parallel()
	for _, section := range []string{
		"permits: {shares: {live: 33.3337%, replay: 33.3336%, compensate: 33.3336%}}",
		"permits: {shares: {live: 33.3333%, replay: 33.3331%, compensate: 33.3331%}}",
		"permits: {mode: enforce, limit: 10000, shares: {live: 100%, replay: 0%, compensate: 0%}}, rate: {burst: 1000000, limit: 1000000/s}",
		"rate: {limit: 1/h, fleet: 1/h, tenant: {from: header, header: shop, limit: 1/h, max: 100000}}",
		"replay: {rate: 1000000/s}, compensate: {rate: 1/h}",
	} {
		cfg := parsed(t, strings.Replace(reloadText("info", 5, 6), "permits: {limit: 5}", section, 1))
		if err := (&route{}).mayTake(&cfg.Routes[0]); err != nil {
			t.Errorf("%s: %v", section, err)
		}
		if fleet := float64(cfg.Routes[0].Rate.Fleet); fleet > 0 {
			if _, err := quota.NewRate("a", fleet, rate.New(rate.Config{}, time.Now()), time.Now()); err != nil {
				t.Errorf("%s: %v", section, err)
			}
		}
	}
}

func TestReloadChangesHowManyTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	text := strings.Replace(reloadText("info", 5, 6), "{name: a, ", "{name: a, rate: {tenant: {from: header, header: shop, max: 7}}, ", 1)
	cfg := parsed(t, text)
	if n := limitsConfig(&cfg.Routes[0]).Tenants; n != 7 {
		t.Errorf("%d tenants in what a reload gives the lane, want 7", n)
	}
}

// following writes a settings file and follows it until the test ends.
func following(t *testing.T, w *Worker, path string, now <-chan os.Signal) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Follow(ctx, path, nil, now) })
	t.Cleanup(func() { stop(); running.Wait() })
	synctest.Wait()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFollowTakesAChangedFileOnceItHasSettled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	synctest.Test(t, func(t *testing.T) {
		w, out := standing(t, reloadText("info", 5, 6))
		write(t, path, reloadText("info", 5, 6))
		following(t, w, path, nil)
		time.Sleep(61 * time.Second) // the looks are at multiples of 5 s
		if n := w.reloads(t, reloadUnchanged); n != 0 {
			t.Errorf("the file of the start was tried %v times", n)
		}
		write(t, path, reloadText("info", 7, 6)[:200]) // an editor is at it
		time.Sleep(5 * time.Second)
		write(t, path, reloadText("info", 7, 6))
		time.Sleep(5 * time.Second) // one look at each
		if w.limits() != [2]int{5, 6} || out.String() != "" {
			t.Errorf("limits %v after one look\n%s", w.limits(), out)
		}
		time.Sleep(5 * time.Second)
		if w.limits() != [2]int{7, 6} {
			t.Errorf("limits %v after two looks", w.limits())
		}
		write(t, path, reloadText("info", 7, 0))
		time.Sleep(time.Minute)
		if w.limits() != [2]int{7, 6} || w.reloads(t, reloadInvalid) != 1 ||
			!strings.Contains(out.String(), "routes.b.permits.limit: 0 is too small; accepted: a whole number, 1 to 10000") {
			t.Errorf("limits %v, %v times tried\n%s", w.limits(), w.reloads(t, reloadInvalid), out)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w.reloads(t, reloadInvalid) != 2 || w.shows(t, "spillway_settings_taken", "") != 0 {
			t.Errorf("a file that is gone was tried %v times, want once", w.reloads(t, reloadInvalid)-1)
		}
		write(t, path, reloadText("info", 7, 6)) // as before the mistake
		time.Sleep(time.Minute)
		if w.reloads(t, reloadUnchanged) != 1 || w.shows(t, "spillway_settings_taken", "") != 1 {
			t.Error("the good file that is back is not noticed")
		}
	})
}

func TestFollowReadsAtOnceOnASignalAndNeverOtherwiseWithPollOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	synctest.Test(t, func(t *testing.T) {
		off := "reload: {poll: 0s}\n"
		w, _ := standing(t, off+reloadText("info", 5, 6))
		now := make(chan os.Signal)
		write(t, path, off+reloadText("info", 5, 6))
		following(t, w, path, now)
		write(t, path, off+reloadText("info", 7, 6))
		time.Sleep(time.Hour)
		if w.limits() != [2]int{5, 6} {
			t.Error("the file was looked at")
		}
		now <- os.Interrupt
		synctest.Wait()
		if w.limits() != [2]int{7, 6} {
			t.Error("a signal changes nothing")
		}
		write(t, path, off) // nothing but this: every mistake is told, the settings stay
		now <- os.Interrupt
		now <- os.Interrupt
		synctest.Wait()
		if w.limits() != [2]int{7, 6} || w.reloads(t, reloadInvalid) != 2 {
			t.Errorf("limits %v, tried %v times, want as often as asked", w.limits(), w.reloads(t, reloadInvalid))
		}
		// Looking begins when the setting says so.
		write(t, path, reloadText("info", 8, 6))
		now <- os.Interrupt
		synctest.Wait()
		write(t, path, reloadText("info", 9, 6))
		time.Sleep(15 * time.Second)
		if w.limits() != [2]int{9, 6} {
			t.Errorf("limits %v, want what the looks found", w.limits())
		}
	})
}

// TestFollowSeesAConfigMapSwitched is how Kubernetes changes a mounted file: a link to another folder.
func TestFollowSeesAConfigMapSwitched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "spillway.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "spillway.yaml")
	if err := os.Symlink(filepath.Join("..data", "spillway.yaml"), path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, _ := standing(t, reloadText("info", 5, 6))
		version("..1", reloadText("info", 5, 6))
		following(t, w, path, nil)
		version("..2", reloadText("info", 50, 6))
		time.Sleep(15 * time.Second)
		if w.limits() != [2]int{50, 6} {
			t.Errorf("limits %v", w.limits())
		}
	})
}

// TestAThousandReloadsLeaveNothingBehind is not parallel: it counts goroutines.
func TestAThousandReloadsLeaveNothingBehind(t *testing.T) { //nolint:paralleltest // it counts the process's goroutines
	w, _ := standing(t, reloadText("error", 5, 6))
	configs := [2]*Config{parsed(t, reloadText("error", 50, 60)), parsed(t, reloadText("error", 3, 4))}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	for i := range 1000 {
		if err := w.Reload(t.Context(), configs[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, were %d", n, goroutines)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<10 {
		t.Errorf("%d bytes more on the heap", grown)
	}
	if w.limits() != [2]int{3, 4} || w.reloads(t, reloadApplied) != 1000 {
		t.Errorf("limits %v, %v applied", w.limits(), w.reloads(t, reloadApplied))
	}
}

func TestReloadsFromManyGoroutinesEndInOneOfTheSettings(t *testing.T) {
	t.Parallel()
	w, _ := standing(t, reloadText("error", 5, 6))
	var running sync.WaitGroup
	for i := range 8 {
		cfg := parsed(t, reloadText("error", 10+i, 20+i))
		running.Go(func() {
			for range 10 {
				if err := w.Reload(t.Context(), cfg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if l := w.limits(); l[1]-l[0] != 10 || w.inForce.cfg.Routes[0].Permits.Limit != l[0] {
		t.Errorf("limits %v are of two settings", l)
	}
}
