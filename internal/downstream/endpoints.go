package downstream

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// MaxEndpoints is the most instances a service may have here.
const MaxEndpoints = 16

// Ejection says when an instance of a service that has several is taken out of the choice, and for how long. The zero
// value of each field is its default.
type Ejection struct {
	// Consecutive failures take an instance out: 2 to 1000, default 5.
	Consecutive int
	// Failures among an instance's last 16 results take it out: 4 to 16, default 8.
	Failures int
	// Wait is how long the first ejection lasts, default 5s. It doubles while ejections follow each other, up to
	// WaitMax, default 5m; both 1ms to 24h. Each wait is spread over 80 to 120 %.
	Wait    time.Duration
	WaitMax time.Duration
	// Probes that succeed one after the other bring an instance back: 1 to 100, default 2.
	Probes int
}

func (e Ejection) withDefaults() (Ejection, error) {
	if e.Consecutive == 0 {
		e.Consecutive = 5
	}
	if e.Failures == 0 {
		e.Failures = 8
	}
	if e.Wait == 0 {
		e.Wait = 5 * time.Second
	}
	if e.WaitMax == 0 {
		e.WaitMax = max(5*time.Minute, e.Wait)
	}
	if e.Probes == 0 {
		e.Probes = 2
	}
	switch {
	case e.Consecutive < 2 || e.Consecutive > 1000:
		return e, fmt.Errorf("consecutive %d: want 2 to 1000", e.Consecutive)
	case e.Failures < suspectFailures || e.Failures > historyLength:
		return e, fmt.Errorf("failures %d: want %d to %d", e.Failures, suspectFailures, historyLength)
	case e.Wait < time.Millisecond || e.WaitMax > 24*time.Hour:
		return e, errors.New("wait and wait max: want 1ms to 24h")
	case e.WaitMax < e.Wait:
		return e, fmt.Errorf("wait max %v: want at least the wait, %v", e.WaitMax, e.Wait)
	case e.Probes < 1 || e.Probes > 100:
		return e, fmt.Errorf("probes %d: want 1 to 100", e.Probes)
	}
	return e, nil
}

const (
	historyLength = 16 // results that an instance is judged by
	// suspectFailures in its history are the fewest that make an instance suspect, and as many results of the others are
	// the fewest to compare it with.
	suspectFailures = 4
	// shyFor is how long a failure makes an instance look busier than it is. Without it one that fails at once would
	// always be the least busy and draw the calls to itself.
	shyFor = time.Second
)

// choice chooses among the instances of a service and takes failing ones out. It is a plain state machine: each method is
// told the moment, as the time since a beginning, and the machine never runs backwards. It is not safe for concurrent use.
type choice struct {
	cfg  Ejection
	unit func() float64 // evenly drawn from [0, 1)
	shy  time.Duration
	now  time.Duration
	ends []endpoint
	out  int // of ends, those taken out: at most half
	// lastProbe says that the latest pick was a probe: never two without a call to an instance in good standing between, so
	// that thin traffic does not end at the one that is ill.
	lastProbe bool
}

// endpoint is what is remembered of one instance.
type endpoint struct {
	inFlight int
	history  uint16 // the last results, the newest lowest: 1 is a failure
	seen     int    // results in history
	streak   int    // failures in a row
	failed   time.Duration
	life     uint32 // begins anew whenever it is taken out or comes back

	out     bool
	since   time.Duration // when it was taken out or came back
	until   time.Duration // while out: when the next probe may go
	wait    time.Duration // drawn at the last ejection
	times   int           // ejections since it was last in good health
	probing bool          // a probe is under way
	good    int           // while out, probes that succeeded in a row; else successes since it came back
	total   uint64        // ejections ever
}

// ticket is one call to an instance. It is given back by done, once.
type ticket struct {
	at    int
	life  uint32
	probe bool
}

// verdict is what a call showed of its instance.
type verdict uint8

const (
	showsNothing verdict = iota // nothing was called, we stopped it, or it was the order's own fault
	showsHealth
	showsFailure
)

// move is what a result did to its instance.
type move uint8

const (
	stays move = iota
	takenOut
	probeFailed // it stays out, for longer
	cameBack
)

func newChoice(cfg Ejection, n int, unit func() float64) choice {
	return choice{cfg: cfg, unit: unit, shy: shyFor, ends: make([]endpoint, n)}
}

// pick chooses an instance for one call: one that is out and may be probed, else the less busy of two drawn from those that
// are in.
func (c *choice) pick(now time.Duration) ticket {
	c.now = max(c.now, now)
	at, probe := -1, false
	if !c.lastProbe {
		at = c.due()
		probe = at >= 0
	}
	if at < 0 {
		at = c.draw()
	}
	c.lastProbe = probe
	e := &c.ends[at]
	e.inFlight++
	e.probing = e.probing || probe
	return ticket{at: at, life: e.life, probe: probe}
}

