package consumer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"spillway/order"
)

// generation is one tenure of the lane's partitions. A record goes pending → (admit) → line → (permit) → attempt →
// settling → (spilling) → closed; everything in these lines is bounded by the gate's grants.
type generation struct {
	*Lane

	session Session

	mu        sync.Mutex // guards everything below, down to changed
	gate      *Gate
	limits    Limits
	parts     map[int32]*part
	turns     fifo[*part] // those with something pending or released
	pending   int         // records of all partitions that wait for admission, parked ones left out
	lots      *lots
	line      *Line[*work]
	settling  fifo[settling]
	tookAt    time.Time // when the settlers took their last batch, see gather
	spilling  fifo[settling]
	held      map[*work]struct{} // admitted and not closed
	admitting int                // records inside Admit
	flying    int                // attempts under way
	want      want
	barred    bool // the dispatcher waits for the breaker, open or recovering
	closed    bool // the line is: nothing may begin any more
	withdrawn []order.Spilled
	over      bool   // an answer that comes now comes late
	abandoned int    // attempts that nobody waits for
	begun     uint64 // orders
	written   uint64 // batches of outcomes
	sum       sum
	changed   chan struct{} // made by who waits, closed when Plan may answer differently; nil while nobody waits

	admit, dispatch, settle, gathered, spill, idle signal
}

// part is one partition.
type part struct {
	id       int32
	ledger   *Ledger
	end      int64 // high water, -1 where it is not known
	pending  fifo[record]
	released fifo[record] // were parked, and may be admitted now

	// Records that wait for an earlier one of their chain, admitted or not.
	aside      int
	asideBytes int64

	head      int64 // what holds back the offset, as of the last look
	headSince time.Time
	headTold  bool // the log has it

	full bool // left out of the fetch: too much is aside, or behind an open record
}

// waiting reports whether something waits for admission.
func (p *part) waiting() bool { return p.released.len()+p.pending.len() > 0 }

// next is what the next record to admit is in: the released ones go first, others of their chains may be next in line.
func (p *part) next() *fifo[record] {
	if p.released.len() > 0 {
		return &p.released
	}
	return &p.pending
}

// sum counts records in and out: what was taken is closed, dropped, or still in one of the lines.
type sum struct{ taken, closed, dropped int }

// record is a message of a partition, not admitted yet.
type record struct {
	message order.Message
	ledger  *Ledger
	size    int64
	tenant  string // known once it is to be admitted
}

// work is an admitted order on its way.
type work struct {
	entry    Entry[*work]
	order    order.Order
	ledger   *Ledger
	size     int64
	leasedAt time.Time     // when the lease was asked for: its end is at least this plus Config.Lease
	first    *order.Answer // of the attempt that is being retried; nil before
	lost     bool          // guarded by generation.mu, as what follows
	yielded  bool          // the next of its chain may run
	begun    bool          // it has had a permit, and is not in line again
	aside    bool          // it waits for its chain

	since     time.Time // when the attempt under way began; zero while there is none
	abandoned bool      // nobody waits for that attempt
	landed    bool      // guarded by Lane.mu: the attempt has returned
}

// settling is a work whose outcome is known and not written yet.
type settling struct {
	*work
	settlement order.Settlement
	withdrawn  bool // its record stays uncommitted
}

// signal wakes one goroutine; setting it twice before it is taken is once.
type signal chan struct{}

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func newGeneration(l *Lane, s Session, limits Limits, learned Learned) *generation {
	g := &generation{
		Lane: l, session: s,
		gate: NewGate(limits, learned), limits: limits,
		parts: map[int32]*part{},
		lots:  newLots(l.cfg.Ordering), line: NewLine[*work](l.cfg.Ordering, limits.Tenants),
		held:  map[*work]struct{}{},
		admit: make(signal, 1), dispatch: make(signal, 1), settle: make(signal, 1),
		gathered: make(signal, 1), spill: make(signal, 1), idle: make(signal, 1),
	}
	ps := s.Assigned()
	for _, p := range ps {
		g.parts[p.Partition] = &part{id: p.Partition, ledger: NewLedger(p.Offset), end: -1}
	}
	g.gate.Assign(time.Now(), ps)
	if l.cfg.Tenant.From != NoTenants {
		g.line.SetAside(g.rest)
	}
	return g
}

