package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"spillway/order"
)

// generation is one tenure of the lane's partitions. A record goes pending → (admit) → ready → (permit) → attempt →
// settling → (spilling) → closed; everything in these lines is bounded by the gate's grants.
type generation struct {
	*Lane

	session Session

	mu        sync.Mutex // guards everything below, down to changed
	gate      *Gate
	ledgers   map[int32]*Ledger
	ends      map[int32]int64 // high waters
	pending   fifo[record]
	ready     fifo[*work]
	settling  fifo[settling]
	spilling  fifo[settling]
	held      map[*work]struct{} // admitted and not closed
	admitting int                // records inside Admit
	flying    int                // attempts under way
	sum       sum
	changed   chan struct{} // made by who waits, closed when Plan may answer differently; nil while nobody waits

	admit, dispatch, settle, spill, idle signal

	retired atomic.Bool // its calls are over: nothing may be sent any more
}

// sum counts records in and out: what was taken is closed, dropped, or still in one of the lines.
type sum struct{ taken, closed, dropped int }

// record is a message of a partition, not admitted yet.
type record struct {
	message order.Message
	ledger  *Ledger
	size    int64
}

// work is an admitted order on its way.
type work struct {
	order    order.Order
	ledger   *Ledger
	size     int64
	leasedAt time.Time // when the lease was asked for: its end is at least this plus Config.Lease
	lost     bool      // guarded by generation.mu
}

// settling is a work whose outcome is known and not written yet.
type settling struct {
	*work
	settlement order.Settlement
}

// signal wakes one goroutine; setting it twice before it is taken is once.
type signal chan struct{}

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func newGeneration(l *Lane, s Session, limits Limits) *generation {
	g := &generation{
		Lane: l, session: s,
		gate:    NewGate(limits),
		ledgers: map[int32]*Ledger{}, ends: map[int32]int64{},
		held:  map[*work]struct{}{},
		admit: make(signal, 1), dispatch: make(signal, 1), settle: make(signal, 1),
		spill: make(signal, 1), idle: make(signal, 1),
	}
	ps := s.Assigned()
	for _, p := range ps {
		g.ledgers[p.Partition] = NewLedger(p.Offset)
	}
	g.gate.Assign(time.Now(), ps)
	return g
}

// run works until taking ends, then drains: nothing new is taken, what was admitted is finished, what can't be
// finished in time is cancelled and settled as such, and the offsets of what is settled are committed.
func (g *generation) run(taking context.Context) error {
	log := g.cfg.Logger.With(slog.Int("generation", int(g.session.Generation())))
	log.InfoContext(taking, "partitions assigned", slog.Int("partitions", len(g.ledgers)))

	background := context.WithoutCancel(taking)
	working, stopWorking := context.WithCancelCause(background)   // calls
	settling, stopSettling := context.WithCancelCause(background) // what follows a call
	defer stopWorking(nil)
	defer stopSettling(nil)
	taking, stopTaking := context.WithCancelCause(taking)
	defer stopTaking(nil)

	var intake, upkeep, dispatcher, writers sync.WaitGroup
	var fetchErr error
	intake.Go(func() {
		fetchErr = g.session.Fetch(taking, g)
		stopTaking(fetchErr)
	})
	for range admitters {
		intake.Go(func() { g.admitLoop(taking, settling) })
	}
	dispatcher.Go(func() { g.dispatchLoop(working, settling) })
	for range settlers {
		writers.Go(func() { g.settleLoop(settling) })
	}
	writers.Go(func() { g.spillLoop(settling) })
	upkeep.Go(func() { g.renewLoop(settling) })
	upkeep.Go(func() { g.commitLoop(settling) })

	<-taking.Done()
	start := time.Now()
	cause := context.Cause(taking)
	// The last fifth of the budget is for writing down what was cancelled and for the commit.
	hardTimer := time.AfterFunc(g.cfg.Drain*9/10, func() { stopSettling(errDrain) })
	defer hardTimer.Stop()
	workTimer := time.AfterFunc(g.cfg.Drain*4/5, func() { g.stopCalls(stopWorking, cause) })
	defer workTimer.Stop()
	intake.Wait()
	g.dropPending()
	g.awaitIdle(settling)
	g.stopCalls(stopWorking, cause)
	stopSettling(errDrain)
	dispatcher.Wait()
	writers.Wait()
	upkeep.Wait()

	g.lastCommit(background, g.cfg.Drain-time.Since(start))
	log.InfoContext(background, "partitions drained", slog.Duration("took", time.Since(start)),
		slog.Int("unfinished", len(g.held)), slog.Any("cause", cause))
	if fetchErr != nil && !errors.Is(fetchErr, context.Canceled) {
		return fetchErr
	}
	return nil
}

