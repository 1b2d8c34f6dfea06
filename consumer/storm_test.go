package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/memstore"
	"spillway/internal/permit"
	limits "spillway/internal/rate"
	"spillway/order"
)

const (
	stormParts   = 5
	stormRecords = 400 // in each
)

// stormGroup takes the partitions away every few seconds, and now and then refuses commits some time before that. Once it is
// calm it leaves them.
type stormGroup struct {
	t *testing.T

	mu         sync.Mutex
	rnd        *rand.Rand
	calm       bool
	generation int32
	fenced     bool
	committed  [stormParts]int64
}

func (g *stormGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	for ctx.Err() == nil {
		g.mu.Lock()
		g.generation++
		s := &stormSession{g, g.generation}
		lasts, pause := time.Duration(g.rnd.IntN(8000))*time.Millisecond, time.Duration(g.rnd.IntN(1000))*time.Millisecond
		if g.calm {
			lasts = 24 * time.Hour
		}
		g.fenced = false
		if g.rnd.IntN(4) == 0 {
			time.AfterFunc(lasts/2, func() { g.fence(s.generation) })
		}
		g.mu.Unlock()
		serving, cancel := context.WithTimeout(ctx, lasts)
		err := serve(serving, s)
		cancel()
		if err != nil {
			return err
		}
		time.Sleep(pause)
	}
	return nil
}

func (g *stormGroup) fence(generation int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = g.fenced || g.generation == generation && !g.calm
}

// stormSession is one generation of it.
type stormSession struct {
	*stormGroup
	generation int32
}

func (s *stormSession) Generation() int32 { return s.generation }

func (s *stormSession) Assigned() (ps []Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, offset := range s.committed {
		ps = append(ps, Position{Partition: int32(p), Offset: offset})
	}
	return ps
}

func (s *stormSession) Commit(_ context.Context, offsets map[int32]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fenced || s.stormGroup.generation != s.generation {
		return fmt.Errorf("put out: %w", ErrFenced)
	}
	for p, offset := range offsets {
		if offset < s.committed[p] {
			s.t.Errorf("partition %d: a commit goes back from %d to %d", p, s.committed[p], offset)
		}
		s.committed[p] = offset
	}
	return nil
}

// Fetch is two brokers.
func (s *stormSession) Fetch(ctx context.Context, feed Feed) error {
	var brokers sync.WaitGroup
	for _, leads := range [][]int32{{0, 2, 4}, {1, 3}} {
		brokers.Go(func() {
			for ctx.Err() == nil {
				asking, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				if brought := stormFetch(feed, leads); brought == 0 {
					feed.Wait(asking)
				}
				cancel()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	brokers.Wait()
	return nil
}

func stormFetch(feed Feed, leads []int32) (brought int) {
	for _, g := range feed.Plan(leads, nil) {
		b := Batch{Partition: g.Partition, Grant: g.Bytes, HighWater: stormRecords}
		b.Next = min(g.Offset+max(int64(g.Bytes)/400, 1), stormRecords)
		for o := g.Offset; o < b.Next; o++ {
			b.Messages = append(b.Messages, order.Message{
				Topic: "t", Partition: g.Partition, Offset: o, Value: []byte("v"), Key: fmt.Append(nil, o*o%11),
				Headers: []order.Header{
					{Key: "tenant", Value: fmt.Append(nil, o%7)}, {Key: "no", Value: fmt.Appendf(nil, "T-%d-%d", g.Partition, o)},
				},
			})
		}
		if len(b.Messages) == 0 {
			feed.Release(g)
			continue
		}
		feed.Deliver(b)
		brought += len(b.Messages)
	}
	return brought
}

// stormCalls is a service under real permits and rates that answers whatever it likes.
type stormCalls struct {
	*permit.Pool
	*limits.Limiter

	t        *testing.T
	ordering Ordering

	mu         sync.Mutex
	rnd        *rand.Rand
	calm       bool
	room       int
	recovering bool
	running    map[chainID]bool
	applied    map[string]int
}

func (c *stormCalls) Room() (n int, recovering bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room, c.recovering
}

// begin draws what is to become of a call, and how long that takes: stubborn whatever its context says.
func (c *stormCalls) begin(id chainID, chained bool) (draw int, stubborn, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if chained && c.running[id] {
		c.t.Errorf("two orders of %+v run at once", id)
	}
	c.running[id] = true
	draw, took = c.rnd.IntN(100), time.Duration(c.rnd.IntN(30))*time.Millisecond
	switch {
	case c.calm:
		draw = 99
	case c.room == 0:
		draw = 0
	case draw == 5:
		took *= 100
	case draw == 6 && c.rnd.IntN(20) == 0:
		stubborn = time.Duration(c.rnd.IntN(20_000)) * time.Millisecond
	}
	return draw, stubborn, took
}

func (c *stormCalls) end(id chainID, number string, applied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
	if applied {
		c.applied[number]++
	}
}

func (c *stormCalls) Submit(ctx context.Context, _ order.Lane, o *order.Order) (a order.Answer) {
	id, chained := c.ordering.chainOf(o.Message.Partition, o.Message.Key)
	draw, stubborn, took := c.begin(id, chained)
	defer func() { c.end(id, o.Number, a.Outcome == order.OutcomeSucceeded) }()
	time.Sleep(stubborn)
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown, Sent: draw%2 == 0}
	}
	switch draw {
	case 0:
		return order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen}
	case 1, 2:
		return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}
	case 3:
		return order.Answer{Outcome: order.OutcomeOverloaded, Reason: order.UpstreamOverloaded}
	case 4:
		return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.BulkheadFull}
	case 7:
		return order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout}
	}
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}
}

