package breaker

import "time"

// maxValid is the longest a record's word is taken without being renewed.
const maxValid = time.Minute

// Record is the state of a breaker that a fleet of workers shares. Its times are durations at the moment it is read, so
// that no two clocks are ever compared. The zero Record is a closed breaker nobody has moved yet.
type Record struct {
	Epoch   uint64 // grows with every change
	Moves   uint64 // grows with every change of the state: a force to observe leaves it
	State   State
	Ramping bool          // half-open and past the first probes
	Age     time.Duration // since the state began; for the ramp, since the ramp began
	Wait    time.Duration // how long the latest opening lasts
	Opens   int           // openings since the service was last in good health

	Force     Force         // an operator's order, above the state until it expires
	ForceLeft time.Duration // until then

	Why Grounds
	By  string // the worker or operator who moved it, so that two records of one epoch can be told apart
}

// Grounds are the rule that moved a Record and what it saw, as in Event.
type Grounds struct {
	Reason    Reason
	Window    time.Duration
	Samples   int
	Failures  int
	Slow      int
	Rate      float64
	Bound     float64
	Threshold float64
}

// Adoption is a Record and one worker's part in it.
type Adoption struct {
	Record
	// Replaced says that another record of the same epoch was adopted before.
	Replaced bool
	// Valid is how long the record rules unless it is adopted again, at most 1 min. After that the breaker goes on alone.
	Valid time.Duration
	// Slots is how many first probes this worker may run at once, for SlotsFor. The fleet's slots add up to
	// Config.ProbesInFlight.
	Slots    int
	SlotsFor time.Duration
	// Of each Of steps of the ramp, the one call that every step is owed is this worker's in that with number Turn.
	Turn, Of int
}

// Window counts results. Slow ones are not failures.
type Window struct{ Samples, Failures, Slow int }

func (w Window) plus(o Window) Window {
	return Window{w.Samples + o.Samples, w.Failures + o.Failures, w.Slow + o.Slow}
}

// Evidence is what one worker has seen under the record it adopted last. It is a statement, not an increment: handing
// it in twice, or losing it, does no harm.
type Evidence struct {
	Epoch   uint64 // of the record adopted last
	State   State
	Ramping bool
	RampAge time.Duration // since its ramp began
	Own     bool          // the state comes from its own evidence or clock, and differs from the record's
	Force   Force

	Failure   Window // results of the failure window, also those of states that ended under this epoch
	Slow      Window // the same of the slow window
	Successes int    // since the breaker closed

	Half       Window // results since half-open began; kept after it reopened by itself
	ProbesGood int    // successful first probes
	ProbesBad  int    // bad first probes in a row

	Slots   int  // first probes it may have running until its slots end
	Probing int  // first probes running
	Wanted  bool // a call was refused for want of a slot since the last report
}

// Adopt makes a record that is shared with others the breaker's own. A record older than the one adopted last is not
// taken, and the same record again only renews the word and the slots. An opening by the breaker's own rules stands
// until its wait is over, except that a record that opens takes its place. Call it from time to time, never per call:
// what Allow and Done do stays local.
func (b *Breaker) Adopt(a Adoption) { b.AdoptAt(time.Now(), a) }

// AdoptAt is Adopt at a given moment: the one at which the ages in the record were true.
func (b *Breaker) AdoptAt(now time.Time, a Adoption) {
	b.mu.Lock()
	b.m.adopt(now.Sub(b.start), a)
	b.unlock()
}

// Evidence returns what the breaker has seen since it adopted its record. With giveBack it first lets go of every slot
// that no probe is using.
func (b *Breaker) Evidence(giveBack bool) Evidence { return b.EvidenceAt(time.Now(), giveBack) }

// EvidenceAt is Evidence at a given moment.
func (b *Breaker) EvidenceAt(now time.Time, giveBack bool) Evidence {
	b.mu.Lock()
	e := b.m.report(now.Sub(b.start), giveBack)
	b.unlock()
	return e
}

// Config returns the configuration with its defaults.
func (b *Breaker) Config() Config { return b.m.cfg }

// WaitAfter returns how long, before jitter, an opening lasts that follows n others without good health in between.
func (c Config) WaitAfter(n int) time.Duration { return c.WithDefaults().waitAfter(n) }

// Judge compares bad out of n results with a rate's threshold, as the breaker's own rules do: at least minimum results,
// and the Wilson lower bound at standard score z. It also returns the raw rate and the bound.
func Judge(bad, n, minimum int, threshold, z float64) (reached bool, rate, bound float64) {
	return tooMany(bad, n, minimum, threshold, z), wilson(bad, n, 0), wilson(bad, n, z)
}
