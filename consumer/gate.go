package consumer

import (
	"fmt"
	"time"
)

// HoldReason says why a route's partitions are paused. Several may hold at once.
type HoldReason int

// The reasons to hold.
const (
	HoldPermits    HoldReason = iota // no permit in time: the downstream is full
	HoldBreaker                      // the breaker is open and the route's degrade rule is hold
	HoldStore                        // Postgres is away
	HoldReplay                       // the replay queue's Redis is away
	HoldReplayFull                   // the replay queue is at its bound
	HoldRate                         // the route's rate is used up
	holdReasons
)

func (h HoldReason) String() string {
	switch h {
	case HoldPermits:
		return "permits"
	case HoldBreaker:
		return "breaker"
	case HoldStore:
		return "store"
	case HoldReplay:
		return "replay"
	case HoldReplayFull:
		return "replay_full"
	case HoldRate:
		return "rate"
	case holdReasons:
	}
	return fmt.Sprintf("HoldReason(%d)", int(h))
}

// HoldReasons lists them.
func HoldReasons() []HoldReason {
	return []HoldReason{HoldPermits, HoldBreaker, HoldStore, HoldReplay, HoldReplayFull, HoldRate}
}

// Limits bounds what a gate lets in.
type Limits struct {
	Bytes          int64         // ceiling on all record bytes the worker holds for the route
	PartitionBytes int64         // what one legal record needs: with each request so much is reserved beside its grants
	Records        int           // nothing more is fetched while so many records wait for a permit
	Permits        int           // of the route: one record for each of them waits at the least
	Horizon        time.Duration // the most work to keep waiting while more is fetched, in time; default 2 s
	Tenants        int           // that have a turn of their own in the line, which is not the gate's: see Line; default 100
}

// Gate is the one place that decides what each partition of a route may fetch next. It is pure: it is told what happened
// and when, and answers with grants. Time must not go backwards. It is not safe for concurrent use.
//
// A record is waiting from its fetch until it has a permit, and held until it is settled. The ceiling Bytes covers
// everything held and everything that requests under way may bring. What waits is kept between two marks made from the
// measured drain rate and the time that fetching and admitting take, so that prefetch shrinks as permits run out and grows
// back when the downstream does: see [Gate.Plan].
type Gate struct {
	limits Limits
	parts  map[int32]*gatePart
	order  []int32 // the assigned partitions
	turn   int     // counts requests
	asks   []*ask  // under way
	due    turnOf  // among those that were refused because enough is waiting
	short  turnOf  // because the ceiling was reached
	missed bool    // somebody was refused for another reason than that enough is waiting

	reserved int64 // by requests under way
	held     int64
	waiting  int64 // bytes
	queued   int   // records waiting

	late     [holdReasons]bool // what did not come within permits.wait, the last time it was asked for: permits, rate
	pausedAt time.Time         // when that paused the partitions last
	awaits   Constraint        // what the next order waits for: permits, rate or none
	holds    [holdReasons]bool
	pauses   uint64

	binding       binding
	behind, quiet []*gatePart // of the plan under way, reused
	Learned
}

// Learned is what a gate has measured, to be given to the next one of the route.
type Learned struct {
	bytesRate, recordsRate rate
	fetching               span    // of requests that had something to bring
	admission              span    // of a batch
	record                 float64 // bytes of one; 0 before the first
}

// NewGate makes a gate without partitions. learned is what the one before it has measured, if there was one.
func NewGate(l Limits, learned Learned) *Gate {
	g := &Gate{parts: map[int32]*gatePart{}, awaits: ConstraintNone, binding: newBinding(), Learned: learned}
	g.limit(l)
	return g
}

// limit takes limits over, with room for one record at least: less would let nothing in, ever.
func (g *Gate) limit(l Limits) {
	if l.Horizon <= 0 {
		l.Horizon = mostLead
	}
	l.Bytes = max(l.Bytes, 2*l.PartitionBytes, l.PartitionBytes+2*leastGrant)
	g.limits = l
}

// SetLimits changes the limits. What is held or granted above them stays, and nothing is granted until it is below.
func (g *Gate) SetLimits(now time.Time, l Limits) {
	g.limit(l)
	g.relax(now)
	g.account(now)
}

// Assign starts a new assignment. Pause state and positions of the old one die with it; what is still held from it
// keeps counting until it is settled.
func (g *Gate) Assign(now time.Time, ps []Position) {
	g.parts = make(map[int32]*gatePart, len(ps))
	g.order = g.order[:0]
	for _, p := range ps {
		g.parts[p.Partition] = &gatePart{id: p.Partition, next: p.Offset, highWater: -1}
		g.order = append(g.order, p.Partition)
	}
	g.reserved, g.asks, g.due, g.short = 0, nil, turnOf{}, turnOf{}
	for _, why := range []HoldReason{HoldPermits, HoldRate} {
		g.late[why] = false
		g.setHold(why, false)
	}
	g.account(now)
}

// SetPermits says how many permits the route has now.
func (g *Gate) SetPermits(n int) { g.limits.Permits = n }

