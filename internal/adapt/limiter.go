package adapt

import (
	"math"
	"time"
)

// Kind is what one call says of the service's room for more.
type Kind int

// The kinds of calls.
const (
	Ignored  Kind = iota // nothing: refused by us, cancelled, failed for a reason of its own
	Answered             // its latency counts
	Dropped              // the service said it has too much, or did not answer in time
)

// Config bounds a limit. Start is where it begins. What does not fit is brought to the nearest that does: Min to at least 1,
// Max to at least Min, Start between the two.
type Config struct{ Min, Max, Start int }

func (c Config) sane() Config {
	c.Min = max(c.Min, 1)
	c.Max = max(c.Max, c.Min)
	c.Start = min(max(c.Start, c.Min), c.Max)
	return c
}

// What the limit is steered to.
const (
	elasticity = 0.85 // of the latency in the concurrency
	slowdown   = 3    // of the latency against the unloaded one
	reach      = 0.2  // how far above the base a trial goes; at the ceiling, how far below
	lowPart    = 4    // a low window holds the base divided by this
)

// How it gets there. Steps are of the base's logarithm.
const (
	stepMost  = 0.35 // up, and down for the elasticity: 1.42 times, 0.70 times
	slowMost  = 0.7  // down for the slowdown, which was measured just before: 0.50 times
	slowShare = 0.7  // of the whole way to the slowdown, in one step
	gainMost  = 0.2  // of what is missing in elasticity, in one step
	steeper   = 2    // times as much when the limit is too high: the elasticity is at most 1 there, so little above its goal
	drift     = 0.05 // of the knee, from one window to the next, that a first pair of windows is believed to show
	runMost   = 8    // times its square at most, for as many pairs in a row that point the same way
	surprise  = 3    // standard errors from what was expected that stand for a new state of the service
	calm      = 0.03 // variance of a pair's elasticity that lets it count by half
	wildLow   = -3   // an elasticity below it, or above wildHigh, is none: the service changed between the windows
	wildHigh  = 5
)

// How the unloaded latency is kept.
const (
	idleAge     = 5 * time.Second // until it is measured again, once the latency is slower by idleMatters
	idleAgeSlow = 2 * time.Second // and once it is slower than it may be
	idleMatters = 1.5
	idleRise    = 1.05 // how it rises each time where it can't be measured: the limit is too near Min, or not in force
	idleNew     = 0.3  // in its logarithm: a measurement further off replaces it, a nearer one counts by half
	jump        = 1.4  // between two windows at the base, that makes it doubtful
)

// What drops do.
const (
	dropNoise           = 0.02 // share of a window's calls that says nothing
	dropFew             = 3    // and so do fewer than these, unless they are most
	dropLeast, dropMost = 0.1, 0.3
	dropPause           = time.Second     // between two shrinks
	dropQuiet           = 8 * time.Second // longest time without trials after one
)

// Limiter is the limit. It has no clock, no goroutine and no lock: it learns from calls that end, in any order, and is
// not safe for concurrent use. Make it with New.
type Limiter struct {
	cfg  Config
	base float64 // the limit that was learnt

	now, last window // under way, and before it
	full      window // the last one at the base that is over

	missing float64 // elasticity, smoothed
	spread  float64 // variance of the base's logarithm against the knee's, as far as elasticities tell
	run     int     // pairs in a row that point the same way
	rising  bool    // which

	idle   float64   // latency of the unloaded service, in seconds; 0: not known
	idleAt time.Time // when it was measured

	droppedAt time.Time // when drops shrank the base
	quiet     time.Duration
}

// New makes a limiter that stands at cfg.Start.
func New(cfg Config) *Limiter {
	cfg = cfg.sane()
	return &Limiter{cfg: cfg, base: float64(cfg.Start), spread: 1, now: window{limit: cfg.Start}}
}

// Configure sets the bounds anew and keeps what was learnt, so that Start counts for nothing.
func (l *Limiter) Configure(cfg Config) {
	l.cfg = cfg.sane()
	l.base = l.bound(l.base)
	l.now.limit = min(max(l.now.limit, l.cfg.Min), l.cfg.Max)
}

