package consumer

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// Store is the record of orders. Its methods are called concurrently and are bounded in time by the store itself.
type Store interface {
	// Admit makes rows of records, leased to owner with the first attempt counted. The answer has the order and
	// length of as.
	Admit(ctx context.Context, route, owner string, lease time.Duration, as []order.Admission) ([]order.Admitted, error)
	// Settle applies transitions; the answer has the order and length of ss.
	Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error)
	// Renew lengthens leases; false means that the lease is lost.
	Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error)
	// Bury writes dead letters of records that can't become orders. It may be called again with the same ones.
	Bury(ctx context.Context, ds []order.DeadRecord) error
}

// Pacer is the route's rate limits.
type Pacer interface {
	// PaceLive takes the right to make one submit of the live lane at now and returns 0. Where a limit has none left it takes
	// nothing and says when asking again makes sense: more than 0, at most a second. ofTenant tells that it is the tenant's
	// own limit: others need not wait. It never blocks.
	PaceLive(now time.Time, tenant string) (wait time.Duration, ofTenant bool)
}

// Permits is the route's permit pool.
type Permits interface {
	TryAcquire(lane order.Lane) bool
	Acquire(ctx context.Context, lane order.Lane) error
	Release(lane order.Lane)
	// Keep reports whether the holder of a permit may make another call with it; if not, it was given back to whoever
	// has the better claim.
	Keep(lane order.Lane) bool
}

// Attempter makes attempts under the route's rate limits, permits and breaker.
type Attempter interface {
	Pacer
	Permits
	// Submit makes one attempt with a permit the caller holds, and goes on holding.
	Submit(ctx context.Context, lane order.Lane, o *order.Order) order.Answer
	// Room is how many attempts the breaker would let begin now, and whether it is recovering: then none means none for
	// the moment. It is asked for routes that hold.
	Room() (n int, recovering bool)
}

// Replay is where spilled orders go. Push takes all of them or none.
type Replay interface {
	Push(ctx context.Context, ss []order.Spilled) error
}

// Config is the numbers of a lane. Zero values are the defaults.
type Config struct {
	Route      string
	Owner      string // this worker's id, unique per start
	Number     Number
	Tenant     Tenant // who takes turns, and whose rate an order counts against; the zero value: nobody
	Tombstones Tombstones
	Policy     order.Policy
	Limits     Limits
	Ordering   Ordering
	// PermitLimit, where set, says how many permits there are now, instead of Limits.Permits: the limit may move. It is
	// called often, with locks held, and must return at once.
	PermitLimit func() int

	PermitWait  time.Duration // without a permit for this long, the partitions pause; default 20 ms
	Lease       time.Duration // of an order's row; default 30 s
	RetryBudget float64       // retries of NOT_SENT for each first attempt, 0 to 1; 0: none
	RetryDelay  time.Duration // before such a retry; a fifth is added at random

	// An attempt that has not returned by Overdue ignores its context: the generation ends. So it does when for Stuck nothing
	// begins or is written though something waits and nothing explains it. Defaults: CallBudget, 1 min.
	Overdue, Stuck time.Duration

	CallBudget time.Duration // the longest a call may take: an order whose lease has less left is not sent
	Drain      time.Duration // from the end of a generation to the last commit; default 5 s
	Commit     time.Duration // between commits; default 500 ms

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Trace, where set, is told of each step of a record's way as it ends; tests kill the worker there.
	Trace func(step Step, number string)
}

// Tombstones says what becomes of a record whose value is null.
type Tombstones int

// What becomes of tombstones.
const (
	BuryTombstones Tombstones = iota // a dead letter
	SkipTombstones                   // counted, and that is all
)

// Step names a stop of a record's way, for Config.Trace.
type Step string

// The steps.
const (
	StepFetched  Step = "fetched"
	StepAdmitted Step = "admitted"
	StepSent     Step = "sent" // the downstream has answered, or will never; nothing is written yet
	StepSettled  Step = "settled"
	StepPushed   Step = "pushed"
	StepCommit   Step = "commit" // about to commit
)

const (
	batchRecords = 500     // the knee of batched statements: a thousand adds nothing beyond noise
	batchBytes   = 4 << 20 // and at most this much payload in one
	admitters    = 2
	maxRecord    = 20 << 20 // bytes: what an item of the replay queue can hold
	maxOpen      = 100_000  // records of a partition behind an open one: beyond it the partition is left out
	leastAside   = 64       // records that may wait for their chain in each partition, however many there are
	settlers     = 2
	settleMost   = 4 * batchRecords // outcomes that wait to be written: beyond it nothing is admitted
	gatherFor    = 20 * time.Millisecond
	gatherMost   = batchRecords / 2 // outcomes in line that do not wait for more
	retryFirst   = 50 * time.Millisecond
	retryMax     = time.Second
	watchHolds   = 50 * time.Millisecond // how often a hold without an event of its own is looked at again
)