// Ahead is how many records may be admitted before they have a permit: a fifth of a second of work at the
// measured drain rate, at least the permits, at most four batches of 500. It is one even without permits: it stands in line
// for the first that comes.
func (g *Gate) Ahead(now time.Time) int {
	return max(min(int(g.recordsRate.perSecond(now)/5), 2000), g.limits.Permits, 1)
}

// Started says that a record left the waiting line: it has a permit, or needs none.
func (g *Gate) Started(now time.Time, records int, bytes int64) {
	g.queued -= records
	g.waiting -= bytes
	g.bytesRate.add(now, float64(bytes))
	g.recordsRate.add(now, float64(records))
	g.late[HoldRate] = false
	g.relax(now)
	g.account(now)
}

// Unstarted takes a Started back: the record is in the waiting line again.
func (g *Gate) Unstarted(now time.Time, records int, bytes int64) {
	g.queued += records
	g.waiting += bytes
	g.account(now)
}

// Aside takes records out of the waiting line that wait for something else than a permit: an earlier record of their
// key. They stay held; Unstarted brings them back.
func (g *Gate) Aside(now time.Time, records int, bytes int64) {
	g.queued -= records
	g.waiting -= bytes
	g.relax(now)
	g.account(now)
}

// Dropped says that records left the waiting line without being worked on: their partition was revoked.
func (g *Gate) Dropped(now time.Time, records int, bytes int64) {
	g.queued -= records
	g.waiting -= bytes
	g.held -= bytes
	g.relax(now)
	g.account(now)
}

// Closed says that a record's memory is free.
func (g *Gate) Closed(now time.Time, bytes int64) {
	g.held -= bytes
	g.account(now)
}

// Admitted says how long it took to admit a batch.
func (g *Gate) Admitted(took time.Duration) { g.admission.add(took) }

// Permit says how the last wait for a permit went: late when none came within permits.wait.
func (g *Gate) Permit(now time.Time, late bool) { g.waited(now, HoldPermits, late) }

// Rate says how the last wait for the rate limit went: late when no order might be sent within permits.wait.
func (g *Gate) Rate(now time.Time, late bool) { g.waited(now, HoldRate, late) }

func (g *Gate) waited(now time.Time, why HoldReason, late bool) {
	if g.late[why] = late; late {
		g.awaits = constraintOf(why)
	}
	g.pauseLate(now)
	g.relax(now)
	g.account(now)
}

// pauseLate pauses the partitions while an order waits too long, unless the line is below its low mark already. A pause comes
// a while after the one before at the earliest: with a service of few and long calls each order waits too long, and the low
// mark alone keeps more from coming.
func (g *Gate) pauseLate(now time.Time) {
	for _, why := range []HoldReason{HoldPermits, HoldRate} {
		if !g.late[why] || g.holds[why] || now.Sub(g.pausedAt) < pauseApart || g.queued == 0 {
			continue
		}
		if low, _ := g.marks(now); g.waiting >= low {
			g.pausedAt = now
			g.setHold(why, true)
		}
	}
}

// Awaits says what the next order that could be sent waits for now: [ConstraintPermits], [ConstraintRate], or
// [ConstraintNone] where there is none or it can be sent at once. Telling it the same twice changes nothing.
func (g *Gate) Awaits(now time.Time, what Constraint) {
	if g.awaits = what; what == ConstraintNone {
		g.late[HoldPermits], g.late[HoldRate] = false, false
	}
	g.account(now)
}

// relax ends a pause for want of permits or rate once no more waits than the low mark. Between the two marks nothing
// changes, so that it does not flap.
func (g *Gate) relax(now time.Time) {
	if !g.holds[HoldPermits] && !g.holds[HoldRate] {
		return
	}
	if low, _ := g.marks(now); g.queued == 0 || g.waiting < low {
		g.setHold(HoldPermits, false)
		g.setHold(HoldRate, false)
	}
}

// Hold pauses or resumes all partitions for a reason.
func (g *Gate) Hold(now time.Time, why HoldReason, on bool) {
	g.setHold(why, on)
	g.account(now)
}

func (g *Gate) setHold(why HoldReason, on bool) {
	before := g.Held()
	g.holds[why] = on
	if !before && on {
		g.pauses += uint64(len(g.order))
	}
}

// Held reports whether the partitions are paused.
func (g *Gate) Held() bool {
	for _, on := range g.holds {
		if on {
			return true
		}
	}
	return false
}

// Holding reports whether one reason holds.
func (g *Gate) Holding(why HoldReason) bool { return g.holds[why] }

// Paused is how many assigned partitions are left out of the fetch for a reason of Hold.
func (g *Gate) Paused() int {
	if g.Held() {
		return len(g.order)
	}
	return 0
}

// Pauses counts partitions paused since the gate was made.
func (g *Gate) Pauses() uint64 { return g.pauses }

// Level is what the gate holds right now.
type Level struct {
	HeldBytes     int64
	ReservedBytes int64
	WaitingBytes  int64
	Queued        int // records that wait for a permit
}

// Level reads it.
func (g *Gate) Level() Level {
	return Level{HeldBytes: g.held, ReservedBytes: g.reserved, WaitingBytes: g.waiting, Queued: g.queued}
}
