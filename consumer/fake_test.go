package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"spillway/order"
)

// fakeGroup serves one generation of one partition that holds a number of records.
type fakeGroup struct {
	records int64
	key     func(offset int64) []byte // the business number where nil

	mu        sync.Mutex
	committed int64
	fetches   int
}

func (f *fakeGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	return serve(ctx, f)
}

func (f *fakeGroup) Generation() int32    { return 1 }
func (f *fakeGroup) Assigned() []Position { return []Position{{Partition: 0, Offset: f.committed}} }

func (f *fakeGroup) Commit(_ context.Context, offsets map[int32]int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if offsets[0] < f.committed {
		return fmt.Errorf("commit moves back from %d to %d", f.committed, offsets[0])
	}
	f.committed = offsets[0]
	return nil
}

func (f *fakeGroup) at() (committed int64, fetches int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed, f.fetches
}

// Fetch brings ten records a request.
func (f *fakeGroup) Fetch(ctx context.Context, feed Feed) error {
	for ctx.Err() == nil {
		grants := feed.Plan([]int32{0}, nil)
		if len(grants) == 0 {
			feed.Wait(ctx)
			continue
		}
		f.mu.Lock()
		f.fetches++
		f.mu.Unlock()
		g := grants[0]
		b := Batch{Partition: 0, Grant: g.Bytes, Next: min(g.Offset+10, f.records), HighWater: f.records}
		for o := g.Offset; o < b.Next; o++ {
			m := order.Message{Offset: o, Key: fmt.Appendf(nil, "T-%d", o), Value: []byte("v")}
			if f.key != nil {
				m.Headers, m.Key = []order.Header{{Key: "no", Value: m.Key}}, f.key(o)
			}
			b.Messages = append(b.Messages, m)
		}
		if len(b.Messages) == 0 {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		feed.Deliver(b)
	}
	return nil
}

// fakeStore remembers what was written. While down it fails.
type fakeStore struct {
	mu      sync.Mutex
	down    bool
	rows    map[string]order.Transition
	buried  int
	renewed int
	lost    bool
	slow    time.Duration // of a settlement
	settles []time.Time   // when each statement began
}

var errDown = errors.New("the store is down")

func (s *fakeStore) Admit(_ context.Context, route, _ string, _ time.Duration, as []order.Admission) ([]order.Admitted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	out := make([]order.Admitted, len(as))
	for i, a := range as {
		if _, ok := s.rows[a.Number]; ok {
			out[i] = order.Admitted{Kind: order.Duplicate}
			continue
		}
		s.rows[a.Number] = order.Transition{State: order.Processing, Phase: order.InFlight}
		out[i].Order = order.Order{
			ID: a.Message.Offset + 1, Route: route, Number: a.Number, Message: a.Message, State: order.Processing,
			Phase: order.InFlight, Version: 1, Attempts: 1, AttemptsTotal: 1,
		}
	}
	return out, nil
}

func (s *fakeStore) Settle(ctx context.Context, _ string, ss []order.Settlement) ([]order.Settled, error) {
	s.mu.Lock()
	slow := s.slow
	s.settles = append(s.settles, time.Now())
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errDown
	}
	for _, t := range ss {
		s.rows[fmt.Sprintf("T-%d", t.ID-1)] = t.Transition
	}
	return make([]order.Settled, len(ss)), nil
}

func (s *fakeStore) Renew(_ context.Context, _ string, _ time.Duration, ls []order.Lease) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make([]bool, len(ls))
	for i := range kept {
		kept[i] = !s.lost
	}
	s.renewed += len(ls)
	return kept, nil
}

func (s *fakeStore) Bury(_ context.Context, ds []order.DeadRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buried += len(ds)
	return nil
}

func (s *fakeStore) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *fakeStore) slowDown(settle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = settle
}

func (s *fakeStore) statements() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settles)
}

func (s *fakeStore) renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

func (s *fakeStore) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

func (s *fakeStore) count(state order.State, phase order.Phase) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.rows {
		if t.State == state && t.Phase == phase {
			n++
		}
	}
	return n
}

// fakeAttempter has permits in a channel and answers after a while.
type fakeAttempter struct {
	permits chan struct{}
	took    time.Duration
	answer  func(o *order.Order) order.Answer

	mu    sync.Mutex
	open  bool
	calls map[string]int
}

func newAttempter(permits int, took time.Duration, answer order.Answer) *fakeAttempter {
	a := &fakeAttempter{
		permits: make(chan struct{}, permits), took: took, calls: map[string]int{},
		answer: func(*order.Order) order.Answer { return answer },
	}
	return a
}

func (a *fakeAttempter) PaceLive(time.Time, string) (time.Duration, bool) { return 0, false }

func (a *fakeAttempter) TryAcquire(order.Lane) bool {
	select {
	case a.permits <- struct{}{}:
		return true
	default:
		return false
	}
}

func (a *fakeAttempter) Acquire(ctx context.Context, _ order.Lane) error {
	select {
	case a.permits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *fakeAttempter) Release(order.Lane) { <-a.permits }

// Keep lets a permit be kept: no other lane wants one.
func (a *fakeAttempter) Keep(order.Lane) bool { return true }

func (a *fakeAttempter) Submit(ctx context.Context, _ order.Lane, o *order.Order) order.Answer {
	a.mu.Lock()
	a.calls[o.Number]++
	a.mu.Unlock()
	if a.took == 0 {
		return a.answer(o)
	}
	select {
	case <-time.After(a.took):
		return a.answer(o)
	case <-ctx.Done():
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown, Sent: true}
	}
}

func (a *fakeAttempter) Room() (n int, recovering bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open {
		return 0, false
	}
	return 1, false
}

func (a *fakeAttempter) setOpen(open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = open
}

func (a *fakeAttempter) made() (calls, most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.calls {
		calls += n
		most = max(most, n)
	}
	return calls, most
}

// fakeReplay takes spilled orders, or fails.
type fakeReplay struct {
	mu    sync.Mutex
	err   error
	items int
	tries int
}

func (r *fakeReplay) Push(_ context.Context, ss []order.Spilled) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.err == nil {
		r.items += len(ss)
	}
	return r.err
}

func (r *fakeReplay) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *fakeReplay) seen() (items, tries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.items, r.tries
}

type bench struct {
	group  *fakeGroup
	store  *fakeStore
	replay *fakeReplay
	lane   *Lane
	stop   func() error // ends the lane and returns what Run said
}

func startLane(t *testing.T, records int64, a *fakeAttempter, edit func(*Config), group ...func(*fakeGroup)) *bench {
	t.Helper()
	b := &bench{
		group: &fakeGroup{records: records}, store: &fakeStore{rows: map[string]order.Transition{}}, replay: &fakeReplay{},
	}
	cfg := Config{
		Route: "r", Owner: "me",
		Overdue: 24 * time.Hour, // some tests make calls that last
		Limits:  Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: cap(a.permits)},
		Policy: order.Policy{
			ReplayAttempts: 3, ReplayAttemptsTotal: 20, RetryDelay: time.Second, RetryDelayMax: time.Minute,
			ReplayPatience: time.Minute, CompensateAfter: time.Second,
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	for _, edit := range group {
		edit(b.group)
	}
	b.lane = New(cfg, b.group, b.store, a, b.replay)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.lane.Run(ctx) }()
	b.stop = func() error {
		if n := b.lane.Level().Imbalance; n != 0 {
			t.Errorf("%d records are in no place they can be in", n)
		}
		cancel()
		return <-done
	}
	return b
}
