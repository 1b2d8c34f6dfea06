package consumer

import (
	"cmp"
	"slices"
	"time"
)

// The numbers a grant is sized by, beside what is measured.
const (
	leastLead   = 50 * time.Millisecond  // a pause of the collector or the scheduler must not let the line run dry
	coldLead    = 500 * time.Millisecond // while no round trip was measured
	mostLead    = 2 * time.Second        // Limits.Horizon where none is given
	refill      = 100 * time.Millisecond // work that one request brings at a high rate: some ten requests a second
	slowRefill  = 2 * time.Second        // and at a low rate, up to slowBytes: a broker sends whole batches, often read in vain
	slowBytes   = 256 << 10
	pauseApart  = 4 * time.Second // from one pause for want of permits or rate to the next: 15 a minute at most
	mostRequest = 8 << 20         // what one request asks for at most: its response is held in memory beside the records
	leastGrant  = 1 << 10
	evenGrant   = 16 << 10               // what partitions that have records share a request by: a producer's batch, by default
	lateAsk     = 500 * time.Millisecond // a request that takes longer is not counted on
	yieldFor    = 20 * time.Millisecond  // how long a request waits for another broker's whose turn it is
	coldRecord  = 1 << 10                // a record's bytes before one was seen
)

// ask is a request under way.
type ask struct {
	at       time.Time
	reserved int64 // of the ceiling, less what it has brought
	expected int64 // bytes that partitions known to have records will bring
	possible int64 // bytes that the others may bring
	open     int   // grants not given back
	measured bool
}

// gatePart is a partition of the assignment.
type gatePart struct {
	id        int32
	next      int64
	highWater int64 // -1: not known
	ask       *ask  // the request it is in
	chosen    bool  // for that request, because it is known to have records
	full      bool  // too many records stand behind an open one
	dry       bool  // it brought nothing when it was asked last
	asked     int   // the turn of its last grant
	led       int   // the turn in which it went first for want of a grant large enough

	at, before time.Time // of its last grant, and of the one before
	flow       float64   // bytes a second that it brought of late
}

// due is what a partition that is read to its end may bring by now: twice what its flow would have, so that it is read to its
// end again.
func (p *gatePart) due(now time.Time) int64 {
	if p.at.IsZero() || p.highWater > p.next {
		return 0
	}
	return int64(2 * p.flow * now.Sub(p.at).Seconds())
}

// saw takes in what a grant brought.
func (p *gatePart) saw(bytes int64) {
	if p.before.IsZero() || !p.at.After(p.before) {
		return
	}
	flow := float64(bytes) / p.at.Sub(p.before).Seconds()
	p.flow = max(flow, (p.flow+flow)/2)
}

// behind reports whether the partition is known to have records that can be read. One that has them and brought none is
// not: an open transaction stands before them, or their batch is larger than its grant was, and then it leads one of the
// next requests, which brings a batch of whatever size.
func (p *gatePart) behind() bool { return p.highWater > p.next && !p.dry }

// Plan appends the grants of the next request for the candidates, the partitions one broker leads, to grants.
//
// Partitions that are known to have records are asked once the line is below its low mark, whoever was asked longest
// ago first, for what it lacks to its high mark. They share it evenly, as few of them as get what a usual batch needs, so
// that a backlog in one does not keep the others waiting. Whose batch is larger than its part leads a later request: the
// broker sends the first batch of the first partition whole.
// All others, read to their end as far as is known, are listened to in the same request, or by one of their own. They
// share what the line lacks beside that, and get what their flow is likely to have brought in any case, up to the high mark
// together: what comes little by little does not wait behind a backlog.
func (g *Gate) Plan(now time.Time, candidates []int32, grants []Grant) []Grant {
	defer g.account(now)
	g.pauseLate(now)
	first := g.sort(candidates)
	if first == nil {
		return grants
	}
	if g.missed = g.shut(); g.missed {
		return grants
	}
	budget := g.budget()
	if g.missed = budget < 2*leastGrant || g.short.goesBefore(now, first); g.missed {
		g.short.wants(first)
		return grants
	}
	room := int64(0)
	if len(g.behind) > 0 {
		first = g.behind[0]
		if room = min(g.room(now), mostRequest, g.behindBudget(budget)/2); room <= 0 || g.waiting > 0 && g.due.goesBefore(now, first) {
			g.due.wants(first)
			return grants
		}
	}
	g.turn++
	a := &ask{at: now, expected: room}
	if len(g.behind) > 0 {
		n := max(min(room/min(evenGrant, g.limits.PartitionBytes), int64(len(g.behind))), 1)
		for _, p := range g.behind[:n] {
			if p.chosen = true; p.dry {
				p.led = g.turn
			}
			grants = g.grant(grants, p, a, room/n)
		}
		budget -= 2 * room
	}
	if n := min(int64(len(g.quiet)), budget/(2*leastGrant)); n > 0 {
		share := max(min(g.quietRoom(now, room), budget/2)/n, leastGrant)
		spare := max(min(budget/2, g.Target(now))-share*n, 0)
		for _, p := range g.quiet[:n] {
			p.chosen = false
			more := min(max(min(p.due(now), g.limits.PartitionBytes)-share, 0), spare)
			spare -= more
			a.possible += share + more
			grants = g.grant(grants, p, a, share+more)
		}
	}
	a.reserved += g.limits.PartitionBytes
	g.reserved += a.reserved
	g.asks = append(g.asks, a)
	return grants
}

