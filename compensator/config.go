package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// Config holds the numbers of a route's scanner. The zero value of each field but Route and Owner is its default.
type Config struct {
	Route string // required
	Owner string // this worker's id, unique per process start; required

	// Interval is the pause between two claims that do not come back full, default 1 s.
	Interval time.Duration
	// Batch bounds the orders of one claim, 1 to 500, default 64. Their records are in memory until they are settled.
	Batch int
	// Lease is how long a claim is ours, default 30 s, at least four LookupTimeouts.
	Lease time.Duration
	// LookupTimeout is how long a lookup takes at most, default 300 ms. It sizes claims; the deadline itself is the
	// attempter's.
	LookupTimeout time.Duration
	// Timeout bounds one call to the store or the replay queue, default 5 s.
	Timeout time.Duration
	// MaxPause bounds the growing pause while the store is away or the breaker refuses, default 30 s.
	MaxPause time.Duration
	// Grace is what Run may take after its context has ended, default 5 s: three quarters of it for lookups under way,
	// the rest to settle them.
	Grace time.Duration
}

// maxBatch bounds Config.Batch: what a store takes in one call.
const maxBatch = 500

// Store is the record of orders. Its methods are called by one goroutine at a time, each with a deadline.
type Store interface {
	// ClaimDue takes at most n PROCESSING orders of the route that are due, those due longest first, and leases them to
	// owner: version+1, due one lease from now. An IN_FLIGHT one becomes UNKNOWN; a lookup is counted for what is UNKNOWN
	// then. No two callers get the same order.
	ClaimDue(ctx context.Context, route, owner string, lease time.Duration, n int) ([]order.Order, error)
	// Settle applies transitions where the row still is PROCESSING at the version it was claimed with. The answer has the
	// order and length of ss. A settlement marked Straight needs no history row.
	Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error)
	// Renew makes leases end one lease from now, whatever the phase of their rows; versions stay.
	Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error)
}

// Pacer is the rate limit of lookups.
type Pacer interface {
	// Pace takes the right to make one lookup at now and returns 0, or takes nothing and says when asking again makes
	// sense: more than 0, at most a second. It never blocks. Lookups count against no tenant.
	Pace(now time.Time, lane order.Lane, tenant string) time.Duration
	// Unpace gives back a right that was not used.
	Unpace(lane order.Lane, tenant string)
}

// Attempter makes lookups under the route's rate limit, permits and breaker.
type Attempter interface {
	Pacer
	// Free is how many permits the lane could have now.
	Free(lane order.Lane) int
	// Acquire waits for a permit until ctx ends.
	Acquire(ctx context.Context, lane order.Lane) error
	// Lookup gives the permit back. It returns soon after ctx ends.
	Lookup(ctx context.Context, lane order.Lane, o *order.Order) order.Finding
	// LookupRoom is how many lookups the breaker would let begin now, and whether it is recovering: then none means none
	// for the moment.
	LookupRoom() (n int, recovering bool)
}

// Replay is the replay queue.
type Replay interface {
	// Push is idempotent by order while the order is queued. order.ErrQueueFull says that there is no room.
	Push(ctx context.Context, spilled []order.Spilled) error
	// Has says for each order whether it is queued.
	Has(ctx context.Context, ids []int64) ([]bool, error)
}

// Scanner is the compensator of one route in one worker. Any number of workers may scan a route.
type Scanner struct {
	cfg     Config
	policy  atomic.Pointer[order.Policy]
	store   Store
	calls   Attempter
	queue   Replay
	log     *slog.Logger
	metrics *metrics

	records service // the store's health
	replays service // the replay queue's
}

// New makes a scanner. reg may be nil. It starts nothing; Run may be called once.
func New(cfg Config, policy order.Policy, store Store, calls Attempter, queue Replay, log *slog.Logger, reg prometheus.Registerer) (*Scanner, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("compensator of route %q: %w", cfg.Route, err)
	}
	m, err := newMetrics(reg, cfg.Route)
	if err != nil {
		return nil, err
	}
	s := &Scanner{
		cfg: cfg, store: store, calls: calls, queue: queue, log: log, metrics: m,
		records: service{name: "postgres", log: log, failures: m.failures.WithLabelValues("postgres")},
		replays: service{name: "redis", log: log, failures: m.failures.WithLabelValues("redis")},
	}
	s.SetPolicy(policy)
	return s, nil
}

// SetPolicy changes what follows from the lookups that end from now on. It is safe for concurrent use.
func (s *Scanner) SetPolicy(policy order.Policy) { s.policy.Store(&policy) }

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{
		{&c.Interval, time.Second},
		{&c.Lease, 30 * time.Second},
		{&c.LookupTimeout, 300 * time.Millisecond},
		{&c.Timeout, 5 * time.Second},
		{&c.MaxPause, 30 * time.Second},
		{&c.Grace, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.is
		}
	}
	if c.Batch == 0 {
		c.Batch = 64
	}
	c.MaxPause = max(c.MaxPause, c.Interval)
	return c
}

func (c Config) check() error {
	switch {
	case c.Route == "":
		return errors.New("no route")
	case c.Owner == "":
		return errors.New("no owner")
	case c.Batch < 1 || c.Batch > maxBatch:
		return fmt.Errorf("batch %d: want 1 to %d", c.Batch, maxBatch)
	case c.Interval < 0 || c.LookupTimeout < 0 || c.Timeout < 0 || c.MaxPause < 0 || c.Grace < 0:
		return errors.New("a duration is negative")
	case c.Lease < 4*c.LookupTimeout:
		return fmt.Errorf("lease %v: want at least four lookup timeouts of %v", c.Lease, c.LookupTimeout)
	}
	return nil
}
