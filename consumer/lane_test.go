package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
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

func (a *fakeAttempter) SubmitHolding(ctx context.Context, _ order.Lane, o *order.Order) order.Answer {
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

func TestLaneSettlesEveryRecordAndCommitsBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 200, a, nil)
		time.Sleep(3 * time.Second)
		if committed, _ := b.group.at(); committed != 200 {
			t.Errorf("committed %d, want 200", committed)
		}
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 200 {
			t.Errorf("%d succeeded, want 200", n)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestLaneTakesNewNumbersWhileItRuns changes how long is waited for a permit, and what follows from an attempt.
func TestLaneTakesNewNumbersWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(1, 10*time.Second, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 4, a, func(c *Config) {
			c.PermitWait = time.Hour
			c.Policy.ReplayAttempts = 10
		})
		time.Sleep(5 * time.Second)
		if s := b.lane.Level(); s.Paused != 0 || s.InFlight != 1 {
			t.Fatalf("status %+v: want one in flight and nothing paused", s)
		}
		b.lane.SetPermitWait(time.Second)
		p := b.lane.cfg.Policy
		p.ReplayAttempts, p.Degrade = 1, order.Hold
		b.lane.SetPolicy(p)
		time.Sleep(10 * time.Second)
		if s := b.lane.Level(); s.Paused != 1 {
			t.Errorf("status %+v: want the partition paused, for no permit comes within a second", s)
		}
		if n := b.store.count(order.Dead, order.NoPhase); n != 1 {
			t.Errorf("%d dead letters, want that of the one attempt allowed", n)
		}
		if b.lane.policy.Load().Degrade != order.Spill {
			t.Error("the degrade rule changed")
		}
		limits := b.lane.limits
		limits.Tenants = 7
		b.lane.SetLimits(limits)
		if n := b.lane.now.Load().line.tenants; n != 7 {
			t.Errorf("%d tenants have a turn of their own, want 7", n)
		}
		b.lane.SetPermitWait(0)
		if d := b.lane.permitWait(); d != 20*time.Millisecond {
			t.Errorf("a wait of %v, want the default", d)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestLaneHoldsWhenPermitsRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, time.Hour, order.Answer{})
		b := startLane(t, 100_000, a, nil)
		time.Sleep(time.Second)
		s := b.lane.Level()
		if s.Paused != 1 || s.Constraint != ConstraintPermits || s.InFlight != 2 {
			t.Errorf("status %+v: want the partition paused for permits with 2 in flight", s)
		}
		_, before := b.group.at()
		time.Sleep(time.Minute)
		if _, after := b.group.at(); after != before {
			t.Errorf("%d fetches of a paused partition", after-before)
		}
		if b.store.renewals() == 0 {
			t.Error("no lease was renewed in a minute")
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := b.store.count(order.Processing, order.Unknown); n != 2 {
			t.Errorf("%d UNKNOWN, want the 2 that were cut off in flight", n)
		}
		if n := b.store.count(order.Processing, order.InFlight); n != 0 {
			t.Errorf("%d left IN_FLIGHT after the drain", n)
		}
	})
}

func TestLaneDrainsWhatIsInFlightBeforeTheLastCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(10, 3*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 10, a, func(c *Config) { c.Drain = 10 * time.Second })
		time.Sleep(time.Second)
		start := time.Now()
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second+100*time.Millisecond {
			t.Errorf("drained in %s: it waits for the calls and no longer", took)
		}
		committed, _ := b.group.at()
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 10 || committed != 10 {
			t.Errorf("%d succeeded, committed %d: want 10 and 10", n, committed)
		}
	})
}

func TestLaneHoldsAndCommitsNothingWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 1000, a, nil)
		time.Sleep(100 * time.Millisecond)
		b.store.set(true)
		time.Sleep(time.Second)
		committed, fetches := b.group.at()
		if s := b.lane.Level(); s.Constraint != ConstraintStore || s.Paused != 1 {
			t.Errorf("status %+v: want intake held for the store", s)
		}
		time.Sleep(20 * time.Second)
		if c, f := b.group.at(); c != committed || f != fetches {
			t.Errorf("committed %d → %d, fetches %d → %d while the store was away", committed, c, fetches, f)
		}
		b.store.set(false)
		time.Sleep(10 * time.Second)
		if c, _ := b.group.at(); c != 1000 {
			t.Errorf("committed %d, want 1000 after the store came back", c)
		}
		if _, most := a.made(); most != 1 {
			t.Errorf("an order was called %d times", most)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneCommitsNoSpilledOrderBeforeTheQueueTookIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 20, a, nil)
		b.replay.set(errDown)
		time.Sleep(30 * time.Second)
		if c, _ := b.group.at(); c != 0 {
			t.Errorf("committed %d with the replay queue away", c)
		}
		if _, tries := b.replay.seen(); tries > 31 {
			t.Errorf("%d pushes tried in 30 s: want at most one a second", tries)
		}
		if s := b.lane.Level(); s.Paused != 1 {
			t.Errorf("status %+v: want intake held", s)
		}
		b.replay.set(nil)
		time.Sleep(3 * time.Second)
		c, _ := b.group.at()
		if items, _ := b.replay.seen(); c != 20 || items != 20 {
			t.Errorf("committed %d, queued %d: want 20 and 20", c, items)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Orders under way still find room now and then while the queue is at its bound. Each of them let intake resume.
func TestLaneHoldsForAFullQueueUntilItIsToldThatThereIsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 100*time.Millisecond, order.Answer{Outcome: order.OutcomeOverloaded})
		b := startLane(t, 50, a, nil)
		b.replay.set(order.ErrQueueFull)
		time.Sleep(150 * time.Millisecond)
		b.replay.set(nil)
		time.Sleep(500 * time.Millisecond)
		if items, _ := b.replay.seen(); items == 0 {
			t.Error("nothing went into the queue meanwhile")
		}
		if s := b.lane.Level(); s.Constraint != ConstraintReplayFull || s.Paused != 1 {
			t.Errorf("status %+v, want intake held for the full queue", s)
		}
		b.lane.SetReplayFull(t.Context(), false)
		if s := b.lane.Level(); s.Constraint == ConstraintReplayFull || s.Paused != 0 {
			t.Errorf("status %+v, want intake resumed", s)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneHoldsOnAnOpenBreakerWhereTheRouteSaysHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(5, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		a.setOpen(true)
		b := startLane(t, 50, a, func(c *Config) { c.Policy.Degrade = order.Hold })
		time.Sleep(5 * time.Second)
		if calls, _ := a.made(); calls != 0 {
			t.Errorf("%d calls through an open breaker", calls)
		}
		if s := b.lane.Level(); s.Constraint != ConstraintBreaker {
			t.Errorf("constraint %s, want breaker", s.Constraint)
		}
		a.setOpen(false)
		time.Sleep(5 * time.Second)
		if n := b.store.count(order.Succeeded, order.NoPhase); n != 50 {
			t.Errorf("%d succeeded, want 50", n)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneSendsNothingOnALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(1, 40*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 2, a, nil)
		b.store.lose() // whoever asks for a renewal hears that the lease is somebody else's
		time.Sleep(3 * time.Minute)
		if calls, _ := a.made(); calls != 1 {
			t.Errorf("%d calls, want 1: the other lost its lease while it waited", calls)
		}
		if c, _ := b.group.at(); c != 2 {
			t.Errorf("committed %d, want 2: the rows are the scanner's", c)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A handler that answers at once let admission win the store over the settlers: a hundred thousand orders stood called
// and not settled.
func TestLaneAdmitsNothingWhileTooManyOutcomesWaitToBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 12_000
		a := newAttempter(10, 0, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, records, a, nil)
		b.store.slowDown(time.Second) // 1,000 orders a second
		most := 0
		for range 14 {
			time.Sleep(time.Second)
			calls, _ := a.made()
			most = max(most, calls-b.store.count(order.Succeeded, order.NoPhase))
		}
		// What waits, what is inside both settlers' statements, and what was ahead when the line grew full.
		if bound := settleMost + settlers*batchRecords + 2000 + admitters*batchRecords; most > bound || most < settleMost {
			t.Errorf("%d orders stood called and not settled, want about %d", most, settleMost)
		}
		time.Sleep(5 * time.Second)
		if n := b.store.count(order.Succeeded, order.NoPhase); n != records {
			t.Errorf("%d orders succeeded, want %d", n, records)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
