package fleet

import (
	"time"

	"spillway/breaker"
)

// holdSlot is how long a worker keeps a slot it does not use while another one wants it, the first time. It doubles up
// to holdDoublings times.
const (
	holdSlot      = time.Second
	holdDoublings = 6
)

// keeper is what a Sharer knows of one breaker.
type keeper struct {
	b   *breaker.Breaker
	cfg breaker.Config

	known  bool
	record breaker.Record // adopted last; its durations were true at
	at     time.Time

	slots     int
	wants     bool // not answered yet
	others    bool // another worker wants a slot
	probes    int  // first probes reported when the slots were last seen in use
	idleSince time.Time
	gaveUp    int // times a slot was given back unused under this record

	restless bool // the breaker was not closed when last looked at

	turn, of int       // of the ramp's steps
	until    time.Time // when the word of the latest exchange ends
	settled  time.Time // by when the others have spoken again, after a gap in this worker's exchanges
}

// report states what the breaker has seen, and gives slots back that others have more use for, or all when leaving.
func (k *keeper) report(now time.Time, lease time.Duration, leaving bool) Report {
	giveBack := leaving || k.slots > 0 && k.others && now.Sub(k.idleSince) >= holdSlot<<min(k.gaveUp, holdDoublings)
	e := k.b.EvidenceAt(now, giveBack)
	k.restless = e.State != breaker.Closed
	if n := e.Half.Samples; e.Probing > 0 || n != k.probes {
		k.probes, k.idleSince, k.gaveUp = n, now, 0
	} else if giveBack {
		k.gaveUp++
	}
	k.slots = e.Slots
	probing := k.record.State == breaker.HalfOpen && !k.record.Ramping && e.State == breaker.HalfOpen && !e.Ramping && !e.Own
	k.wants = probing && (k.wants || e.Wanted)
	return Report{
		Key: k.b.Key(), Evidence: e, Wants: k.wants,
		Limit: k.cfg.ProbesInFlight, Lease: lease, Deadline: k.cfg.PermitDeadline, Gone: leaving,
	}
}

// absorb takes over what the store knows, and returns the move that must follow.
func (k *keeper) absorb(sent, now time.Time, v View, me string, lease time.Duration) (Move, bool) {
	stored := v.Record.Epoch
	if k.known && stored < k.record.Epoch {
		// The store lost what this worker knows. Nobody is followed until it is back.
		return Move{Key: k.b.Key(), Expect: stored, Record: k.aged(now)}, true
	}
	if k.known && stored == k.record.Epoch && v.Record.By == k.record.By {
		v.Record = k.aged(now) // by one clock all along
	}
	if !k.known || sent.After(k.until) {
		k.settled = now.Add(lease)
	}
	if v.Slots > k.slots {
		k.wants, k.idleSince = false, now
	}
	k.slots, k.others, k.of, k.until = v.Slots, false, len(v.Members), sent.Add(lease)
	for i, m := range v.Members {
		if m.Worker == me {
			k.turn = i
		} else if m.Wants {
			k.others = true
		}
	}
	k.take(now, v.Record)

	next, ok := decide(k.cfg, v, me)
	if ok && next.State == breaker.Open && v.Record.State != breaker.Open && now.Before(k.settled) {
		// The first one back after an outage sees no statement but its own: it would open the fleet for what may be its own
		// network alone.
		return Move{}, false
	}
	if !ok {
		return Move{}, false
	}
	next.By = me
	return Move{Key: k.b.Key(), Expect: stored, Record: next}, true
}

// take has the breaker adopt a record.
func (k *keeper) take(now time.Time, r breaker.Record) {
	word := k.until.Sub(now)
	a := breaker.Adoption{Record: r, Valid: word, Slots: k.slots, SlotsFor: word, Turn: k.turn, Of: k.of}
	a.Replaced = k.known && r.Epoch == k.record.Epoch && r.By != k.record.By
	if !k.known || r.Epoch != k.record.Epoch || a.Replaced {
		k.gaveUp, k.probes = 0, 0
	}
	k.known, k.record, k.at = true, r, now
	k.b.AdoptAt(now, a)
}

// aged is the known record as it is now, by this worker's monotonic clock.
func (k *keeper) aged(now time.Time) breaker.Record {
	r, d := k.record, max(0, now.Sub(k.at))
	r.Age += d
	if r.Force != breaker.ForceNone {
		r.ForceLeft = max(0, r.ForceLeft-d)
	}
	return r
}
