// Package permit is the pool of permits of one route: how many calls may be in flight at once, shared by three lanes.
//
// Each lane has a guaranteed share. Idle permits are lent to whoever asks, whatever its share; what makes the share a
// guarantee is the order in which released permits are handed on: first to a lane that waits below its share, then to
// whoever has waited longest. A permit is never idle while somebody waits.
//
// The limit moves while the pool is in use: [Pool.Configure] sets it, calls that end may adapt it (see [Pool.Learn]),
// [Pool.SetCap] holds it below what a fleet has to share, and the smallest counts. A limit that shrinks takes no permit
// away: it hands none out until enough have come back. One that grows serves those who wait, in their order.
//
// The guarantee is for those who wait in Acquire. TryAcquire never waits and so is never owed anything: it takes an
// idle permit or none.
package permit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"spillway/order"
)

// maxLimit bounds the permits of a route.
const maxLimit = 100_000

// Config holds the numbers of a pool.
type Config struct {
	// Limit is how many permits there are, 1 to 100000. It has no default. Where it is adapted it is where that starts.
	Limit int
	// Mode says whether the limit is adapted to the service, between Min and Max: 1 <= Min <= Limit <= Max <= 100000. In the
	// default, Fixed, the two count for nothing.
	Mode     Mode
	Min, Max int
	// Live, Replay and Compensate are the guaranteed shares of the lanes as fractions of Limit, each 0 to 1 and
	// together at most 1. All zero stands for 0.7, 0.2 and 0.1. From a limit of 3 on each lane is guaranteed at least
	// one permit; below that there are no guarantees and the lanes are served in the order they came.
	Live, Replay, Compensate float64
}

// Validate reports every field that cannot be used, with its value and what is accepted; nil when all can.
func (c Config) Validate() error {
	var errs []error
	if c.Limit < 1 || c.Limit > maxLimit {
		errs = append(errs, fmt.Errorf("permits: Limit is %d, accepted: 1 to %d", c.Limit, maxLimit))
	}
	switch c.Mode {
	case Fixed:
	case Observe, Enforce:
		if c.Min < 1 || c.Min > c.Limit {
			errs = append(errs, fmt.Errorf("permits: Min is %d, accepted: 1 to Limit %d", c.Min, c.Limit))
		}
		if c.Max < c.Limit || c.Max > maxLimit {
			errs = append(errs, fmt.Errorf("permits: Max is %d, accepted: Limit %d to %d", c.Max, c.Limit, maxLimit))
		}
	default:
		errs = append(errs, fmt.Errorf("permits: Mode is %d, accepted: Fixed, Observe or Enforce", c.Mode))
	}
	for _, f := range []struct {
		name  string
		share float64
	}{{"Live", c.Live}, {"Replay", c.Replay}, {"Compensate", c.Compensate}} {
		if math.IsNaN(f.share) || f.share < 0 || f.share > 1 {
			errs = append(errs, fmt.Errorf("permits: %s is %v, accepted: 0 to 1", f.name, f.share))
		}
	}
	// A little over 1 is how 0.7 + 0.2 + 0.1 may add up, and what three rounded percentages do.
	if sum := c.Live + c.Replay + c.Compensate; sum > 1+1e-5 {
		errs = append(errs, fmt.Errorf("permits: Live, Replay and Compensate add up to %v, accepted: at most 1", sum))
	}
	return errors.Join(errs...)
}

// guarantees returns how many of limit permits each lane is owed. They never add up to more than limit.
func (c Config) guarantees(limit int) (g [order.Lanes]int) {
	if limit < order.Lanes {
		return g
	}
	shares := [order.Lanes]float64{order.LaneLive: c.Live, order.LaneReplay: c.Replay, order.LaneCompensate: c.Compensate}
	if c.Live == 0 && c.Replay == 0 && c.Compensate == 0 {
		shares = [order.Lanes]float64{order.LaneLive: 0.7, order.LaneReplay: 0.2, order.LaneCompensate: 0.1}
	}
	sum := 0
	for lane, share := range shares {
		// The small term keeps 0.7 of 10 from being 6.999.
		g[lane] = max(1, int(math.Floor(min(max(share, 0), 1)*float64(limit)+1e-9)))
		sum += g[lane]
	}
	for ; sum > limit; sum-- { // the permits that small lanes were raised to come from the largest
		largest := 0
		for lane := range g {
			if g[lane] > g[largest] {
				largest = lane
			}
		}
		g[largest]--
	}
	return g
}

