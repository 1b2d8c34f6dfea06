package breaker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxForce is the longest a force may last.
const maxForce = 30 * 24 * time.Hour

// Breaker guards one endpoint of one service. It is safe for concurrent use, starts no goroutine, and neither blocks,
// nor allocates, nor does I/O in Allow and Done (the listener excepted, which runs only when the state moves).
//
// Each method that depends on time comes in two forms: plain, which reads the clock, and ...At, which is told the
// moment. The moments given need not be in order; an earlier one counts as the latest seen.
type Breaker struct {
	key    Key
	start  time.Time
	listen func(Event)

	// What most calls need, kept apart from what results write. Allow reads gate and gateUntil without the lock; a
	// reader that catches them between two moves admits a call whose result will be stale, or refuses one call more.
	gate      atomic.Uint64 // generation<<2 | gateKind
	gateUntil atomic.Int64  // the moment (since start) from which only the machine may answer
	admitted  atomic.Uint64 // calls admitted; numbers their permits
	refused   atomic.Uint64 // calls refused without asking the machine
	rushed    atomic.Uint64 // the gate whose refusals come in a rush
	looked    atomic.Int64  // when a refusal last read the clock
	_         [64]byte

	mu        sync.Mutex // guards what follows
	m         machine
	shown     uint64        // refused calls in the latest Snapshot
	idleMark  uint64        // calls admitted when idle last found some unreported
	idleSince time.Duration // when idle first found that many
}

// New returns a closed breaker. cfg must be valid. rnd draws the jitter of the open wait and is used under the
// breaker's lock only; nil stands for a source of its own, seeded by the runtime. listen is told of every move in the
// modes alert and enforce, after the lock is released, by the goroutine whose call caused it: it may call the breaker,
// should be quick, and may see two moves of different goroutines out of order (Event.Generation tells). nil: nobody.
func New(key Key, cfg Config, rnd *rand.Rand, listen func(Event)) (*Breaker, error) {
	return NewAt(time.Now(), key, cfg, rnd, listen)
}

// NewAt is New at a given moment, for callers whose time is not the machine's.
func NewAt(now time.Time, key Key, cfg Config, rnd *rand.Rand, listen func(Event)) (*Breaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("breaker %s: %w", key, err)
	}
	if rnd == nil {
		rnd = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // jitter, not a secret
	}
	return newBreaker(now, key, cfg, rnd, listen), nil
}

func newBreaker(now time.Time, key Key, cfg Config, rnd *rand.Rand, listen func(Event)) *Breaker {
	b := &Breaker{key: key, start: now, listen: listen, m: newMachine(cfg, rnd.Float64)}
	b.publish()
	return b
}

// Key returns what the breaker guards.
func (b *Breaker) Key() Key { return b.key }

// Allow asks for one call. With ok the call may be made and its permit must be reported by Done, once, within
// Config.PermitDeadline. Without ok the call must not be made.
//
// Calls that are refused in a rush, eight within a millisecond, are spared the clock: after one, Allow looks
// at it at every eighth refusal only, so that the end of the wait may be seen up to seven calls late, however far apart
// those are. AllowAt and Ready see it at once.
func (b *Breaker) Allow() (p Permit, ok bool) {
	// Reading the clock costs more than all the rest, and a closed breaker that does not look at durations needs none.
	if gate := b.gate.Load(); gateKind(gate&gateMask) == gateFree {
		return Permit{generation: gate >> gateBits, place: place(permitClosed), number: b.admitted.Add(1)}, true
	} else if gateKind(gate&gateMask) == gateRefuse {
		return b.refuse(gate)
	}
	return b.allow(time.Since(b.start), 0)
}

const (
	refusalsPerLook = 8 // in a rush, one refusal in so many reads the clock; a power of two
	rush            = time.Millisecond
)

