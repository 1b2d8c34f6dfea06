package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// Config holds the numbers of a route's replay. The zero value of each field but Route and Owner is its default.
type Config struct {
	Route string // required
	Owner string // this worker's id, unique per process start; required

	// InFlight bounds the orders in flight, 1 to 10,000, default 64; the permits and the pace bound them too.
	InFlight int
	// PermitLimit, where set, says how many permits there are now: the pace rises no higher. It must return at once.
	PermitLimit func() int
	// Batch bounds the entries of one claim, 1 to MaxClaim, default 32.
	Batch int
	// Bytes bounds the entries in flight, in bytes as queued: none is claimed beyond it, but the last one claimed below it
	// may reach above, whatever its size. Default 16 MiB.
	Bytes int
	// Tenant says whose order a record is; nil: nobody's.
	Tenant func(m *order.Message) string
	// Step is how long the calls in flight stay as many, after a start or a recovery, before they double. Default 1 s.
	Step time.Duration

	// Lease is how long a claim and a begun row stay ours without a renewal, default 30 s. It is renewed three times
	// in its length.
	Lease time.Duration
	// Poll is how long to wait where there is nothing to do: an empty queue, an open breaker, no permit. Default 100 ms.
	Poll time.Duration
	// Idle is what that wait grows to while the queue stays empty and nothing this worker queued is still to become ready:
	// others' entries may be found so much later. Default 1 s, at least Poll.
	Idle time.Duration
	// Backoff is the pause between two tries of Redis or of Postgres while it is away, default 1 s.
	Backoff time.Duration
	// Timeout bounds one call to Redis or Postgres, default 5 s.
	Timeout time.Duration
	// Sample is the pause between two looks at depth and health, default 5 s.
	Sample time.Duration
	// Mend is the pause between two searches for what a damaged queue lost track of, default 1 min.
	Mend time.Duration

	// Grace is how long attempts in flight may go on after Run's context ends, default 5 s.
	Grace time.Duration
	// Tail is how long settling may go on after that, default 2 s.
	Tail time.Duration
}

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
		name  string
	}{
		{&c.Step, time.Second, "step"},
		{&c.Lease, 30 * time.Second, "lease"},
		{&c.Poll, 100 * time.Millisecond, "poll"},
		{&c.Idle, max(time.Second, c.Poll), "idle"},
		{&c.Backoff, time.Second, "backoff"},
		{&c.Timeout, 5 * time.Second, "timeout"},
		{&c.Sample, 5 * time.Second, "sample"},
		{&c.Mend, time.Minute, "mend"},
		{&c.Grace, 5 * time.Second, "grace"},
		{&c.Tail, 2 * time.Second, "tail"},
	} {
		if *d.field < 0 {
			return c, fmt.Errorf("replay: %s %v: want more than 0", d.name, *d.field)
		}
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field       *int
		value, most int
		name        string
	}{
		{&c.InFlight, 64, 10_000, "in flight"},
		{&c.Batch, 32, MaxClaim, "batch"},
		{&c.Bytes, 16 << 20, 1 << 30, "bytes"},
	} {
		if *n.field == 0 {
			*n.field = n.value
		}
		if *n.field < 1 || *n.field > n.most {
			return c, fmt.Errorf("replay: %s %d: want 1 to %d", n.name, *n.field, n.most)
		}
	}
	if c.Route == "" || c.Owner == "" {
		return c, errors.New("replay: want a route and an owner")
	}
	return c, nil
}

// Engine replays one route's orders. Its methods may be called concurrently.
type Engine struct {
	cfg       Config
	policy    atomic.Pointer[order.Policy]
	queue     Queue
	store     Store
	attempter Attempter
	log       *slog.Logger
	metrics   *metrics

	intake  track // of pushes and probes
	claims  track // of claims and what ends them
	records track // of Postgres

	wake  chan struct{} // one slot: there may be something to claim for
	start chan struct{} // one slot: there may be a call to start

	mu     sync.Mutex // guards the fields below
	flight int        // orders claimed and not yet settled or dropped
	bytes  int        // of their entries
	line   line
	pace   pace
	ready  time.Time // when the last of what this worker queued is ready
}

