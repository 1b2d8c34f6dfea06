package consumer

import (
	"maps"
	"time"
)

// Constraint is what limits a route. The set is closed.
type Constraint string

// The constraints, the one that goes before the others first. A constraint that is met hides those behind it: while
// the store is away it does not matter that permits are short too.
const (
	ConstraintStore      Constraint = "store"       // Postgres or the replay queue's Redis is away
	ConstraintReplayFull Constraint = "replay_full" // the replay queue is at its bound
	ConstraintBreaker    Constraint = "breaker"     // the breaker is open and the degrade rule is hold
	ConstraintRate       Constraint = "rate"        // the next order waits for the rate limit
	ConstraintPermits    Constraint = "permits"     // the next order waits for a permit
	ConstraintBytes      Constraint = "bytes"       // prefetch.bytes or prefetch.records is used up
	ConstraintNone       Constraint = "none"        // there is no more work, or it can't be brought in any faster
)

// Constraints lists them.
func Constraints() []Constraint {
	return []Constraint{
		ConstraintNone, ConstraintRate, ConstraintPermits, ConstraintBreaker, ConstraintBytes, ConstraintStore, ConstraintReplayFull,
	}
}

// Constraint names what limits the route now.
func (g *Gate) Constraint() Constraint {
	switch {
	case g.holds[HoldStore], g.holds[HoldReplay]:
		return ConstraintStore
	case g.holds[HoldReplayFull]:
		return ConstraintReplayFull
	case g.holds[HoldBreaker]:
		return ConstraintBreaker
	case g.holds[HoldRate], g.awaits == ConstraintRate:
		return ConstraintRate
	case g.holds[HoldPermits], g.awaits == ConstraintPermits && g.queued > 0:
		return ConstraintPermits
	case g.queued >= g.limits.Records, g.budget() < 2*leastGrant:
		return ConstraintBytes
	}
	return ConstraintNone
}

// constraintOf is the constraint that a pause for want of something says.
func constraintOf(why HoldReason) Constraint {
	if why == HoldRate {
		return ConstraintRate
	}
	return ConstraintPermits
}

// binding sums up for how long each constraint bound, one at a time.
type binding struct {
	now   Constraint
	since time.Time // zero before anything was told
	sums  map[Constraint]time.Duration
}

func newBinding() binding {
	return binding{now: ConstraintNone, sums: make(map[Constraint]time.Duration)}
}

// turn says what binds from now on. Time that goes backwards counts as none.
func (b *binding) turn(now time.Time, to Constraint) {
	if to == b.now && !b.since.IsZero() {
		return
	}
	if !b.since.IsZero() {
		b.sums[b.now] += max(now.Sub(b.since), 0)
	}
	b.now, b.since = to, now
}

// account notes what binds after a change.
func (g *Gate) account(now time.Time) { g.binding.turn(now, g.Constraint()) }

// Bound is for how long each constraint has bound since the gate was first assigned partitions. The durations add up
// to that time; a constraint that never bound may be missing.
func (g *Gate) Bound(now time.Time) map[Constraint]time.Duration {
	sums := maps.Clone(g.binding.sums)
	if b := g.binding; !b.since.IsZero() {
		sums[b.now] += max(now.Sub(b.since), 0)
	}
	return sums
}
