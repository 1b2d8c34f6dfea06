package compensator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/order"
)

var errAway = errors.New("connection refused")

// row is an order in the fake store.
type row struct {
	order.Order
	owner   string
	history int // transitions that were written down
}

// fakeStore keeps the store's contract in memory.
type fakeStore struct {
	mu       sync.Mutex
	rows     map[int64]*row
	away     bool
	claims   []claimed
	settles  int
	errors   int
	finals   int
	onSettle func() // before each, without the lock
}

type claimed struct {
	owner string
	n     int // asked for
	got   int
	at    time.Time
}

func newStore() *fakeStore { return &fakeStore{rows: map[int64]*row{}} }

// add puts in an order that is due now.
func (s *fakeStore) add(id int64, phase order.Phase) *row {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &row{Order: order.Order{
		ID: id, Route: "r", Number: fmt.Sprintf("T-%d", id), State: order.Processing, Phase: phase, Version: 1,
		Attempts: 1, AttemptsTotal: 1, Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout,
		LastAttempt: time.Now().Add(-10 * time.Minute), Due: time.Now(),
	}}
	s.rows[id] = r
	return r
}

func (s *fakeStore) get(id int64) row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rows[id]
}

func (s *fakeStore) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// count counts the orders in a state.
func (s *fakeStore) count(state order.State) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.rows {
		if r.State == state {
			n++
		}
	}
	return n
}

func (s *fakeStore) ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || ctx.Err() != nil {
		s.errors++
		return nil, errAway
	}
	now := time.Now()
	var due []*row
	for _, r := range s.rows {
		if r.Route == route && r.State == order.Processing && !r.Due.After(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *row) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return int(a.ID - b.ID)
	})
	var out []order.Order
	for _, r := range due[:min(n, len(due))] {
		switch r.Phase {
		case order.InFlight:
			r.Phase, r.Lookups, r.Reason = order.Unknown, 1, order.WorkerDied
			r.history++
		case order.Unknown:
			r.Lookups++
		case order.Replaying, order.NoPhase:
		}
		r.Version, r.owner, r.Due = r.Version+1, owner, now.Add(lease)
		out = append(out, r.Order)
	}
	s.claims = append(s.claims, claimed{owner, n, len(out), now})
	return out, nil
}

func (s *fakeStore) Settle(ctx context.Context, _ string, ss []order.Settlement) ([]order.Settled, error) {
	if s.onSettle != nil {
		s.onSettle()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settles++
	if s.away || ctx.Err() != nil {
		s.errors++
		return nil, errAway
	}
	out := make([]order.Settled, len(ss))
	for i, t := range ss {
		r := s.rows[t.ID]
		if r.State != order.Processing || r.Version != t.Version {
			out[i] = order.Stale
			continue
		}
		r.State, r.Phase, r.Attempts, r.AttemptsTotal, r.Lookups = t.State, t.Phase, t.Attempts, t.AttemptsTotal, t.Lookups
		r.Outcome, r.Reason, r.Detail, r.Due, r.owner = t.Outcome, t.Reason, t.Detail, t.Due, ""
		r.Version++
		if !t.Straight {
			r.history++
		}
		if r.State != order.Processing {
			s.finals++
		}
	}
	return out, nil
}

func (s *fakeStore) Renew(_ context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		s.errors++
		return nil, errAway
	}
	out := make([]bool, len(ls))
	for i, l := range ls {
		if r := s.rows[l.ID]; r.Version == l.Version && r.owner == owner && r.State == order.Processing {
			r.Due, out[i] = time.Now().Add(lease), true
		}
	}
	return out, nil
}

// fakeCalls is permits, a breaker that is open or not, and a downstream that answers by answer.
type fakeCalls struct {
	permits chan struct{}
	answer  func(ctx context.Context, o *order.Order) order.Finding
	pace    func(now time.Time) time.Duration // nil: no rate limit
	rights  atomic.Int64                      // taken and not given back

	mu      sync.Mutex
	open    bool
	ramp    int // lookups that a recovering breaker lets be in flight; 0: it is closed
	lookups map[int64]int
	times   []time.Time
	flight  int
	most    int
}

func newCalls(permits int, answer func(ctx context.Context, o *order.Order) order.Finding) *fakeCalls {
	c := &fakeCalls{permits: make(chan struct{}, permits), answer: answer, lookups: map[int64]int{}}
	for range permits {
		c.permits <- struct{}{}
	}
	return c
}

// Pace answers with what pace says, where it is set.
func (c *fakeCalls) Pace(now time.Time, lane order.Lane, _ string) time.Duration {
	if c.pace == nil || lane != order.LaneCompensate {
		return 0
	}
	d := c.pace(now)
	if d == 0 {
		c.rights.Add(1)
	}
	return d
}