// run works until taking ends, then drains: nothing new is taken or sent, what was not sent is handed back, calls under way
// are finished or, in time, cancelled, and the offsets of what is settled are committed.
func (g *generation) run(taking context.Context) error {
	log := g.cfg.Logger.With(slog.Int("generation", int(g.session.Generation())))
	log.InfoContext(taking, "partitions assigned", slog.Int("partitions", len(g.parts)))

	background := context.WithoutCancel(taking)
	working, stopWorking := context.WithCancelCause(background)   // calls
	settling, stopSettling := context.WithCancelCause(background) // what follows a call
	defer stopWorking(nil)
	defer stopSettling(nil)
	taking, stopTaking := context.WithCancelCause(taking)
	defer stopTaking(nil)

	var intake, upkeep, dispatcher, writers sync.WaitGroup
	var fetchErr error
	intake.Go(func() { g.watchLoop(taking, stopTaking) })
	intake.Go(func() {
		fetchErr = g.session.Fetch(taking, g)
		stopTaking(fetchErr)
	})
	for range g.admitters() {
		intake.Go(func() { g.admitLoop(taking, settling) })
	}
	dispatcher.Go(func() { g.dispatchLoop(taking, working) })
	for range settlers {
		writers.Go(func() { g.settleLoop(settling) })
	}
	writers.Go(func() { g.spillLoop(settling) })
	upkeep.Go(func() { g.renewLoop(settling) })
	upkeep.Go(func() { g.commitLoop(settling, stopTaking) })

	<-taking.Done()
	start := time.Now()
	cause := context.Cause(taking)
	// The last fifth of the budget is for writing down what was cancelled and for the commit.
	hardTimer := time.AfterFunc(g.cfg.Drain*9/10, func() { stopSettling(errDrain) })
	defer hardTimer.Stop()
	workTimer := time.AfterFunc(g.cfg.Drain*4/5, func() { stopWorking(cause) })
	defer workTimer.Stop()
	g.handBack()
	intake.Wait()
	g.dropPending()
	g.awaitIdle(settling)
	flying, unfinished := g.conclude() // before the settlers end: an answer that comes after them is written down all the same
	stopWorking(cause)
	stopSettling(errDrain)
	if !join(g.cfg.Drain/10+time.Second, &dispatcher, &writers, &upkeep) {
		log.ErrorContext(background, "a goroutine of the generation does not end: it is left behind")
	}
	g.strand(flying)
	g.lastCommit(background, g.cfg.Drain-time.Since(start))
	log.InfoContext(background, "partitions drained", slog.Duration("took", time.Since(start)),
		slog.Int("unfinished", unfinished), slog.Any("cause", cause))
	if fetchErr != nil && !errors.Is(fetchErr, context.Canceled) {
		return fetchErr
	}
	return nil
}