// grant lets a partition into a request. A fetch stops between two batches, or within one at twice the grant. The first
// partition of a request gets a record whatever its size, which is reserved with the request.
func (g *Gate) grant(grants []Grant, p *gatePart, a *ask, bytes int64) []Grant {
	p.ask, p.asked = a, g.turn
	p.before, p.at = p.at, a.at
	a.open++
	a.reserved += 2 * bytes
	return append(grants, Grant{Partition: p.id, Offset: p.next, Bytes: int32(bytes)}) //nolint:gosec // at most mostRequest or PartitionBytes
}

// sort puts the candidates that may be asked into behind and quiet, whoever was asked longest ago first, and returns the
// very first, nil where there is none. The order holds whatever that of the candidates, and however the plans of several
// brokers interleave.
func (g *Gate) sort(candidates []int32) (first *gatePart) {
	g.behind, g.quiet = g.behind[:0], g.quiet[:0]
	for _, id := range candidates {
		switch p := g.parts[id]; {
		case p == nil || p.ask != nil || p.full:
		case p.behind():
			g.behind = append(g.behind, p)
		default:
			g.quiet = append(g.quiet, p)
		}
	}
	earlier := func(a, b *gatePart) int { return cmp.Compare(a.asked, b.asked) }
	slices.SortStableFunc(g.behind, earlier)
	slices.SortStableFunc(g.quiet, earlier)
	for _, line := range [][]*gatePart{g.behind, g.quiet} {
		if len(line) > 0 && (first == nil || line[0].asked < first.asked) {
			first = line[0]
		}
	}
	g.putFirst()
	return first
}

// putFirst puts one of the partitions that are known to have records and brought none at the head of those behind: the one that
// has waited for that longest, in turn with those. A broker sends the first batch of the first partition that has one, and
// of the others only what fits.
func (g *Gate) putFirst() {
	at := -1
	for i, p := range g.quiet {
		if p.dry && p.highWater > p.next && (at < 0 || p.led < g.quiet[at].led) {
			at = i
		}
	}
	if at >= 0 && (len(g.behind) == 0 || g.quiet[at].led <= g.behind[0].asked) {
		g.behind = slices.Insert(g.behind, 0, g.quiet[at])
		g.quiet = slices.Delete(g.quiet, at, at+1)
	}
}

// shut reports whether nothing may be asked for, whatever its size.
func (g *Gate) shut() bool { return g.Held() || g.queued >= g.limits.Records }

// budget is what a request may reserve beside the one record of any size.
func (g *Gate) budget() int64 {
	return g.limits.Bytes - g.held - g.reserved - g.limits.PartitionBytes
}

// behindBudget is what partitions known to have records may take of a budget: the others get a least grant each, of a half
// of it together, so that a backlog under a tight ceiling does not keep them from being listened to.
func (g *Gate) behindBudget(budget int64) int64 {
	return budget - min(budget/2, int64(len(g.quiet))*2*leastGrant)
}

// room is how many bytes the line lacks to its high mark, 0 while it is not below its low mark.
func (g *Gate) room(now time.Time) int64 {
	low, high := g.marks(now)
	have := g.waiting + g.expected(now)
	if have >= low && have > 0 {
		return 0
	}
	records := int64(float64(g.limits.Records-g.queued) * g.recordBytes())
	return max(min(high-have, records), leastGrant)
}

// quietRoom is how many bytes the partitions of a request that are read to their end may bring, for the case that many are
// written to at once: what the line lacks beside all that is under way, the least grants in any case.
func (g *Gate) quietRoom(now time.Time, asked int64) int64 {
	room := g.Target(now) - g.waiting - g.expected(now) - asked
	for _, a := range g.asks {
		room -= a.possible
	}
	return min(max(room, 0), g.limits.PartitionBytes, slowBytes)
}

// expected is what requests under way will bring. One that takes too long is not counted on: a broker that hangs must not
// keep the others from being asked.
func (g *Gate) expected(now time.Time) (sum int64) {
	for _, a := range g.asks {
		if now.Sub(a.at) < lateAsk {
			sum += a.expected
		}
	}
	return sum
}

