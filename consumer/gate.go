package consumer

import (
	"fmt"
	"math"
	"slices"
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
	PartitionBytes int64         // one grant: at least what one legal record needs
	Records        int           // nothing more is fetched while so many records wait for a permit
	Permits        int           // of the route: sizes the low-water mark
	Horizon        time.Duration // how much work to keep waiting, in time; default 500 ms
}

// Gate decides what each partition of a route may fetch next. It is pure: it is told what happened and when, and
// answers with grants. It is not safe for concurrent use.
//
// A record is waiting from its fetch until it has a permit, and held until it is settled. The ceiling Bytes covers
// everything held and everything granted; the target covers what waits: the drain rate times Horizon, so that
// prefetch shrinks as permits run out and grows back when the downstream does.
type Gate struct {
	limits Limits
	parts  map[int32]*gatePart
	order  []int32  // the assigned partitions
	turn   int      // counts plans
	line   []inLine // of the plan under way, reused

	reserved int64 // granted, not yet delivered
	held     int64
	waiting  int64 // bytes
	queued   int   // records waiting

	exhausted bool       // no permit came within permits.wait, the last time one was asked for
	awaits    Constraint // what the next order waits for: permits, rate or none
	holds     [holdReasons]bool
	pauses    uint64
	binding   binding

	bytesRate, recordsRate rate
}

// inLine is a partition's place in a plan.
type inLine struct {
	partition int32
	place     int
}

type gatePart struct {
	next      int64
	highWater int64 // -1: not known
	inRequest bool
	full      bool // too many records stand behind an open one
	asked     int  // the turn of its last grant
}

// NewGate makes a gate without partitions.
func NewGate(l Limits) *Gate {
	if l.Horizon <= 0 {
		l.Horizon = 500 * time.Millisecond
	}
	g := &Gate{limits: l, parts: map[int32]*gatePart{}, awaits: ConstraintNone, binding: newBinding()}
	g.limits.Bytes = max(l.Bytes, g.grantCost()) // less would let nothing in, ever
	return g
}

// SetLimits changes the limits. What is held or granted above them stays, and nothing is granted until it is below. A
// Horizon of zero keeps the one there is.
func (g *Gate) SetLimits(now time.Time, l Limits) {
	if l.Horizon <= 0 {
		l.Horizon = g.limits.Horizon
	}
	g.limits = l
	g.limits.Bytes = max(l.Bytes, g.grantCost())
	g.relax()
	g.account(now)
}

// Assign starts a new assignment. Pause state and positions of the old one die with it; what is still held from it
// keeps counting until it is settled.
func (g *Gate) Assign(now time.Time, ps []Position) {
	g.parts = make(map[int32]*gatePart, len(ps))
	g.order = g.order[:0]
	for _, p := range ps {
		g.parts[p.Partition] = &gatePart{next: p.Offset, highWater: -1}
		g.order = append(g.order, p.Partition)
	}
	g.reserved = 0
	g.exhausted = false
	g.setHold(HoldPermits, false)
	g.account(now)
}

// SetPermits says how many permits the route has now.
func (g *Gate) SetPermits(n int) { g.limits.Permits = n }

// Plan appends the grants of the next request for the candidates to grants.
func (g *Gate) Plan(now time.Time, candidates []int32, grants []Grant) []Grant {
	if g.Held() {
		return grants
	}
	room := g.room(now, len(candidates))
	g.turn++
	// With less room than partitions, whoever was asked longest ago comes first, those known to be read to their end three
	// rounds later than the others: what their log's end is now only a fetch can tell. It holds whatever the order of the
	// candidates, and however the plans of several brokers interleave.
	g.line = g.line[:0]
	for _, id := range candidates {
		if p := g.parts[id]; p != nil && !p.inRequest && !p.full {
			place := p.asked
			if p.highWater >= 0 && p.next >= p.highWater {
				place += 3 * len(candidates)
			}
			g.line = append(g.line, inLine{id, place})
		}
	}
	slices.SortStableFunc(g.line, func(a, b inLine) int { return a.place - b.place })
	for _, c := range g.line {
		if room <= 0 || g.held+g.reserved+g.grantCost() > g.limits.Bytes {
			break
		}
		p := g.parts[c.partition]
		p.inRequest, p.asked = true, g.turn
		g.reserved += g.grantCost()
		room--
		grants = append(grants, Grant{Partition: c.partition, Offset: p.next, Bytes: int32(g.limits.PartitionBytes)}) //nolint:gosec // config bounds it
	}
	g.account(now)
	return grants
}

// grantCost is what a grant may bring in: a fetch stops between two batches, or within one at twice the grant.
func (g *Gate) grantCost() int64 { return 2 * g.limits.PartitionBytes }