// join waits for groups of goroutines for so long, and says whether all have ended.
func join(wait time.Duration, groups ...*sync.WaitGroup) bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, g := range groups {
			g.Wait()
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// conclude says that what comes from now on comes late. It returns the orders whose calls are under way, and how many are
// unfinished, those included.
func (g *generation) conclude() (flying []*work, unfinished int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	for w := range g.held {
		if !w.since.IsZero() {
			flying = append(flying, w)
		}
	}
	return flying, len(g.held)
}

// errDrain is the cause of a context that ended because the drain's budget was used up.
var errDrain = errors.New("the drain is over")

// handBack closes the line and lets go of what waited in it.
func (g *generation) handBack() {
	g.mu.Lock()
	g.closed = true
	waiting := g.line.Clear()
	g.mu.Unlock()
	for _, e := range waiting {
		g.unsent(e.Value)
	}
}

// unsent is what becomes of an order that this generation will not send. It is withdrawn: its offset stays uncommitted, and
// whoever reads the record next takes the order back, in its turn. Where its log is gone, it goes into the replay queue.
func (g *generation) unsent(w *work) {
	g.mu.Lock()
	p := g.parts[w.order.Message.Partition]
	again := p != nil && p.ledger == w.ledger
	g.mu.Unlock()
	if w.first != nil { // it was tried: that is written down
		w.order.AttemptsTotal--
		g.lineUpSettling(g.settlingOf(w, *w.first))
		return
	}
	if !again {
		g.lineUpSettling(g.settlingOf(w, order.Answer{Outcome: order.OutcomeCancelled, Reason: g.whyStopped()}))
		return
	}
	g.lineUpSettling(settling{
		work: w, settlement: g.policy.Load().Withdraw(&w.order, g.whyStopped(), time.Now()), withdrawn: true,
	})
}

// awaitIdle returns when every admitted order is closed, or when ctx ends.
func (g *generation) awaitIdle(ctx context.Context) {
	for {
		g.mu.Lock()
		busy := len(g.held) + g.admitting - g.abandoned
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
	for _, r := range g.lots.clear() {
		g.unaside(r.message.Partition, r.size)
		g.drop(r.size)
	}
	for _, p := range g.parts {
		for p.waiting() {
			g.drop(p.next().pop().size)
		}
	}
	g.turns, g.pending = fifo[*part]{}, 0
}

// drop forgets a record that stays uncommitted and waited for a permit. The lock is held.
func (g *generation) drop(size int64) {
	g.gate.Dropped(time.Now(), 1, size)
	g.sum.dropped++
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

// wake tells those in Wait, if it is of use. It is called with the lock held.
func (g *generation) wake() {
	if g.changed != nil && g.gate.Open(time.Now()) {
		close(g.changed)
		g.changed = nil
	}
}

// Deliver implements Feed: it opens the records in the ledger and lines them up for admission.
func (g *generation) Deliver(b Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.parts[b.Partition]
	if p == nil {
		return
	}
	records, size := 0, int64(0)
	waited := p.waiting()
	for i := range b.Messages {
		m := &b.Messages[i]
		if !p.ledger.Open(m.Offset) {
			continue
		}
		r := record{message: *m, ledger: p.ledger, size: int64(m.Size())}
		p.pending.push(r)
		records++
		size += r.size
	}
	g.pending += records
	if !waited && p.waiting() {
		g.turns.push(p)
	}
	p.ledger.Advance(b.Next)
	if b.HighWater >= 0 {
		p.end = b.HighWater
	}
	g.gate.Delivered(time.Now(), Grant{Partition: b.Partition, Bytes: b.Grant}, records, size, b.Next, b.HighWater)
	g.fill(p)
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
	p := g.parts[gap.Partition]
	if p == nil {
		return
	}
	if gap.To < gap.From {
		// The log was made again: offsets of before and of now have nothing to do with each other.
		p.ledger = NewLedger(gap.To)
	} else {
		p.ledger.Advance(gap.To)
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

// setLimits changes the limits of the gate and of the line.
func (g *generation) setLimits(limits Limits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits = limits
	g.gate.SetLimits(time.Now(), limits)
	g.line.SetTenants(limits.Tenants)
	g.admit.set()
	g.wake()
}

func (g *generation) status(now time.Time) Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{
		Level:      g.gate.Level(),
		Generation: g.session.Generation(),
		Assigned:   len(g.parts),
		Paused:     g.gate.Paused(),
		Constraint: g.gate.Constraint(),
		Bound:      g.gate.Bound(now),
		Target:     g.gate.Target(now),
		InFlight:   g.flying,
		Pauses:     g.gate.Pauses(),
		Head:       g.longestHead(now),
		Imbalance:  g.sum.taken - g.sum.closed - g.sum.dropped - g.waitingRecords() - g.admitting - len(g.held),
	}
	for _, why := range HoldReasons() {
		if g.gate.Holding(why) {
			s.Holds = append(s.Holds, why)
		}
	}
	for _, p := range g.parts {
		if p.end >= 0 {
			s.Lag += max(p.end-p.ledger.Committable(), 0)
		}
	}
	return s
}

// waitingRecords is how many records were fetched and are not admitted. The lock is held.
func (g *generation) waitingRecords() int { return g.pending + g.lots.parked }