// Limit is what should be in force now, Min to Max: the base, or what the window under way is for.
func (l *Limiter) Limit() int { return l.now.limit }

// Base is the limit that was learnt, Min to Max, without what is being tried.
func (l *Limiter) Base() int { return int(math.Round(l.base)) }

// Note takes in a call that began and ended then, with inFlight calls in flight as it ended, itself included. It returns
// what should be in force from now on. It allocates nothing.
func (l *Limiter) Note(began, ended time.Time, inFlight int, kind Kind) int {
	if l.now.begun.IsZero() {
		l.now.begun, l.now.counts = began, ended // what fills the service up does not count
	}
	if began.Before(l.now.begun) {
		l.last.add(began, ended, inFlight, kind)
	} else {
		l.now.add(began, ended, inFlight, kind)
	}
	if l.now.over(ended) {
		l.turn(ended)
	}
	return l.now.limit
}

// turn ends the window under way, learns, and begins the next.
func (l *Limiter) turn(now time.Time) {
	if l.last.enough() && l.last.part == atBase {
		if l.full.enough() && l.last.meanLatency() > jump*l.full.meanLatency() {
			l.idleAt = time.Time{} // the service itself may have become slower
		}
		l.full = l.last
	}
	if !l.drop(now) && l.last.enough() && l.now.enough() {
		l.learn(now)
	}
	l.last = l.now
	l.now = window{part: l.next(now), begun: now, counts: now.Add(l.last.trip())}
	base := int(math.Round(l.base))
	switch l.now.part {
	case atBase:
		l.now.limit = base
	case trial:
		l.now.limit = min(max(int(math.Round(l.base*(1+reach))), base+1), l.cfg.Max)
		if l.atCeiling() {
			l.now.limit = int(math.Round(l.bound(l.base / (1 + reach))))
		}
	case low:
		l.now.limit = l.lowest()
	}
}

func (l *Limiter) bound(v float64) float64 {
	return min(max(v, float64(l.cfg.Min)), float64(l.cfg.Max))
}

// lowest is what a low window holds.
func (l *Limiter) lowest() int { return int(math.Round(l.bound(l.base / lowPart))) }

// next is what the next window is for.
func (l *Limiter) next(now time.Time) part {
	switch {
	case l.last.part == low, !l.droppedAt.IsZero() && now.Sub(l.droppedAt) < l.quiet:
		return atBase
	case l.lowDue(now):
		return low
	case l.last.part == atBase && l.worthTrying():
		return trial
	}
	return atBase
}

// atCeiling reports whether there is no room for a trial above the base: it goes below it then.
func (l *Limiter) atCeiling() bool { return l.base*(1+reach/2) > float64(l.cfg.Max) }

// worthTrying reports whether a trial could show anything: not where the latency is too long anyhow, nor at the ceiling
// while the service is fast, where a trial would cost and at most confirm.
func (l *Limiter) worthTrying() bool {
	ratio := l.ratio()
	return ratio < slowdown*(1+reach) && !(l.atCeiling() && ratio < 1+reach && l.idle > 0)
}

// lowDue reports whether the unloaded latency must be measured.
func (l *Limiter) lowDue(now time.Time) bool {
	if !l.last.enough() || !l.last.busy() || 2*l.lowest() > l.last.limit {
		return false
	}
	if l.idle == 0 {
		return true
	}
	age, ratio := now.Sub(l.idleAt), l.ratio()
	return ratio > idleMatters && age > idleAge || ratio > slowdown && age > idleAgeSlow
}

// ratio is the last latency against the unloaded one; 0 while that is not known.
func (l *Limiter) ratio() float64 {
	if l.idle == 0 {
		return 0
	}
	return l.last.meanLatency() / l.idle
}