// Pool is the permits of one route. It is safe for concurrent use and starts no goroutine. A lane outside the closed
// set of order.Lane is never given a permit.
type Pool struct {
	learner

	mu        sync.Mutex // guards what follows
	cfg       Config     // its Limit is the one set or learnt last, above the cap or not
	cap       int        // below 0: none
	until     time.Time  // the end of the cap, after which it is 0; zero: there is none
	limit     int        // the one that counts
	guarantee [order.Lanes]int

	inUse   int
	lanes   [order.Lanes]lane
	waiting int
	tickets uint64
	high    int
	peak    int // since Use was asked last
}

// lane is what one lane holds and who waits in it, in the order they came.
type lane struct {
	inUse       int
	first, last *waiter
}

// waiter is one call of Acquire that waits.
type waiter struct {
	ready      chan struct{} // closed when the permit is given
	given      bool
	ticket     uint64 // its place in the order of all lanes
	prev, next *waiter
}

// NoCap is what SetCap takes for no cap.
const NoCap = -1

// New returns a pool with all permits idle and no cap. cfg must be valid; numbers out of range are brought to the nearest
// one in range, so that a pool always works.
func New(cfg Config) *Pool {
	cfg.Limit = clamp(cfg.Limit)
	p := &Pool{cap: NoCap}
	p.configure(cfg)
	return p
}

// Configure sets everything anew but the cap. Permits in use stay counted; see the package on a limit that moves. What was
// learnt is kept, within the new bounds, unless Limit or Mode changed: then it starts over from Limit. The error names
// each number out of its bounds, and then nothing has changed.
func (p *Pool) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	p.configure(cfg)
	return nil
}

func (p *Pool) configure(cfg Config) {
	p.learner.mu.Lock()
	defer p.learner.mu.Unlock()
	limit := p.learner.configure(cfg)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg, p.cfg.Limit = cfg, limit
	p.resize()
}

// SetCap sets what the limit may not exceed whatever was configured: a worker's part of what a fleet shares. 0 means that
// nobody gets a permit; below 0, such as NoCap, there is no cap.
func (p *Pool) SetCap(n int) {
	p.Lease(n, time.Time{})
}

// TryAcquire takes an idle permit if there is one. It never overtakes a waiter, because nobody waits while a permit is
// idle.
func (p *Pool) TryAcquire(l order.Lane) bool {
	if !known(l) {
		return false
	}
	p.mu.Lock()
	p.look()
	ok := p.inUse < p.limit
	if ok {
		p.take(l)
	}
	p.mu.Unlock()
	return ok
}

// Acquire takes a permit and waits for one as long as ctx lasts. Within a lane permits are given in the order of the
// calls. The error is ctx's, and then no permit is held.
func (p *Pool) Acquire(ctx context.Context, l order.Lane) error {
	if !known(l) {
		return fmt.Errorf("permits: no lane %v", l)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.look()
	if p.inUse < p.limit {
		p.take(l)
		p.mu.Unlock()
		return nil
	}
	w := p.enqueue(l)
	p.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.given { // while ctx ended: hand it on, the caller must not think it holds one
		p.giveBack(l)
	} else {
		p.remove(l, w)
	}
	return ctx.Err()
}

// Release gives a permit back; each permit taken must be released once, in the lane that took it. A release in a lane
// that holds no permit is ignored, so that it cannot lift the limit.
func (p *Pool) Release(l order.Lane) {
	if !known(l) {
		return
	}
	p.mu.Lock()
	p.giveBack(l)
	p.mu.Unlock()
}

// Keep lets the holder of a permit make another call with it, in place of giving it back and standing in line again. It
// reports false, and has given the permit back, where a waiter of another lane has the better claim or the limit has shrunk
// below what is in use. Waiters of its own lane are passed over: they get what is given back.
func (p *Pool) Keep(l order.Lane) bool {
	if !known(l) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look()
	if p.lanes[l].inUse > 0 && p.inUse <= p.limit && !p.claimed(l) {
		return true
	}
	p.giveBack(l)
	return false
}

// claimed reports whether another lane's waiter goes before a holder in lane l who asks anew: one below its guarantee does,
// and where the holder's lane has what it is owed without this permit, any who waits already. The lock is held.
func (p *Pool) claimed(l order.Lane) bool {
	owed := p.lanes[l].inUse-1 < p.guarantee[l]
	for o := range order.Lane(order.Lanes) {
		if o != l && p.lanes[o].first != nil && (!owed || p.lanes[o].inUse < p.guarantee[o]) {
			return true
		}
	}
	return false
}

// Free returns how many permits the lane can count on: those idle, and what it is owed of a busy pool once it stands in
// line (see Acquire), which is one in its turn at the least. It is 0 while the limit is.
func (p *Pool) Free(l order.Lane) int {
	if !known(l) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == 0 {
		return 0
	}
	// Idle permits are lent to any lane; a busy pool gives the lane what it is owed, one in its turn at the least, once it
	// stands in line.
	return max(0, p.limit-p.inUse, max(p.guarantee[l], 1)-p.lanes[l].inUse)
}

// InUse returns how many permits are taken: at most Limit, but for those that were taken before it shrank.
func (p *Pool) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inUse
}