// Lane is the live lane of one route: partitions → attempts → offsets. Run it once.
type Lane struct {
	cfg     Config
	group   Group
	store   Store
	attempt Attempter
	replay  Replay
	m       *metrics
	now     atomic.Pointer[generation]   // the generation being served, nil between two
	wait    atomic.Int64                 // Config.PermitWait, which may change
	policy  atomic.Pointer[order.Policy] // Config.Policy, which may change but for its Degrade
	retries *retryBudget
	stopped <-chan struct{} // closed when the worker itself stops, and not only a generation; Run sets it

	mu       sync.Mutex // guards what follows; taken before a generation's
	limits   Limits
	past     past
	stranded map[*work]struct{} // see strand
}

// past is what is kept of the generations that are over.
type past struct {
	pauses  uint64
	bound   map[Constraint]time.Duration
	learned Learned
}

// with is the past with what one generation adds to it.
func (p past) with(pauses uint64, bound map[Constraint]time.Duration) past {
	sums := maps.Clone(p.bound)
	if sums == nil {
		sums = make(map[Constraint]time.Duration)
	}
	for c, d := range bound {
		sums[c] += d
	}
	return past{p.pauses + pauses, sums, p.learned}
}

// New makes a lane. It starts nothing.
func New(cfg Config, group Group, store Store, attempt Attempter, replay Replay) *Lane {
	setDefault(&cfg.PermitWait, defaultPermitWait)
	setDefault(&cfg.Lease, 30*time.Second)
	setDefault(&cfg.CallBudget, time.Second)
	setDefault(&cfg.Overdue, cfg.CallBudget)
	setDefault(&cfg.Stuck, time.Minute)
	setDefault(&cfg.Drain, 5*time.Second)
	setDefault(&cfg.Commit, 500*time.Millisecond)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Trace == nil {
		cfg.Trace = func(Step, string) {}
	}
	l := &Lane{
		retries: newRetryBudget(cfg.RetryBudget), stranded: map[*work]struct{}{},
		cfg: cfg, group: group, store: store, attempt: attempt, replay: replay,
		limits: cfg.Limits,
	}
	l.wait.Store(int64(cfg.PermitWait))
	l.SetPolicy(cfg.Policy)
	l.m = newMetrics(cfg.Route, cfg.Registerer, l.Level)
	return l
}

// SetPermitWait changes Config.PermitWait, for the wait under way too; 0 or less is the default. It may be called at any
// time.
func (l *Lane) SetPermitWait(d time.Duration) {
	setDefault(&d, defaultPermitWait)
	l.wait.Store(int64(d))
	if g := l.now.Load(); g != nil {
		g.rewait()
	}
}

// SetPolicy changes what follows from the attempts that end from now on. What an open breaker means, Degrade, stays as
// Config.Policy has it. It may be called at any time.
func (l *Lane) SetPolicy(policy order.Policy) {
	policy.Degrade = l.cfg.Policy.Degrade
	l.policy.Store(&policy)
}

// permitWait is [Config.PermitWait] as it is now.
func (l *Lane) permitWait() time.Duration { return time.Duration(l.wait.Load()) }

const defaultPermitWait = 20 * time.Millisecond

func setDefault(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// Run is a member of the group until ctx ends; then it drains within Config.Drain, commits and leaves. It returns nil
// after a clean leave.
func (l *Lane) Run(ctx context.Context) error {
	l.stopped = ctx.Done()
	return l.group.Run(ctx, l.serve)
}

// serve works one generation, from its first fetch to its last commit.
func (l *Lane) serve(taking context.Context, s Session) error {
	l.mu.Lock()
	g := newGeneration(l, s, l.limits, l.past.learned)
	g.occupy()
	l.now.Store(g)
	l.mu.Unlock()
	defer l.leave(g)
	return g.run(taking)
}

// leave takes what is to be kept of a generation that is over.
func (l *Lane) leave(g *generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	l.past = l.past.with(g.gate.Pauses(), g.gate.Bound(time.Now()))
	l.past.learned = g.gate.Learned
	l.now.Store(nil)
}

// SetLimits changes what may be read ahead and how many tenants take turns, now and in the generations to come:
// Config.Limits as New would take them. Records that are held or granted above the new limits stay; nothing more is fetched
// until they are fewer. It is safe for concurrent use.
func (l *Lane) SetLimits(limits Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limits = limits
	if g := l.now.Load(); g != nil {
		g.setLimits(limits)
	}
}

// Status is what a lane shows of itself.
type Status struct {
	Level

	Generation int32
	Assigned   int
	Paused     int
	Holds      []HoldReason
	Constraint Constraint
	Target     int64 // bytes that should wait for permits
	InFlight   int   // attempts
	Lag        int64 // records between the fetch position and the log's end, plus those not settled yet
	Pauses     uint64
	Head       Head // the record that has held back a partition's offset for longest; zero where none does
	// Bound is for how long each constraint has bound, over all generations and one at a time. Time without partitions
	// is in none of them.
	Bound map[Constraint]time.Duration
	// Imbalance is how many records taken from Kafka are in no place they can be in: not settled, not dropped with their
	// partition, not waiting, not in flight. Anything but zero is a bug.
	Imbalance int
}

// Level reads the lane's status. It is safe for concurrent use.
func (l *Lane) Level() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{Constraint: ConstraintNone}
	if g := l.now.Load(); g != nil {
		s = g.status(time.Now())
	}
	sum := l.past.with(s.Pauses, s.Bound)
	s.Pauses, s.Bound = sum.pauses, sum.bound
	return s
}
