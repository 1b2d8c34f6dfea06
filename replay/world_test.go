package replay_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
	"spillway/replay"
)

// policy is the rules of the tests' route.
func policy() order.Policy {
	return order.Policy{
		ReplayAttempts: 3, ReplayAttemptsTotal: 20, RetryDelay: time.Second, RetryDelayMax: 30 * time.Second,
		RetryAfterMax: time.Minute, ReplayPatience: time.Minute, CompensateAfter: 5 * time.Second, CompensateAttempts: 5,
		LookupDelay: time.Second, LookupDelayMax: 10 * time.Second, Grace: 2 * time.Second,
	}
}

// world is one route with everything around it in memory, in a bubble of time.
type world struct {
	t       *testing.T
	start   time.Time
	policy  order.Policy
	cfg     replay.Config
	queue   *memQueue
	store   *memStore
	service *service
	faults  *faults
	log     *lines
	reg     *prometheus.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, start: time.Now(), policy: policy(), cfg: replay.Config{Route: "pay", Owner: "w1"},
		queue: newMemQueue(10_000), store: newMemStore(), service: newService(t, 100), faults: &faults{},
		log: &lines{}, reg: prometheus.NewRegistry(),
	}
}

// engine makes an engine whose steps may meet the world's faults.
func (w *world) engine() *replay.Engine {
	w.t.Helper()
	e, err := newEngine(w, faultyService{w.service, w.faults})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// newEngine makes an engine of the world with another way to the service.
func newEngine(w *world, a replay.Attempter) (*replay.Engine, error) {
	log := slog.New(slog.NewTextHandler(w.log, nil))
	return replay.New(w.cfg, w.policy, faultyQueue{w.queue, w.faults}, faultyStore{w.store, w.faults}, a, log, w.reg)
}

// run starts the engine and returns what ends it and waits.
func (w *world) run(e *replay.Engine) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				w.t.Errorf("run: %v", err)
			}
			if n := w.service.heldNow(); n != 0 {
				w.t.Errorf("%d permits were not given back", n)
			}
		})
	}
	w.t.Cleanup(stop)
	return stop
}

// spill makes n orders that wait for their second attempt and pushes them.
func (w *world) spill(e *replay.Engine, n int) {
	w.t.Helper()
	if err := e.Push(w.t.Context(), w.store.add(w.cfg.Route, n)); err != nil {
		w.t.Fatal(err)
	}
}

// wantRows fails unless n rows stand so.
func (w *world) wantRows(n int, state order.State, phase order.Phase) {
	w.t.Helper()
	if got := w.store.count(state, phase); got != n {
		w.t.Errorf("%d orders are %v %v after %v, want %d", got, state, phase, time.Since(w.start), n)
	}
}

// wantEmpty fails unless nothing is queued.
func (w *world) wantEmpty() {
	w.t.Helper()
	if d := w.queue.depths(); d.Total() != 0 || w.queue.queued() != 0 {
		w.t.Errorf("the queue holds %+v and %d ids, want nothing", d, w.queue.queued())
	}
}

// wantMetric fails unless the metric, named with its labels but the route's, has this value.
func (w *world) wantMetric(name string, want float64) {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			full := family.GetName()
			routed := false
			for _, label := range m.GetLabel() {
				if label.GetName() == "route" {
					routed = label.GetValue() == w.cfg.Route
					continue
				}
				full += "{" + label.GetName() + "=" + label.GetValue() + "}"
			}
			if full != name {
				continue
			}
			if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want || !routed {
				w.t.Errorf("%s is %v (route %v), want %v", name, got, routed, want)
			}
			return
		}
	}
	w.t.Errorf("there is no metric %s", name)
}

// lines keeps what was logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count is how many lines hold the text.
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