// errDrain is the cause of a context that ended because the drain's budget was used up.
var errDrain = errors.New("the drain is over")

func (g *generation) stopCalls(stop context.CancelCauseFunc, cause error) {
	g.retired.Store(true)
	stop(cause)
	g.dispatch.set()
}

// awaitIdle returns when every admitted order is closed, or when ctx ends.
func (g *generation) awaitIdle(ctx context.Context) {
	for {
		g.mu.Lock()
		busy := len(g.held) + g.admitting
		g.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-g.idle:
		case <-ctx.Done():
			return
		}
	}
}

// dropPending forgets the records that were fetched and not admitted: they stay uncommitted.
func (g *generation) dropPending() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for g.pending.len() > 0 {
		r := g.pending.pop()
		g.gate.Dropped(now, 1, r.size)
		g.sum.dropped++
	}
}

// Plan implements Feed.
func (g *generation) Plan(candidates []int32, grants []Grant) []Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cfg.PermitLimit != nil {
		g.gate.SetPermits(g.cfg.PermitLimit())
	}
	return g.gate.Plan(time.Now(), candidates, grants)
}

// Wait implements Feed.
func (g *generation) Wait(ctx context.Context) {
	g.mu.Lock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// wake tells those in Wait. It is called with the lock held.
func (g *generation) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Deliver implements Feed: it opens the records in the ledger and lines them up for admission.
func (g *generation) Deliver(b Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ledger := g.ledgers[b.Partition]
	if ledger == nil {
		return
	}
	records, size := 0, int64(0)
	for i := range b.Messages {
		m := &b.Messages[i]
		if !ledger.Open(m.Offset) {
			continue
		}
		r := record{message: *m, ledger: ledger, size: int64(m.Size())}
		g.pending.push(r)
		records++
		size += r.size
	}
	ledger.Advance(b.Next)
	g.gate.Full(b.Partition, ledger.Len() > maxOpen)
	if b.HighWater >= 0 {
		g.ends[b.Partition] = b.HighWater
	}
	g.gate.Delivered(time.Now(), Grant{Partition: b.Partition, Bytes: b.Grant}, records, size, b.Next, b.HighWater)
	g.sum.taken += records
	g.m.consumed.Add(float64(records))
	if records > 0 {
		g.cfg.Trace(StepFetched, "")
		g.admit.set()
	}
	g.wake()
}

// Release implements Feed.
func (g *generation) Release(gr Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Released(time.Now(), gr)
	g.wake()
}

// Lost implements Feed: records are gone, and the partition goes on elsewhere.
func (g *generation) Lost(gap Gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ledger := g.ledgers[gap.Partition]
	if ledger == nil {
		return
	}
	if gap.To < gap.From {
		// The log was made again: offsets of before and of now have nothing to do with each other.
		g.ledgers[gap.Partition] = NewLedger(gap.To)
	} else {
		ledger.Advance(gap.To)
	}
	g.gate.Moved(gap.Partition, gap.To)
	g.wake()
}

// hold pauses or resumes the partitions for a reason that lies outside the gate.
func (g *generation) hold(ctx context.Context, why HoldReason, on bool, err error) {
	g.mu.Lock()
	was := g.gate.Holding(why)
	if was != on {
		g.gate.Hold(time.Now(), why, on)
		g.wake()
	}
	g.mu.Unlock()
	switch {
	case on && !was:
		g.cfg.Logger.WarnContext(ctx, "intake holds", slog.String("why", why.String()), slog.Any("error", err))
	case !on && was:
		g.cfg.Logger.InfoContext(ctx, "intake resumes", slog.String("why", why.String()))
	}
}

// setLimits changes the gate's limits.
func (g *generation) setLimits(limits Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.SetLimits(time.Now(), limits)
	g.admit.set()
	g.wake()
}

func (g *generation) status(now time.Time) Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{
		Level:      g.gate.Level(),
		Generation: g.session.Generation(),
		Assigned:   len(g.ledgers),
		Paused:     g.gate.Paused(),
		Constraint: g.gate.Constraint(),
		Bound:      g.gate.Bound(now),
		Target:     g.gate.Target(now),
		InFlight:   g.flying,
		Pauses:     g.gate.Pauses(),
		Imbalance:  g.sum.taken - g.sum.closed - g.sum.dropped - g.pending.len() - g.admitting - len(g.held),
	}
	for _, why := range HoldReasons() {
		if g.gate.Holding(why) {
			s.Holds = append(s.Holds, why)
		}
	}
	for p, l := range g.ledgers {
		if end, ok := g.ends[p]; ok {
			s.Lag += max(end-l.Committable(), 0)
		}
	}
	return s
}