// New makes an engine; it starts nothing. The error names a number out of its bounds, or a metric that reg has already.
// reg may be nil.
func New(
	cfg Config, policy order.Policy, queue Queue, store Store, attempter Attempter, log *slog.Logger, reg prometheus.Registerer,
) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(reg, cfg.Route)
	if err != nil {
		return nil, err
	}
	log = log.With(slog.String("route", cfg.Route))
	e := &Engine{
		cfg: cfg, queue: queue, store: store, attempter: attempter, log: log, metrics: m,
		intake:  track{what: "replay queue, adding", pause: cfg.Backoff, log: log},
		claims:  track{what: "replay queue, taking", pause: cfg.Backoff, log: log},
		records: track{what: "order store", pause: cfg.Backoff, log: log},
		wake:    make(chan struct{}, 1),
		start:   make(chan struct{}, 1),
		line:    line{scarce: true},
		pace:    newPace(cfg.InFlight, cfg.Step),
	}
	e.SetPolicy(policy)
	return e, nil
}

// SetPolicy changes what follows from the attempts that end from now on.
func (e *Engine) SetPolicy(policy order.Policy) { e.policy.Store(&policy) }

// Causes of the contexts that Run ends.
var (
	errGraceOver = errors.New("the replay's grace is over")
	errTailOver  = errors.New("the replay's time to settle is over")
	errLeaseLost = errors.New("the order's lease is lost")
	errReturned  = errors.New("the replay has ended")
)