func (c *fakeCalls) Unpace(order.Lane, string) { c.rights.Add(-1) }

func (c *fakeCalls) Free(order.Lane) int { return len(c.permits) }

func (c *fakeCalls) Acquire(ctx context.Context, _ order.Lane) error {
	select {
	case <-c.permits:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeCalls) LookupRoom() (n int, recovering bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open:
		return 0, false
	case c.ramp > 0:
		return max(c.ramp-c.flight, 0), true
	}
	return math.MaxInt, false
}

func (c *fakeCalls) setOpen(open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
}

func (c *fakeCalls) Lookup(ctx context.Context, _ order.Lane, o *order.Order) order.Finding {
	defer func() { c.permits <- struct{}{} }()
	if room, _ := c.LookupRoom(); room == 0 {
		return order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	}
	c.mu.Lock()
	c.lookups[o.ID]++
	c.times = append(c.times, time.Now())
	c.flight++
	c.most = max(c.most, c.flight)
	c.mu.Unlock()
	f := c.answer(ctx, o)
	c.mu.Lock()
	c.flight--
	c.mu.Unlock()
	if ctx.Err() != nil && f.Verdict == order.VerdictNone {
		return order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeCancelled, Reason: order.Shutdown}
	}
	return f
}

func (c *fakeCalls) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

func (c *fakeCalls) of(id int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookups[id]
}

// fakeQueue is the replay queue.
type fakeQueue struct {
	mu     sync.Mutex
	queued map[int64]int // pushes
	last   map[int64]order.Spilled
	err    error
	asked  int
}

func newQueue() *fakeQueue {
	return &fakeQueue{queued: map[int64]int{}, last: map[int64]order.Spilled{}}
}

func (q *fakeQueue) Push(_ context.Context, spilled []order.Spilled) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	for _, s := range spilled {
		q.queued[s.Order.ID]++
		q.last[s.Order.ID] = s
	}
	return nil
}

func (q *fakeQueue) Has(_ context.Context, ids []int64) ([]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	if q.err != nil && !errors.Is(q.err, order.ErrQueueFull) {
		return nil, q.err
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = q.queued[id] > 0
	}
	return out, nil
}

func (q *fakeQueue) pushes(id int64) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued[id]
}

func (q *fakeQueue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
}

func testPolicy() order.Policy {
	return order.Policy{
		ReplayAttempts: 3, ReplayAttemptsTotal: 20, RetryDelay: time.Second, RetryDelayMax: time.Minute,
		RetryAfterMax: time.Minute, ReplayPatience: 2 * time.Minute, CompensateAfter: 5 * time.Second,
		CompensateAttempts: 5, LookupDelay: 5 * time.Second, LookupDelayMax: time.Minute, Grace: 30 * time.Second,
	}
}

// world is a scanner and all that is around it.
type world struct {
	*fakeStore
	calls *fakeCalls
	queue *fakeQueue
	log   bytes.Buffer
}

// scanner makes one more scanner of the world.
func (w *world) scanner(t *testing.T, owner string, store Store) *Scanner {
	t.Helper()
	if store == nil {
		store = w.fakeStore
	}
	s, err := New(Config{Route: "r", Owner: owner}, testPolicy(), store, w.calls, w.queue,
		slog.New(slog.NewTextHandler(&w.log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newWorld(permits int, answer func(ctx context.Context, o *order.Order) order.Finding) *world {
	return &world{fakeStore: newStore(), calls: newCalls(permits, answer), queue: newQueue()}
}

// run runs a scanner in a bubble for d and returns how long it took to end after that.
func run(t *testing.T, s *Scanner, d time.Duration) time.Duration {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	time.Sleep(d)
	stop()
	at := time.Now()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	return time.Since(at)
}

// finding makes a downstream that always answers the same after d.
func finding(v order.Verdict, d time.Duration) func(context.Context, *order.Order) order.Finding {
	return func(ctx context.Context, _ *order.Order) order.Finding {
		wait(ctx, d)
		if ctx.Err() != nil {
			return order.Finding{Verdict: order.VerdictNone, Outcome: order.OutcomeUnknown}
		}
		f := order.Finding{Verdict: v, Outcome: order.OutcomeSucceeded}
		switch v {
		case order.VerdictProcessing:
			f.Reason = order.StillProcessing
		case order.VerdictNone:
			f.Outcome, f.Reason = order.OutcomeUnknown, order.Upstream5xx
		case order.VerdictSucceeded, order.VerdictFailed, order.VerdictNotFound, order.VerdictRefused:
		}
		return f
	}
}