// stormStore is a record of orders that is away at times.
type stormStore struct {
	*memstore.Store

	mu   sync.Mutex
	rnd  *rand.Rand
	down bool
}

func (s *stormStore) answers(ctx context.Context) error {
	s.mu.Lock()
	down, took := s.down, time.Duration(s.rnd.IntN(10))*time.Millisecond
	s.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return ctx.Err()
	}
	if down {
		return errDown
	}
	return nil
}

func (s *stormStore) Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error) {
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	return s.Store.Admit(ctx, route, owner, lease, as)
}

func (s *stormStore) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	return s.Store.Settle(ctx, owner, ss)
}

func (s *stormStore) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// storm is a lane and all that it stands on.
type storm struct {
	t      *testing.T
	rnd    *rand.Rand
	lane   *Lane
	group  *stormGroup
	calls  *stormCalls
	store  *stormStore
	replay *fakeReplay
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	n := uint64(0)
	source := func() *rand.Rand { n++; return rand.New(rand.NewPCG(seed, n)) }
	s := &storm{t: t, rnd: source(), replay: &fakeReplay{}}
	s.group = &stormGroup{t: t, rnd: source()}
	s.store = &stormStore{Store: memstore.New(time.Now), rnd: source()}
	paces := limits.Config{Tenants: 5, Limit: []float64{0, 200}[s.rnd.IntN(2)], Tenant: []float64{0, 40}[s.rnd.IntN(2)]}
	s.calls = &stormCalls{
		Pool: permit.New(permit.Config{Limit: 10}), Limiter: limits.New(paces, time.Now()), t: t, ordering: Ordering(s.rnd.IntN(3)),
		rnd: source(), room: 5, running: map[chainID]bool{}, applied: map[string]int{},
	}
	cfg := Config{
		Route: "r", Owner: "me", Ordering: s.calls.ordering, Number: Number{From: FromHeader, Header: "no"},
		Limits:      Limits{Bytes: 1 << 20, PartitionBytes: 64 << 10, Records: 300, Permits: 10, Tenants: 3},
		PermitLimit: s.calls.Limit, Overdue: 5 * time.Second, Stuck: 20 * time.Second,
		RetryBudget: 0.5, RetryDelay: 50 * time.Millisecond,
		Policy: order.Policy{
			Degrade: order.Degrade(s.rnd.IntN(2)), ReplayAttempts: 3, ReplayAttemptsTotal: 9, RetryDelay: time.Second,
			Reread: time.Hour, CompensateAfter: time.Second, ReplayPatience: time.Hour,
		},
	}
	if s.rnd.IntN(2) == 0 {
		cfg.Tenant = Tenant{From: TenantFromHeader, Header: "tenant"}
	}
	s.lane = New(cfg, s.group, s.store, s.calls, s.replay)
	return s
}