// Run replays until ctx ends; then it claims nothing more, waits up to Grace for the attempts in flight, cancels what is
// left of them, and settles for up to Tail. What could not be settled by then is left to the leases. It returns nil, and
// may be called once.
func (e *Engine) Run(ctx context.Context) error {
	tail, endTail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endTail(errReturned)
	calls, endCalls := context.WithCancelCause(tail)
	defer endCalls(errReturned)

	var running sync.WaitGroup
	running.Go(func() { e.watch(ctx) })
	running.Go(func() { e.dispatch(ctx) })
	var lull time.Duration
	for ctx.Err() == nil {
		b, wait := e.take(tail, &lull)
		if b != nil {
			running.Go(func() { b.run(ctx, calls, tail) })
		}
		if wait > 0 {
			e.pause(ctx, e.wake, wait)
		}
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	if !closes(ended, e.cfg.Grace) {
		endCalls(errGraceOver)
		if !closes(ended, e.cfg.Tail) {
			endTail(errTailOver)
			e.log.WarnContext(tail, "replay: orders are left to their leases")
		}
	}
	<-ended
	return nil
}

// take claims as many entries as can be called soon, or says how long to wait before the next look. lull is how long to
// wait after a look that found nothing; 0 if the last one found something.
func (e *Engine) take(ctx context.Context, lull *time.Duration) (*batch, time.Duration) {
	if n, recovering := e.attempter.Room(); n == 0 && !recovering {
		*lull = 0 // what has gathered until it closes is not to wait
		e.mu.Lock()
		e.pace = newPace(e.ceiling(), e.cfg.Step)
		e.mu.Unlock()
		e.metrics.limit.Set(0)
		return nil, e.cfg.Poll
	}
	n, room := e.room()
	if n == 0 {
		return nil, e.cfg.Poll
	}
	if wait, err := e.records.turn(time.Now()); err != nil {
		return nil, wait
	}
	away := e.claims.failing() != nil
	if away {
		if wait, err := e.claims.turn(time.Now()); err != nil {
			return nil, wait
		}
		// A look first: a claim that was made and not heard of is gone for its lease.
		if _, err := e.Depths(ctx); err != nil {
			e.claims.note(ctx, err, time.Now())
			return nil, e.cfg.Backoff
		}
	}
	if away || *lull > 0 {
		n = 1 // most likely nothing comes of it
	}
	asked := time.Now()
	claim, err := e.claim(ctx, n, room)
	e.claims.note(ctx, err, time.Now())
	if err != nil {
		return nil, e.cfg.Backoff
	}
	if len(claim.Items) > 0 {
		*lull = 0
		return e.newBatch(claim, asked), 0
	}
	e.rest()
	*lull = e.longer(*lull, asked)
	return nil, *lull
}

// longer is the lull after another look that found nothing: a thousand idle workers must not keep Redis busy. What this
// worker queued, it finds as soon as it is ready.
func (e *Engine) longer(lull time.Duration, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Before(e.ready.Add(e.cfg.Poll)) {
		return e.cfg.Poll
	}
	return min(max(2*lull, e.cfg.Poll), e.cfg.Idle)
}

// queued notes when the entries that this worker has queued are ready.
func (e *Engine) queued(entries []Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range entries {
		if at := entries[i].NotBefore; at.After(e.ready) {
			e.ready = at
		}
	}
}

// rest forgets that Postgres was away once there is nothing left to try it with.
func (e *Engine) rest() {
	e.mu.Lock()
	nothing := e.flight == 0
	e.mu.Unlock()
	if nothing {
		e.records.forget()
	}
}

// claim asks the queue, within the time one call may take.
func (e *Engine) claim(ctx context.Context, n, room int) (Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	c, err := e.queue.Claim(ctx, e.cfg.Owner, n, room, e.cfg.Lease)
	if err != nil {
		return Claim{}, err
	}
	return c, nil
}

// room is how many orders, and how many bytes of entries, may come into flight at now.
func (e *Engine) room() (n, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pace.ceiling = e.ceiling()
	n = min(e.line.wants(min(e.pace.limit, e.pace.ceiling)), e.cfg.Batch)
	if e.flight-e.line.claimed >= unsettledMost {
		n = 0
	}
	if e.records.failing() != nil {
		n = 0
		if e.flight == e.line.claimed {
			n = 1 // to try it with, whatever waits; else the answers do
		}
	}
	bytes = e.cfg.Bytes - e.bytes
	e.metrics.limit.Set(float64(e.pace.limit))
	if n < 1 || bytes < 1 {
		return 0, 0
	}
	return n, bytes
}

// unsettledMost bounds the orders whose call has ended and that Postgres has not heard of.
const unsettledMost = 1000

// ceiling is how many calls may be in flight at most, whatever the pace.
func (e *Engine) ceiling() int {
	if e.cfg.PermitLimit == nil {
		return e.cfg.InFlight
	}
	return max(1, min(e.cfg.InFlight, e.cfg.PermitLimit()))
}

// enter counts entries into flight.
func (e *Engine) enter(n, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight += n
	e.line.claimed += n
	e.bytes += bytes
}

// leave counts one out.
func (e *Engine) leave(bytes int) {
	e.mu.Lock()
	e.flight--
	e.bytes -= bytes
	e.mu.Unlock()
	rouse(e.wake)
}

// rouse ends the pause of a loop.
func rouse(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// pause waits for d, a reason to look, or the end of ctx.
func (*Engine) pause(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// closes reports whether done closes within d.
func closes(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// watch looks at the queue's depth and health, and mends it, until ctx ends.
func (e *Engine) watch(ctx context.Context) {
	var mended time.Time
	for ctx.Err() == nil {
		e.look(ctx)
		if now := time.Now(); now.Sub(mended) >= e.cfg.Mend && e.intake.failing() == nil {
			mended = now
			e.mend(ctx)
		}
		pause := e.cfg.Sample
		if e.intake.failing() != nil {
			pause = min(pause, e.cfg.Backoff)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// look samples the depths and, in its turn, tries whether the queue takes writes.
func (e *Engine) look(ctx context.Context) {
	if _, err := e.intake.turn(time.Now()); err != nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	d, err := e.queue.Depths(bounded)
	if err == nil {
		e.metrics.saw(d)
		err = e.queue.Probe(bounded)
	}
	e.intake.note(ctx, err, time.Now())
}

func (e *Engine) mend(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	n, err := e.queue.Mend(bounded)
	if err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "replay: mending the queue ended early", slog.Any("error", err))
	}
	if n > 0 {
		e.log.WarnContext(ctx, "replay: entries without a lease came back", slog.Int("entries", n))
	}
}