// refuse is Allow while the gate refuses. When the last eight refusals came within a millisecond, most of the next eight
// go without the clock, which costs three times the rest: the end of the wait is seen at most seven refusals late, and
// only after such a rush. The gate's word holds its generation, so that a move by anybody, also by an adopted record or a
// force, is seen at once.
func (b *Breaker) refuse(gate uint64) (Permit, bool) {
	if b.refused.Add(1)%refusalsPerLook != 0 && b.rushed.Load() == gate {
		return Permit{}, false
	}
	now := time.Since(b.start)
	if now-time.Duration(b.looked.Swap(int64(now))) < rush {
		b.rushed.Store(gate)
	} else {
		b.rushed.Store(0)
	}
	if int64(now) < b.gateUntil.Load() && b.gate.Load() == gate {
		return Permit{}, false
	}
	b.refused.Add(^uint64(0)) // whoever answers below counts it; Snapshot sees to it that nobody sees less than before
	return b.allow(now, 0)
}

// AllowAt is Allow at a given moment.
func (b *Breaker) AllowAt(now time.Time) (p Permit, ok bool) { return b.allow(now.Sub(b.start), 0) }

// AllowBacklogAt is AllowAt for one call of a backlog: for callers that hold calls back until they may go, and could
// have width of them in flight, 1 or more. Such a caller decides itself how often it asks, and so it could get
// any share of its asking. While the breaker ramps it may therefore have that share of width in flight, all probes of the
// ramp counted; by Little's law that is the same share of what it could send. Otherwise the two are the same.
func (b *Breaker) AllowBacklogAt(now time.Time, width int) (p Permit, ok bool) {
	return b.allow(now.Sub(b.start), max(width, 1))
}

// RoomAt is how many calls AllowBacklogAt would admit one after the other, at most width, and whether the breaker is half-open:
// none then means none for the moment, until a probe is reported or the ramp's next step comes. It takes nothing.
func (b *Breaker) RoomAt(now time.Time, width int) (n int, halfOpen bool) {
	at := now.Sub(b.start)
	if kind := b.word(at); kind == gateAdmit || kind == gateFree {
		return max(width, 1), false
	} else if kind == gateRefuse {
		return 0, false
	}
	b.mu.Lock()
	n, halfOpen = b.m.room(at, max(width, 1))
	b.unlock()
	return n, halfOpen
}

// Done reports what the call of a permit showed. Report Ignored for a call that was not made after all, or that says
// nothing about the service: a probe's slot is free again.
func (b *Breaker) Done(p Permit, result Result) { b.done(time.Since(b.start), p, result) }

// DoneAt is Done at a given moment.
func (b *Breaker) DoneAt(now time.Time, p Permit, result Result) { b.done(now.Sub(b.start), p, result) }

// Ready reports whether Allow would admit a call, and takes nothing.
func (b *Breaker) Ready() bool { return b.ready(time.Since(b.start)) }

// ReadyAt is Ready at a given moment.
func (b *Breaker) ReadyAt(now time.Time) bool { return b.ready(now.Sub(b.start)) }

// SetMode changes the mode. Disabling closes the breaker and forgets its history; the other modes go on from the state
// they find.
func (b *Breaker) SetMode(mode Mode) error { return b.SetModeAt(time.Now(), mode) }

// SetModeAt is SetMode at a given moment.
func (b *Breaker) SetModeAt(now time.Time, mode Mode) error {
	if !mode.valid() {
		return &FieldError{Field: "Mode", Value: fmt.Sprintf("%d", mode), Accepted: "enforce, alert, observe or disabled"}
	}
	b.mu.Lock()
	b.m.setMode(now.Sub(b.start), mode)
	b.unlock()
	return nil
}

// Force holds the breaker open or closed for a time of 1 ms to 30 days, above mode and evidence, or lets it only
// observe; ForceNone lifts a force (the time is not looked at). When a forced open ends, the breaker is half-open; after
// a forced closed it is closed with empty windows.
func (b *Breaker) Force(force Force, lasts time.Duration) error {
	return b.ForceAt(time.Now(), force, lasts)
}