// Full leaves a partition out of the fetch, or lets it in again: its ledger is at its bound.
func (g *Gate) Full(partition int32, on bool) {
	if p := g.parts[partition]; p != nil {
		p.full = on
	}
}

// room is how many partitions the next request may ask for. With nothing waiting and a downstream that keeps up,
// all of them: an idle partition must be listened to. Otherwise as many as the target has room for.
func (g *Gate) room(now time.Time, candidates int) int {
	if g.queued >= g.limits.Records {
		return 0
	}
	if g.queued == 0 && (!g.exhausted || now.Sub(g.recordsRate.at) > g.limits.Horizon) {
		return candidates
	}
	left := g.Target(now) - g.waiting
	if left <= 0 {
		return 0
	}
	return int((left + g.limits.PartitionBytes - 1) / g.limits.PartitionBytes)
}

// Target is how many bytes should wait for permits: the drain rate times the horizon, at least one grant and at most
// the ceiling.
func (g *Gate) Target(now time.Time) int64 {
	want := int64(g.bytesRate.perSecond(now) * g.limits.Horizon.Seconds())
	return min(max(want, g.limits.PartitionBytes), g.limits.Bytes)
}

// Ahead is how many records may be admitted before they have a permit: a fifth of a second of work at the
// measured drain rate, at least the permits, at most four batches of 500.
func (g *Gate) Ahead(now time.Time) int {
	return max(min(int(g.recordsRate.perSecond(now)/5), 2000), g.limits.Permits)
}

// Delivered gives back a grant and takes in what it brought.
func (g *Gate) Delivered(now time.Time, gr Grant, records int, bytes, next, highWater int64) {
	p := g.giveBack(gr)
	if p != nil {
		p.next, p.highWater = next, highWater
	}
	g.held += bytes
	g.waiting += bytes
	g.queued += records
	g.account(now)
}

// Released gives back a grant that brought nothing.
func (g *Gate) Released(now time.Time, gr Grant) {
	g.giveBack(gr)
	g.account(now)
}

// Moved sets a partition's position after data was lost.
func (g *Gate) Moved(partition int32, next int64) {
	if p := g.parts[partition]; p != nil {
		p.next, p.highWater = next, -1
	}
}

func (g *Gate) giveBack(gr Grant) *gatePart {
	p := g.parts[gr.Partition]
	if p == nil || !p.inRequest {
		return nil
	}
	p.inRequest = false
	g.reserved -= g.grantCost()
	return p
}

// Started says that a record left the waiting line: it has a permit, or needs none.
func (g *Gate) Started(now time.Time, records int, bytes int64) {
	g.queued -= records
	g.waiting -= bytes
	g.bytesRate.add(now, float64(bytes))
	g.recordsRate.add(now, float64(records))
	g.relax()
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
	g.relax()
	g.account(now)
}

// Dropped says that records left the waiting line without being worked on: their partition was revoked.
func (g *Gate) Dropped(now time.Time, records int, bytes int64) {
	g.queued -= records
	g.waiting -= bytes
	g.held -= bytes
	g.relax()
	g.account(now)
}

// Closed says that a record's memory is free.
func (g *Gate) Closed(now time.Time, bytes int64) {
	g.held -= bytes
	g.account(now)
}

// Permit says how the last wait for a permit went: late when none came within permits.wait.
func (g *Gate) Permit(now time.Time, late bool) {
	g.exhausted = late
	if late && g.queued > 0 {
		g.setHold(HoldPermits, true)
	}
	g.relax()
	g.account(now)
}

// Awaits says what the next order that could be sent waits for now: [ConstraintPermits], [ConstraintRate], or
// [ConstraintNone] where there is none or it can be sent at once. Telling it the same twice changes nothing.
func (g *Gate) Awaits(now time.Time, what Constraint) {
	g.awaits = what
	g.account(now)
}

// relax ends a pause for want of permits once nothing waits, or permits come in time again and the line is below the
// low-water mark of half the permits. Between the two marks nothing changes, so that it does not flap.
func (g *Gate) relax() {
	if g.holds[HoldPermits] && (g.queued == 0 || (!g.exhausted && g.queued <= g.limits.Permits/2)) {
		g.setHold(HoldPermits, false)
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

// rate is an exponentially decayed rate with a time constant of one second: after each event of size v it is
// r·e^(−Δt/τ) + v/τ.
type rate struct {
	value float64
	at    time.Time
}

func (r *rate) add(now time.Time, v float64) {
	r.value = r.perSecond(now) + v
	r.at = now
}

func (r *rate) perSecond(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	return r.value * math.Exp(-max(now.Sub(r.at), 0).Seconds())
}
