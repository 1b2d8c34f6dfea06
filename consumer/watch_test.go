package consumer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/memstore"
	"spillway/order"
)

func TestWatchdogTellsAWedgeFromAWait(t *testing.T) {
	t.Parallel()
	s := time.Second
	for _, c := range []struct {
		name  string
		looks func(i int) sight
		skip  time.Duration // before look 30
		want  wedge
		at    int // look
	}{
		{"idle", func(int) sight { return sight{} }, 0, noWedge, 0},
		{"a slow call", func(int) sight { return sight{oldest: 2 * s} }, 0, noWedge, 0},
		{"a call that stays", func(i int) sight { return sight{oldest: time.Duration(i) * s} }, 0, wedgeCall, 5},
		{"one call after the other overdue for one look", func(int) sight { return sight{oldest: 7 * s / 2} }, 0, noWedge, 0},
		{"orders begin", func(i int) sight { return sight{ready: true, begun: uint64(i)} }, 0, noWedge, 0},
		{"an order begins now and then", func(i int) sight { return sight{ready: true, begun: uint64(i / 10)} }, 0, noWedge, 0},
		{"none begins", func(int) sight { return sight{ready: true, begun: 7} }, 0, wedgeDispatch, 21},
		{"explained now and then", func(i int) sight { return sight{ready: i%15 > 0, begun: 7} }, 0, noWedge, 0},
		{"none is written", func(int) sight { return sight{waits: true} }, 0, wedgeSettle, 21},
		{"batches are written", func(i int) sight { return sight{waits: true, written: uint64(i)} }, 0, noWedge, 0},
		{"the machine slept", func(i int) sight { return sight{oldest: time.Duration(i/30) * 3600 * s} }, time.Hour, wedgeCall, 31},
		{"the machine slept and all is well", func(i int) sight {
			if i == 30 {
				return sight{oldest: time.Hour, ready: true}
			}
			return sight{ready: i > 10 && i < 30}
		}, time.Hour, noWedge, 0},
	} {
		w := watchdog{call: 3 * s, stuck: 20 * s}
		got, at, now := noWedge, 0, epoch
		for i := 0; i < 60 && got == noWedge; i++ {
			if now = now.Add(watchEvery); i == 30 {
				now = now.Add(c.skip)
			}
			got, at = w.look(now, c.looks(i)), i
		}
		if got != c.want || (got != noWedge && at != c.at) {
			t.Errorf("%s: %q at look %d, want %q at %d", c.name, got, at, c.want, c.at)
		}
	}
}

// recovering is an attempter whose breaker is half-open and lets nothing begin for now.
type recovering struct{ *fakeAttempter }

func (recovering) Room() (int, bool) { return 0, true }

func TestALaneThatWaitsForARecoveringBreakerIsNotWedged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &manyGroup{fakeGroup: &fakeGroup{records: 20}}
		l := New(Config{
			Route: "r", Owner: "me", Stuck: 5 * time.Second, Policy: order.Policy{Degrade: order.Hold},
			Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 3},
		}, g, &fakeStore{rows: map[string]order.Transition{}}, recovering{newAttempter(3, 0, order.Answer{})}, &fakeReplay{})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := g.generations.Load(); n != 1 {
			t.Errorf("%d generations: a probe that takes longer than the watchdog waits gave the partitions away", n)
		}
	})
}

// manyGroup serves generation after generation until ctx ends, as a group does whose member gives up by itself.
type manyGroup struct {
	*fakeGroup
	generations atomic.Int64
}