// marks are between what bytes the line of waiting records is kept. The low mark is what drains while more is fetched
// and admitted, and one record for every permit; the high mark is a request's worth of work above it.
func (g *Gate) marks(now time.Time) (low, high int64) {
	perSecond := g.bytesRate.perSecond(now)
	lasts := func(d time.Duration) int64 { return int64(perSecond * d.Seconds()) }
	permits := int64(float64(g.limits.Permits) * g.recordBytes())
	low = min(max(lasts(g.lead()), permits), g.limits.Bytes/4)
	step := max(lasts(refill), min(lasts(slowRefill), slowBytes), permits, leastGrant)
	return low, min(low+step, g.limits.Bytes/2)
}

// recordBytes is what a record takes.
func (g *Gate) recordBytes() float64 {
	if g.record == 0 {
		return coldRecord
	}
	return g.record
}

// seeRecords takes in the mean size of some.
func (g *Gate) seeRecords(bytes float64) {
	if g.record == 0 {
		g.record = bytes
	}
	g.record += (bytes - g.record) / 8
}

// lead is how long it takes from asking for records until they can be sent: a fetch's round trip and an admission's.
func (g *Gate) lead() time.Duration {
	if !g.fetching.seen && !g.admission.seen {
		return min(coldLead, g.limits.Horizon)
	}
	return min(max(g.fetching.most()+g.admission.most(), leastLead), g.limits.Horizon)
}

// Target is how many bytes should wait for permits at most: the high mark.
func (g *Gate) Target(now time.Time) int64 {
	_, high := g.marks(now)
	return high
}

// turnOf is whose turn it is among the partitions of different brokers, of those that were refused.
type turnOf struct {
	part  *gatePart
	since time.Time // somebody gave way to it; zero while nobody had to
}

// wants notes that a partition was refused.
func (d *turnOf) wants(p *gatePart) {
	if d.part == nil || p.asked < d.part.asked {
		*d = turnOf{part: p}
	}
}

// goesBefore reports whether a request whose first partition this is gives way to one of another broker, with one that was
// asked longer ago. All that were refused come back at once when there is room, in any order. It gives way for a moment
// only, for that broker may be gone.
func (d *turnOf) goesBefore(now time.Time, first *gatePart) bool {
	if d.part == nil || d.part.asked >= first.asked || d.part.ask != nil || d.part.full {
		*d = turnOf{}
		return false
	}
	if d.since.IsZero() {
		d.since = now
	}
	if now.Sub(d.since) < yieldFor {
		return true
	}
	*d = turnOf{}
	return false
}

// Open reports whether Plan may grant something: who was granted nothing need not ask again before. It is cheap.
func (g *Gate) Open(now time.Time) bool {
	if g.shut() || g.budget() < 2*leastGrant {
		return false
	}
	return g.missed || g.room(now) > 0
}

// Delivered gives back a grant and takes in what it brought.
func (g *Gate) Delivered(now time.Time, gr Grant, records int, bytes, next, highWater int64) {
	if p := g.parts[gr.Partition]; p != nil && p.ask != nil {
		moved := next > p.next
		if moved && p.chosen && !p.ask.measured {
			p.ask.measured = true
			g.fetching.add(now.Sub(p.ask.at))
		}
		p.next, p.highWater, p.dry = next, highWater, !moved
		p.saw(bytes)
		g.giveBack(p, int64(gr.Bytes), bytes)
	}
	if records > 0 {
		g.seeRecords(float64(bytes) / float64(records))
	}
	g.held += bytes
	g.waiting += bytes
	g.queued += records
	g.account(now)
}

// Released gives back a grant that brought nothing.
func (g *Gate) Released(now time.Time, gr Grant) {
	if p := g.parts[gr.Partition]; p != nil && p.ask != nil {
		p.dry = true
		g.giveBack(p, int64(gr.Bytes), 0)
	}
	g.account(now)
}

// giveBack takes a partition out of its request. What the request has reserved shrinks by what it brings, and is free
// once its last grant is back.
func (g *Gate) giveBack(p *gatePart, granted, brought int64) {
	a := p.ask
	p.ask = nil
	if p.chosen {
		a.expected -= min(granted, a.expected)
	}
	freed := min(brought, a.reserved)
	if a.open--; a.open == 0 {
		freed = a.reserved
		g.asks = slices.DeleteFunc(g.asks, func(b *ask) bool { return b == a })
	}
	a.reserved -= freed
	g.reserved -= freed
}

// Moved sets a partition's position after data was lost.
func (g *Gate) Moved(partition int32, next int64) {
	if p := g.parts[partition]; p != nil {
		p.next, p.highWater, p.dry = next, -1, false
	}
}

// Full leaves a partition out of the fetch, or lets it in again: its ledger is at its bound.
func (g *Gate) Full(partition int32, on bool) {
	if p := g.parts[partition]; p != nil {
		p.full = on
	}
}