// due returns an instance that waits for a probe, or -1. A probe is one call at a time.
func (c *choice) due() int {
	if c.out == 0 {
		return -1
	}
	for i := range c.ends {
		if e := &c.ends[i]; e.out && !e.probing && c.now >= e.until {
			return i
		}
	}
	return -1
}

func (c *choice) draw() int {
	in := len(c.ends) - c.out
	first := int(c.unit() * float64(in))
	if in == 1 {
		return c.nth(first)
	}
	second := int(c.unit() * float64(in-1))
	if second >= first {
		second++
	}
	a, b := c.nth(first), c.nth(second)
	if c.load(b) < c.load(a) {
		return b
	}
	return a
}

// nth returns the nth of the instances that are in.
func (c *choice) nth(n int) int {
	for i := range c.ends {
		if c.ends[i].out {
			continue
		}
		if n == 0 {
			return i
		}
		n--
	}
	return 0 // not reached: at most half are out
}

// load is how busy an instance looks.
func (c *choice) load(i int) int {
	e := &c.ends[i]
	if e.streak > 0 && c.now-e.failed < c.shy {
		return e.inFlight + e.streak
	}
	return e.inFlight
}

// done takes the result of a call. one says of a failure that it is the instance's and not the service's: the instance is
// out, or it is clearly worse than the others and there is room to take it out.
func (c *choice) done(now time.Duration, t ticket, v verdict) (one bool, m move) {
	c.now = max(c.now, now)
	e := &c.ends[t.at]
	e.inFlight--
	if t.probe && t.life == e.life {
		e.probing = false
	}
	switch {
	case v == showsNothing:
		return false, stays
	case t.life != e.life:
		// It began before the instance was taken out or came back: what it shows is known.
		return v == showsFailure, stays
	case e.out:
		return v == showsFailure, c.probed(e, v)
	case v == showsHealth:
		e.record(0)
		e.streak = 0
		e.good++
		return false, stays
	}
	e.record(1)
	e.streak++
	e.failed = c.now
	if !c.room() || !c.suspect(t.at) {
		return false, stays
	}
	if e.streak < c.cfg.Consecutive && e.failures() < c.cfg.Failures {
		return true, stays
	}
	c.out++
	if e.good >= historyLength && c.now-e.since >= e.wait {
		e.times = 0 // it has shown health since it came back; time alone would prove nothing
	}
	c.eject(e)
	return true, takenOut
}

// probed takes the result of a probe.
func (c *choice) probed(e *endpoint, v verdict) move {
	if v == showsFailure {
		c.eject(e)
		return probeFailed
	}
	e.good++
	if e.good < c.cfg.Probes {
		return stays
	}
	c.out--
	e.begin(c.now, false)
	return cameBack
}

// eject puts an instance out for a wait that has grown with each time.
func (c *choice) eject(e *endpoint) {
	wait := c.cfg.WaitMax
	if shift := min(e.times, 40); c.cfg.Wait <= c.cfg.WaitMax>>shift {
		wait = c.cfg.Wait << shift
	}
	e.times++
	e.total++
	e.begin(c.now, true)
	e.wait = time.Duration(float64(wait) * (.8 + .4*c.unit()))
	e.until = c.now + e.wait
}

// begin starts a life of its own, in or out; what is under way decides nothing any more.
func (e *endpoint) begin(now time.Duration, out bool) {
	e.life++
	e.out, e.since = out, now
	e.history, e.seen, e.streak, e.good, e.probing = 0, 0, 0, 0, false
}

func (e *endpoint) record(failure uint16) {
	e.history = e.history<<1 | failure
	e.seen = min(e.seen+1, historyLength)
}

func (e *endpoint) failures() int { return bits.OnesCount16(e.history) }

// room reports whether one more may be taken out: never more than half.
func (c *choice) room() bool { return 2*(c.out+1) <= len(c.ends) }

// suspect reports whether an instance is clearly worse than the others that are in: its share of failures is above twice
// theirs by a quarter. When the service as a whole is ill, none is.
func (c *choice) suspect(at int) bool {
	seen, failed := 0, 0
	for i := range c.ends {
		if e := &c.ends[i]; i != at && !e.out {
			seen += e.seen
			failed += e.failures()
		}
	}
	e := &c.ends[at]
	if own := e.failures(); own >= min(suspectFailures, c.cfg.Consecutive) && seen >= suspectFailures {
		return float64(own)/float64(e.seen) >= 2*float64(failed)/float64(seen)+.25
	}
	return false
}