func (g *manyGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	for ctx.Err() == nil {
		g.generations.Add(1)
		if err := serve(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// stubborn is a handler's worst: the call of one order comes back when it wants to.
type stubborn struct {
	*fakeAttempter
	number string
	back   chan struct{}

	mu      sync.Mutex
	holding int
	most    int
}

func (s *stubborn) Submit(ctx context.Context, l order.Lane, o *order.Order) order.Answer {
	s.mu.Lock()
	s.holding++
	s.most = max(s.most, s.holding)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.holding--
		s.mu.Unlock()
	}()
	a := s.fakeAttempter.Submit(ctx, l, o)
	if o.Number == s.number {
		<-s.back
	}
	return a
}

// startStubborn starts a lane of three permits over a real record of orders; the call of T-5 does not come back.
func startStubborn(t *testing.T, o Ordering) (l *Lane, g *manyGroup, s *stubborn, store *memstore.Store, reg *prometheus.Registry, stop func()) {
	t.Helper()
	s = &stubborn{
		fakeAttempter: newAttempter(3, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded}),
		number:        "T-5", back: make(chan struct{}),
	}
	g = &manyGroup{fakeGroup: &fakeGroup{records: 200, key: func(o int64) []byte { return fmt.Append(nil, "k", o%5) }}}
	store, reg = memstore.New(time.Now), prometheus.NewRegistry()
	l = New(Config{
		Route: "r", Owner: "me", Ordering: o, Number: Number{From: FromHeader, Header: "no"}, Registerer: reg,
		Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 3},
		Policy: order.Policy{Reread: time.Hour, ReplayAttempts: 3, ReplayAttemptsTotal: 9, CompensateAfter: time.Second},
	}, g, store, s, &fakeReplay{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return l, g, s, store, reg, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func states(t *testing.T, store *memstore.Store) (succeeded, inFlight int64) {
	t.Helper()
	tally, err := store.Tally(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	return tally.State(order.Succeeded), tally.State(order.Processing)
}

func TestACallThatNeverReturnsEndsTheGenerationAndKeepsItsPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g, s, store, reg, stop := startStubborn(t, Unordered)
		time.Sleep(20 * time.Second)
		if g.generations.Load() != 2 {
			t.Errorf("%d generations, want 2: the wedge ends one, and what is left of it ends no other", g.generations.Load())
		}
		if n := counter(t, reg, "spillway_wedged_total"); n != 1 {
			t.Errorf("%v wedges counted, want 1", n)
		}
		succeeded, processing := states(t, store)
		if succeeded != 199 || processing != 1 {
			t.Errorf("%d succeeded, %d under way: want all but the one that does not come back", succeeded, processing)
		}
		if c, _ := g.at(); c != 200 {
			t.Errorf("committed %d: the row of the lost call is the scanner's", c)
		}
		if len(s.permits) != 1 {
			t.Errorf("%d permits are taken, want the one of the call that still runs", len(s.permits))
		}
		close(s.back)
		time.Sleep(time.Second)
		if len(s.permits) != 0 {
			t.Errorf("%d permits are taken after the call came back", len(s.permits))
		}
		if succeeded, _ := states(t, store); succeeded != 200 {
			t.Errorf("%d succeeded: the late answer counts, the order was still ours", succeeded)
		}
		stop()
	})
}

func TestAKeyWaitsForACallThatOutlivedItsGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, g, s, store, _, stop := startStubborn(t, ByKey)
		time.Sleep(15 * time.Second)
		if succeeded, _ := states(t, store); succeeded != 161 { // T-0 of its key, and the four other keys
			t.Errorf("%d succeeded, want 161: the rest of the key waits", succeeded)
		}
		if h := l.Level().Head; h.Number != "T-10" || h.At != StopLine || h.Offset != 10 || h.For < 10*time.Second {
			t.Errorf("head %+v, want T-10 in line", h)
		}
		close(s.back)
		time.Sleep(2 * time.Second)
		if succeeded, _ := states(t, store); succeeded != 200 || g.generations.Load() != 2 {
			t.Errorf("%d succeeded in %d generations, want all in 2", succeeded, g.generations.Load())
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) {
		_, _, s, store, _, stop := startStubborn(t, ByKey)
		time.Sleep(40 * time.Second)
		if succeeded, _ := states(t, store); succeeded != 199 {
			t.Errorf("%d succeeded: when the lease is over the key waits no longer", succeeded)
		}
		stop()
		close(s.back)
	})
}

func counter(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func TestLaneShowsWhatHoldsBackTheOffset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		reg := prometheus.NewRegistry()
		a := newAttempter(2, 0, order.Answer{})
		a.answer = func(o *order.Order) order.Answer {
			if o.Message.Offset == 3 {
				time.Sleep(25 * time.Second)
			}
			return order.Answer{Outcome: order.OutcomeSucceeded}
		}
		b := startLane(t, 100, a, func(c *Config) {
			c.Logger, c.Registerer = slog.New(slog.NewTextHandler(&log, nil)), reg
		})
		time.Sleep(12500 * time.Millisecond)
		want := Head{Partition: 0, Offset: 3, Number: "T-3", For: 11500 * time.Millisecond, Behind: 96, At: StopCall}
		if h := b.lane.Level().Head; h != want {
			t.Errorf("head %+v, want %+v", h, want)
		}
		if s, n := counter(t, reg, "spillway_head_of_line_seconds"), counter(t, reg, "spillway_head_of_line_records"); s != 11.5 || n != 96 {
			t.Errorf("metrics say %v s and %v records, want 11.5 and 96", s, n)
		}
		time.Sleep(20 * time.Second)
		if h := b.lane.Level().Head; h != (Head{}) {
			t.Errorf("head %+v, want none", h)
		}
		if n := strings.Count(log.String(), "holds back the committed offset"); n != 1 || !strings.Contains(log.String(), "number=T-3 at=call for=11s behind=96") {
			t.Errorf("%d lines in the log, want one:\n%s", n, log.String())
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
