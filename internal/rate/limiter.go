package rate

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"spillway/order"
)

// Bounds of a Config.
const (
	MaxRate    = 1e6 // per second
	MaxTenants = 100_000
)

// Config holds the limits of a route in one worker, each in submits (lookups) begun per second, 0 to MaxRate; 0 is no limit.
type Config struct {
	Limit      float64 // of all submits of this worker
	Burst      int     // submits at once after a pause, 1 to 1e6; 0: a tenth of a second's worth, at least 1
	Replay     float64 // of replayed orders, beside Limit
	Compensate float64 // of lookups

	// LiveShare and ReplayShare weigh the two lanes where both wait for Limit. Both zero: 0.7 and 0.2.
	LiveShare, ReplayShare float64

	Tenant  float64 // of each tenant
	Tenants int     // tenants told apart, 1 to MaxTenants; the rest are one; 0: 1000

	// Shared says that Limit is bounded further by a share of what the fleet may submit; see Limiter.SetShare. Until the
	// first share came, nothing is let through.
	Shared bool
}

// Validate reports every field that cannot be used, with its value and what is accepted; nil when all can.
func (c Config) Validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"Limit", c.Limit, MaxRate},
		{"Replay", c.Replay, MaxRate},
		{"Compensate", c.Compensate, MaxRate},
		{"Tenant", c.Tenant, MaxRate},
		{"LiveShare", c.LiveShare, 1},
		{"ReplayShare", c.ReplayShare, 1},
		{"Burst", float64(c.Burst), MaxRate},
		{"Tenants", float64(c.Tenants), MaxTenants},
	} {
		if math.IsNaN(f.value) || f.value < 0 || f.value > f.most {
			errs = append(errs, fmt.Errorf("rate: %s is %v, accepted: 0 to %v", f.name, f.value, f.most))
		}
	}
	return errors.Join(errs...)
}

// Kind is which limit refused.
type Kind int

// Kinds of limits.
const (
	OfRoute  Kind = iota // the worker's own
	OfFleet              // its share of the fleet's
	OfLane               // the replay queue's, or that of lookups
	OfTenant             // the tenant's
	Kinds    = 4
)