// ForceAt is Force at a given moment.
func (b *Breaker) ForceAt(now time.Time, force Force, lasts time.Duration) error {
	if force > ForceObserve {
		return &FieldError{Field: "Force", Value: fmt.Sprintf("%d", force), Accepted: "none, open, closed or observe"}
	}
	if force != ForceNone && (lasts < time.Millisecond || lasts > maxForce) {
		return &FieldError{Field: "Force duration", Value: lasts.String(), Accepted: "1ms to 720h"}
	}
	b.mu.Lock()
	at := max(now.Sub(b.start), b.m.now)
	b.m.setForce(at, force, at+lasts)
	b.unlock()
	return nil
}

// Snapshot returns the breaker as it is now.
func (b *Breaker) Snapshot() Snapshot { return b.SnapshotAt(time.Now()) }

// SnapshotAt is Snapshot at a given moment.
func (b *Breaker) SnapshotAt(now time.Time) Snapshot {
	b.mu.Lock()
	b.m.tick(now.Sub(b.start))
	s := b.m.snapshot(b.start)
	s.Key = b.key
	s.Totals.Admitted = b.admitted.Load()
	b.shown = max(b.shown, s.Totals.Refused+b.refused.Load())
	s.Totals.Refused = b.shown
	b.unlock()
	return s
}

func (b *Breaker) allow(now time.Duration, width int) (Permit, bool) {
	gate := b.gate.Load()
	if int64(now) < b.gateUntil.Load() {
		switch gateKind(gate & gateMask) {
		case gateAdmit, gateFree:
			return Permit{start: now, generation: gate >> gateBits, place: place(permitClosed), number: b.admitted.Add(1)}, true
		case gateRefuse:
			b.refused.Add(1)
			return Permit{}, false
		case gateAsk:
		}
	}
	b.mu.Lock()
	p, ok := b.m.allow(now, width)
	if ok {
		p.number = b.admitted.Add(1)
	}
	b.unlock()
	return p, ok
}

func (b *Breaker) done(now time.Duration, p Permit, result Result) {
	b.mu.Lock()
	b.m.done(now, p, result)
	b.unlock()
}

// word is what the gate says of a moment.
func (b *Breaker) word(now time.Duration) gateKind {
	if gate := b.gate.Load(); int64(now) < b.gateUntil.Load() {
		return gateKind(gate & gateMask)
	}
	return gateAsk
}

func (b *Breaker) ready(now time.Duration) bool {
	switch b.word(now) {
	case gateAdmit, gateFree:
		return true
	case gateRefuse:
		return false
	case gateAsk:
	}
	b.mu.Lock()
	ok := b.m.ready(now)
	b.unlock()
	return ok
}

// unlock ends a step of the machine: what it changed becomes visible to Allow, then the lock is released, then the
// listener hears of it.
func (b *Breaker) unlock() {
	if !b.m.moved {
		b.mu.Unlock()
		return
	}
	b.publish()
	events, n := b.m.events, b.m.pending
	b.m.pending = 0
	b.mu.Unlock()
	if b.listen == nil {
		return
	}
	for _, e := range events[:n] {
		if e.Mode == ModeObserve {
			continue
		}
		e.Key, e.At = b.key, b.start.Add(e.at)
		b.listen(e)
	}
}

const (
	gateBits = 2
	gateMask = 1<<gateBits - 1
)

// publish writes the machine's gate where Allow reads it. The time comes first: a reader with the new gate must not
// trust the old time.
func (b *Breaker) publish() {
	kind, until := b.m.gate()
	b.gateUntil.Store(int64(until))
	b.gate.Store(b.m.generation<<gateBits | uint64(kind))
	b.m.moved = false
}

// idle reports whether the breaker may be forgotten: it is closed by its own evidence, remembers nothing, and has no
// permit under way. Permits that were never reported are given up once no call was admitted for a permit's deadline
// since an earlier look. It never moves the state, so the listener is not called.
func (b *Breaker) idle(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.m.idle(now) {
		return false
	}
	admitted := b.admitted.Load()
	if admitted <= b.m.settled() {
		return true
	}
	if admitted != b.idleMark {
		b.idleMark, b.idleSince = admitted, b.m.now
		return false
	}
	return b.m.now-b.idleSince >= b.m.cfg.PermitDeadline
}