// blow changes something.
func (s *storm) blow(ctx context.Context) {
	switch s.rnd.IntN(9) {
	case 0:
		s.store.set(s.rnd.IntN(2) == 0)
	case 1:
		s.replay.set([]error{nil, errDown, order.ErrQueueFull}[s.rnd.IntN(3)])
	case 2:
		s.calls.mu.Lock()
		s.calls.room, s.calls.recovering = s.rnd.IntN(2)*3, s.rnd.IntN(2) == 0
		s.calls.mu.Unlock()
	case 3:
		if err := s.calls.Pool.Configure(permit.Config{Limit: 1 + s.rnd.IntN(20)}); err != nil {
			s.t.Error(err)
		}
	case 4:
		s.calls.Lease(s.rnd.IntN(10), time.Now().Add(time.Duration(s.rnd.IntN(1000))*time.Millisecond))
	case 5:
		s.calls.SetCap(permit.NoCap)
	case 6:
		s.lane.SetLimits(Limits{
			Bytes: s.rnd.Int64N(1 << 20), PartitionBytes: 32 << 10, Records: 1 + s.rnd.IntN(500), Permits: 10, Tenants: 1 + s.rnd.IntN(5),
		})
	case 7:
		s.lane.SetPermitWait(time.Duration(s.rnd.IntN(100)) * time.Millisecond)
	case 8:
		s.lane.SetReplayFull(ctx, s.rnd.IntN(2) == 0)
	}
	l := s.lane.Level()
	if l.Imbalance != 0 || l.Queued < 0 || l.WaitingBytes < 0 || l.HeldBytes < 0 || l.ReservedBytes < 0 {
		s.t.Errorf("the lane counts %+v", l)
	}
}

// calm makes all well, and gives the lane time to come to its end.
func (s *storm) calm(ctx context.Context) {
	s.store.set(false)
	s.replay.set(nil)
	s.calls.mu.Lock()
	s.calls.room, s.calls.recovering, s.calls.calm = 100, false, true
	s.calls.mu.Unlock()
	s.group.mu.Lock()
	s.group.calm = true
	s.group.mu.Unlock()
	s.calls.SetCap(permit.NoCap)
	for range 120 {
		time.Sleep(time.Second)
		s.lane.SetReplayFull(ctx, false)
	}
}

// atRest checks that everything is done and nothing is left over.
func (s *storm) atRest() {
	s.group.mu.Lock()
	for p, offset := range s.group.committed {
		if offset != stormRecords {
			s.t.Errorf("partition %d: committed %d of %d", p, offset, stormRecords)
		}
	}
	s.group.mu.Unlock()
	for number, n := range s.calls.applied {
		if n > 1 {
			s.t.Errorf("%s was applied %d times", number, n)
		}
	}
	if n := s.calls.InUse(); n != 0 {
		s.t.Errorf("%d permits are in use", n)
	}
	l := s.lane.Level()
	if l.Queued != 0 || l.HeldBytes != 0 || l.WaitingBytes != 0 || len(l.Holds) != 0 || l.Constraint != ConstraintNone {
		s.t.Errorf("the lane shows %+v", l)
	}
	g := s.lane.now.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := []int{
		len(g.held), len(g.lots.chains), len(g.line.chains), len(g.line.classes), len(g.line.flows), g.line.Len(), g.line.aside, g.abandoned,
		len(s.lane.stranded),
	}
	for _, p := range g.parts {
		kept = append(kept, p.aside, int(p.asideBytes), p.ledger.Len())
	}
	for _, n := range kept {
		if n != 0 {
			s.t.Errorf("left over: %v", kept)
			break
		}
	}
}

// TestALaneComesToRestAfterAStorm lets everything around a lane fail, shrink, come back and be taken away at random. Afterwards
// all records are dealt with, none was applied twice, and nothing is left: no permit, byte, place in line or key.
func TestALaneComesToRestAfterAStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, seed)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.lane.Run(ctx) }()
				for range 150 {
					time.Sleep(time.Duration(s.rnd.IntN(200)) * time.Millisecond)
					s.blow(ctx)
				}
				s.calm(ctx)
				s.atRest()
				stop()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
				time.Sleep(time.Minute) // for the timers of what outlived its generation
			})
		})
	}
}