func (k Kind) String() string {
	switch k {
	case OfRoute:
		return "route"
	case OfFleet:
		return "fleet"
	case OfLane:
		return "lane"
	case OfTenant:
		return "tenant"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// turnGrace is how much longer than it was told to wait a lane keeps its turn.
const turnGrace = 20 * time.Millisecond

// turn is a lane's place in the sharing of the route's tokens: start-time fair queueing, with asking again in place of a
// queue. A lane that was refused is owed the next token if it has had less for its weight, for as long as it was told to
// wait and a little longer.
type turn struct {
	weight float64
	had    float64   // tokens taken ÷ weight, counted on from the common level whenever the lane comes back
	until  time.Time // it was refused and is expected back by then
}

// Limiter is the limits of one route in one worker. It is safe for concurrent use and starts no goroutine.
type Limiter struct {
	mu    sync.Mutex // guards what follows
	cfg   Config
	share float64 // per second, of the fleet's

	route, replay, lookups bucket
	turns                  [2]turn // live, replay
	level                  float64 // had of the lane served last, before it was served
	tenants                tenants

	waits [order.Lanes][Kinds]uint64
	taken uint64 // of the route, since Demand was asked
	short bool   // the fleet's share was what refused, since then
}

// New returns a limiter with full buckets, but for the one that waits for its share. cfg must be valid.
func New(cfg Config, now time.Time) *Limiter {
	l := &Limiter{}
	l.Configure(cfg, now)
	return l
}

// Configure sets the limits anew from now on. Tokens that are there stay, up to what the new limits hold.
func (l *Limiter) Configure(cfg Config, now time.Time) {
	if cfg.LiveShare <= 0 && cfg.ReplayShare <= 0 {
		cfg.LiveShare, cfg.ReplayShare = 0.7, 0.2
	}
	if cfg.Tenants <= 0 {
		cfg.Tenants = 1000
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	// A lane without a share is served when the other leaves something, and now and then.
	l.turns[0].weight, l.turns[1].weight = max(cfg.LiveShare, 0.01), max(cfg.ReplayShare, 0.01)
	l.setRoute(now)
	l.replay.set(now, cfg.Replay > 0, cfg.Replay, burst(cfg.Replay), burst(cfg.Replay))
	l.lookups.set(now, cfg.Compensate > 0, cfg.Compensate, burst(cfg.Compensate), burst(cfg.Compensate))
	l.tenants.configure(now, cfg.Tenant, cfg.Tenants)
}

// SetShare sets the worker's part of the fleet's rate, per second, from now on; 0 or less lets nothing through. It has no
// effect unless Config.Shared is set.
func (l *Limiter) SetShare(perSecond float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share = max(perSecond, 0)
	l.setRoute(now)
}

// setRoute derives the route's bucket. The lock is held.
func (l *Limiter) setRoute(now time.Time) {
	limit := l.cfg.Limit
	if l.fleet() {
		limit = l.share
	}
	most := burst(limit)
	if l.cfg.Burst > 0 && !l.fleet() {
		most = float64(l.cfg.Burst)
	} else if l.cfg.Burst > 0 {
		most = min(most, float64(l.cfg.Burst))
	}
	start := most
	if l.cfg.Shared {
		start = 0 // workers that come and go must not each bring a burst of their own
	}
	l.route.set(now, l.cfg.Limit > 0 || l.cfg.Shared, limit, most, start)
}

// fleet reports whether the share of the fleet's rate is what counts.
func (l *Limiter) fleet() bool {
	return l.cfg.Shared && (l.cfg.Limit <= 0 || l.share < l.cfg.Limit)
}

// Pace takes the right to make one submit, or in the lane compensate one lookup, at now, and returns 0. Where a limit has
// no token left it takes nothing and returns how long until asking again makes sense: more than 0, at most a second. In
// the lane replay the tenant's limit is left out; see PaceTenant.
func (l *Limiter) Pace(now time.Time, lane order.Lane, tenant string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch lane {
	case order.LaneCompensate:
		return l.one(now, &l.lookups, lane, OfLane)
	case order.LaneLive:
		wait, _ := l.live(now, tenant)
		return wait
	case order.LaneReplay:
		l.replay.fill(now)
		if wait := l.replay.lacks(1); wait > 0 {
			l.waits[lane][OfLane]++
			return wait
		}
		wait := l.submit(now, lane)
		if wait == 0 {
			l.replay.take()
		}
		return wait
	}
	return longestWait
}

// PaceLive is Pace in the lane live. It also tells whether it is the tenant's own limit that has no token left, so that
// others need not wait.
func (l *Limiter) PaceLive(now time.Time, tenant string) (wait time.Duration, ofTenant bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live(now, tenant)
}

// live is PaceLive with the lock held.
func (l *Limiter) live(now time.Time, tenant string) (wait time.Duration, ofTenant bool) {
	b := l.tenants.of(now, tenant)
	if b == nil {
		return l.submit(now, order.LaneLive), false
	}
	if wait = b.lacks(1); wait > 0 {
		l.waits[order.LaneLive][OfTenant]++
		return wait, true
	}
	if wait = l.submit(now, order.LaneLive); wait == 0 {
		b.take()
	}
	return wait, false
}

// PaceTenant takes the right from the tenant's limit alone, in the same way.
func (l *Limiter) PaceTenant(now time.Time, tenant string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.tenants.of(now, tenant)
	if b == nil {
		return 0
	}
	return l.one(now, b, order.LaneReplay, OfTenant)
}

// Unpace gives back what Pace took and nobody used.
func (l *Limiter) Unpace(lane order.Lane, tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch lane {
	case order.LaneCompensate:
		l.lookups.put()
		return
	case order.LaneLive:
		if b := l.tenants.known(tenant); b != nil {
			b.put()
		}
	case order.LaneReplay:
		l.replay.put()
	default:
		return
	}
	if l.route.on {
		l.route.put()
		l.turns[lane].had -= 1 / l.turns[lane].weight
		l.taken -= min(l.taken, 1)
	}
}

// Demand returns what the fleet's share is measured by: the submits let through since it was asked last, and whether more
// would have come but for the share.
func (l *Limiter) Demand() (taken int, short bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, short = int(l.taken), l.short //nolint:gosec // far below the largest int
	l.taken, l.short = 0, false
	return taken, short
}

// Stats is what a limiter shows of itself.
type Stats struct {
	Waits    [order.Lanes][Kinds]uint64 // refusals
	Tenants  int                        // told apart now
	Overflow uint64                     // orders counted against the one limit of all tenants there was no room for
	Share    float64                    // of the fleet's rate, per second
}

// Stats reads the limiter. It is safe for concurrent use.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Waits: l.waits, Tenants: len(l.tenants.index), Overflow: l.tenants.overflow, Share: l.share}
}

// one takes a token from one bucket alone. The lock is held.
func (l *Limiter) one(now time.Time, b *bucket, lane order.Lane, kind Kind) time.Duration {
	b.fill(now)
	wait := b.lacks(1)
	if wait > 0 {
		l.waits[lane][kind]++
		return wait
	}
	b.take()
	return 0
}

// submit takes a token of the route in the lane's turn. The lock is held.
func (l *Limiter) submit(now time.Time, lane order.Lane) time.Duration {
	if !l.route.on {
		return 0
	}
	own, other := &l.turns[lane], &l.turns[order.LaneReplay-lane]
	if !now.Before(own.until) {
		own.had = max(own.had, l.level) // it was away, and is owed nothing for that
	}
	need := 1.0
	if now.Before(other.until) && other.had < own.had {
		need = 2 // the next one is the other's
	}
	l.route.fill(now)
	if wait := l.route.lacks(need); wait > 0 {
		own.until = now.Add(wait + turnGrace)
		kind := OfRoute
		if l.fleet() {
			kind, l.short = OfFleet, true
		}
		l.waits[lane][kind]++
		return wait
	}
	own.until = time.Time{}
	l.level = own.had
	own.had += 1 / own.weight
	l.route.take()
	l.taken++
	return 0
}