// drop shrinks the base where the service dropped calls, and reports whether it did drop some.
func (l *Limiter) drop(now time.Time) bool {
	share := l.now.dropShare()
	if share <= dropNoise || l.now.drops < dropFew && share <= 0.5 {
		if l.now.part == trial {
			l.quiet = 0
		}
		return false
	}
	if l.droppedAt.IsZero() || now.Sub(l.droppedAt) >= dropPause {
		l.base = l.bound(l.base * (1 - min(max(share, dropLeast), dropMost)))
		l.quiet = min(max(2*l.quiet, dropPause), dropQuiet)
		l.droppedAt = now
	}
	return true
}

// learn takes what the window that ends and the one before it have shown.
func (l *Limiter) learn(now time.Time) {
	switch {
	case l.last.part == low:
		l.learnIdle(now)
		if l.now.meanLatency() < l.full.meanLatency() {
			l.full = l.now // what was slow before is over
		}
		l.base = l.bound(l.base * math.Exp(min(l.towardsSlowdown(now), 0)))
		return
	case l.now.part == low: // its slowest calls are to come
		return
	}
	if l.idle > 0 {
		l.idle = min(l.idle, l.last.meanLatency())
	}
	if !l.last.busy() || !l.now.busy() {
		return // it is not the limit that holds calls back: nothing is known of it
	}
	step := l.towardsSlowdown(now)
	e, apart, variance := slope(&l.last, &l.now)
	switch {
	case apart < reach/4: // nothing was tried, or it was not in force
		step = min(step, 0)
	case e < wildLow || e > wildHigh:
		return
	default:
		step = min(step, l.towardsElasticity(e, variance))
	}
	l.base = l.bound(l.base * math.Exp(step))
}

// towardsElasticity is the step that a pair of windows asks for: a Kalman filter's, which follows a knee that may drift and
// trusts each pair as far as the scatter of its latencies lets it.
func (l *Limiter) towardsElasticity(e, variance float64) float64 {
	missing := elasticity - min(max(e, -0.3), 1.6)
	if rising := missing > 0; rising == l.rising {
		l.run = min(l.run+1, runMost)
	} else {
		l.run, l.rising = 1, rising
	}
	l.spread += drift * drift * float64(l.run)
	if missing*missing > surprise*surprise*(l.spread+variance) {
		l.spread = 1
	}
	share := min(l.spread/(l.spread+variance), gainMost)
	l.spread *= 1 - share
	l.missing += (missing - l.missing) * calm / (calm + variance)
	if missing = l.missing; missing < 0 {
		missing *= steeper
	}
	return min(max(missing*share, -stepMost), stepMost)
}

// towardsSlowdown is the step that brings the latency to what it may be against the unloaded one: slowShare of the way for
// a latency that rises like the concurrency; one that rises twice as fast is overshot by less than half, and comes back.
func (l *Limiter) towardsSlowdown(now time.Time) float64 {
	if l.idle == 0 || !l.full.enough() {
		return stepMost
	}
	step := math.Log(l.full.meanInFlight()/l.base) + slowShare*math.Log(slowdown*l.idle/l.full.meanLatency())
	if step < 0 && now.Sub(l.idleAt) > max(2*idleAgeSlow, 16*l.full.trip()) {
		return 0 // it must be measured first: maybe it is the service that became slower
	}
	return min(max(step, -slowMost), stepMost)
}

// learnIdle reads the unloaded latency from the last window at the base and the low one after it: where the line through
// both meets no load.
func (l *Limiter) learnIdle(now time.Time) {
	l.idleAt = now
	few, n, m := l.last.meanLatency(), l.full.meanInFlight(), l.last.meanInFlight()
	if m > n/2 {
		if l.idle *= idleRise; l.idle == 0 || l.idle > few {
			l.idle = few
		}
		return
	}
	idle := min(max(few-(l.full.meanLatency()-few)*m/(n-m), few/2), few)
	if l.idle == 0 || math.Abs(math.Log(idle/l.idle)) > idleNew {
		l.idle = idle
	} else {
		l.idle = (l.idle + idle) / 2
	}
}