// InUseLane returns how many permits a lane has taken.
func (p *Pool) InUseLane(l order.Lane) int {
	if !known(l) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lanes[l].inUse
}

// Waiting returns how many calls of Acquire wait, in all lanes.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Limit returns how many permits there are now: the limit set last, or the cap where that is lower.
func (p *Pool) Limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// Guarantee returns how many permits a lane is owed while it waits.
func (p *Pool) Guarantee(l order.Lane) int {
	if !known(l) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guarantee[l]
}

// HighWater returns the most permits that were ever taken at once.
func (p *Pool) HighWater() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.high
}

func known(l order.Lane) bool { return l >= 0 && l < order.Lanes }

func clamp(limit int) int { return min(max(limit, 1), maxLimit) }

// resize derives the limit and the guarantees, and serves those who wait where there is room now. A lease may be over by
// now, and then nobody is served. The lock is held.
func (p *Pool) resize() {
	if p.ended(time.Now()) {
		p.cap = 0
	}
	p.limit = p.cfg.Limit
	if p.cap >= 0 {
		p.limit = min(p.limit, p.cap)
	}
	p.guarantee = p.cfg.guarantees(p.limit)
	p.serve()
}

// take counts a permit; one is idle and the lock is held.
func (p *Pool) take(l order.Lane) {
	p.inUse++
	p.lanes[l].inUse++
	p.high, p.peak = max(p.high, p.inUse), max(p.peak, p.inUse)
}

// giveBack counts a permit as idle and hands it to the waiter it is owed to, unless the limit has shrunk below what is in
// use. The lock is held.
func (p *Pool) giveBack(l order.Lane) {
	if p.lanes[l].inUse == 0 {
		return
	}
	p.lanes[l].inUse--
	p.inUse--
	p.look()
	p.serve()
}

// serve hands idle permits to those who wait. The lock is held.
func (p *Pool) serve() {
	for p.waiting > 0 && p.inUse < p.limit {
		next := p.next()
		w := p.lanes[next].first
		p.remove(next, w)
		p.take(next)
		w.given = true
		close(w.ready)
	}
}

// next returns the lane that a released permit goes to: of those that wait below their guarantee the one whose waiter
// came first, else of all that wait. Somebody waits.
func (p *Pool) next() order.Lane {
	best, owed := order.Lane(-1), false
	for l := range order.Lane(order.Lanes) {
		w := p.lanes[l].first
		if w == nil {
			continue
		}
		below := p.lanes[l].inUse < p.guarantee[l]
		if best < 0 || below && !owed || below == owed && w.ticket < p.lanes[best].first.ticket {
			best, owed = l, below
		}
	}
	return best
}

// enqueue adds a waiter at the end of its lane.
func (p *Pool) enqueue(l order.Lane) *waiter {
	p.tickets++
	p.waiting++
	lane := &p.lanes[l]
	w := &waiter{ready: make(chan struct{}), ticket: p.tickets, prev: lane.last}
	if lane.last == nil {
		lane.first = w
	} else {
		lane.last.next = w
	}
	lane.last = w
	return w
}

// remove takes a waiter out of its lane, wherever it stands.
func (p *Pool) remove(l order.Lane, w *waiter) {
	p.waiting--
	lane := &p.lanes[l]
	if w.prev == nil {
		lane.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		lane.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}
