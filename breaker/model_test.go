package breaker

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

// model is the breaker written the slow way: it keeps every sample and every permit and counts them anew each time.
// It covers mode enforce, without jitter, force or slow-call durations.
type model struct {
	cfg        Config
	now        time.Duration
	state      State
	generation uint64
	since      time.Duration
	until      time.Duration

	samples []modelSample // of this generation
	first   []modelPermit // first probes under way
	ramp    []modelPermit // probes of the ramp under way
	verdict []bool        // of first probes: good or bad
	ramping bool
	begun   time.Duration // of the ramp
	steps   int           // of the ramp that were entered
	credit  float64

	admitted int // calls so far; a call's number is what this is with it

	opened []time.Duration // waits since health was last seen
	lost   int
	late   int
	stale  int

	overtook  int // openings by the calls in their order, while no streak was long enough
	passed    int // good answers of calls older than a run's first
	startOver int // runs that began anew because they were hopeless
}

type modelSample struct {
	at   time.Duration
	r    Result
	call int // number of the call; 0: a probe that was lost
}

type modelPermit struct {
	id         int
	call       int
	start      time.Duration
	generation uint64
	kind       permitKind
}

func (d *model) move(to State) {
	if to == Open {
		wait := float64(d.cfg.OpenWait)
		if d.state == Closed && d.healthy() {
			d.opened = nil
		}
		for range d.opened {
			wait *= d.cfg.OpenGrowth
		}
		w := time.Duration(min(wait, float64(d.cfg.OpenWaitMax)))
		d.opened = append(d.opened, w)
		d.until = d.now + w
	}
	d.state, d.since = to, d.now
	d.generation++
	d.samples, d.first, d.ramp, d.verdict = nil, nil, nil, nil
	d.ramping, d.steps, d.credit = false, 0, 0
}

func (d *model) healthy() bool {
	good := 0
	for _, s := range d.samples {
		if s.r == Success {
			good++
		}
	}
	return len(d.opened) > 0 && good >= d.cfg.FailureMinCalls && d.now-d.since >= d.opened[len(d.opened)-1]
}

// window counts the samples of the seconds that lie in a window.
func (d *model) window(length time.Duration) (n, failures, slow int) {
	for _, s := range d.samples {
		if int64(d.now/time.Second)-int64(s.at/time.Second) >= int64(length/time.Second) {
			continue
		}
		n++
		switch s.r {
		case Failure:
			failures++
		case Slow:
			slow++
		case Success, Ignored:
		}
	}
	return n, failures, slow
}

func (d *model) streak() int {
	n := 0
	for i := len(d.samples) - 1; i >= 0 && d.samples[i].r == Failure; i-- {
		n++
	}
	return n
}

// run reads all results of this generation again and returns the failed calls of the run they leave, by number, and
// how many of the calls between the first and the last of them have not failed. It also says whether the latest result was
// passed over, or made the run start over.
func (d *model) run() (failed map[int]bool, others int, passed, over bool) {
	first := 0
	for _, s := range d.samples {
		passed, over = false, false
		switch {
		case s.r == Failure && s.call > 0 && first == 0:
			first, failed = s.call, map[int]bool{s.call: true}
		case s.r == Failure && s.call > first && first > 0:
			failed[s.call] = true
			if len(failed)-2*between(failed) < -d.cfg.ConsecutiveFailures {
				first, failed, over = s.call, map[int]bool{s.call: true}, true
			}
		case s.r != Failure && s.call > first:
			first, failed = 0, nil
		case s.r != Failure && first > 0:
			passed = true
		}
	}
	return failed, between(failed), passed, over
}

// between counts the numbers from the least to the greatest of a set that are not in it.
func between(set map[int]bool) int {
	n, least, greatest := 0, 1<<62, 0
	for call := range set {
		least, greatest = min(least, call), max(greatest, call)
	}
	for call := least; call <= greatest; call++ {
		if !set[call] {
			n++
		}
	}
	return n
}

func (d *model) reached(bad, n, minimum int, threshold, z float64) bool {
	return threshold > 0 && n >= minimum && n > 0 && float64(bad)/float64(n) >= threshold && wilson(bad, n, z) >= threshold
}

// opens applies the window rules after a result.
func (d *model) opens(r Result) bool {
	if d.streak() >= d.cfg.ConsecutiveFailures {
		return true
	}
	failed, others, passed, over := d.run()
	if passed {
		d.passed++
	}
	if over {
		d.startOver++
	}
	if r == Failure && len(failed)-2*others >= d.cfg.ConsecutiveFailures {
		d.overtook++
		return true
	}
	n, failures, _ := d.window(d.cfg.FailureWindow)
	if (r == Failure || n == d.cfg.FailureMinCalls) && d.reached(failures, n, d.cfg.FailureMinCalls, d.cfg.FailureRate, d.cfg.Z) {
		return true
	}
	n, _, slow := d.window(d.cfg.SlowWindow)
	return (r == Slow || n == d.cfg.SlowMinCalls) && d.reached(slow, n, d.cfg.SlowMinCalls, d.cfg.SlowRate, d.cfg.Z)
}

func (d *model) rampOpens(minimum int, z float64) bool {
	n, failures, slow := d.window(1 << 62)
	return d.reached(failures, n, minimum, d.cfg.FailureRate, z) || d.reached(slow, n, minimum, d.cfg.SlowRate, z)
}

func (d *model) tick(now time.Duration) {
	d.now = max(d.now, now)
	if d.state == Open && d.now >= d.until {
		d.move(HalfOpen)
	}
	if d.state != HalfOpen {
		return
	}
	generation := d.generation
	for _, p := range append([]modelPermit(nil), d.first...) {
		if d.now >= p.start+d.cfg.PermitDeadline {
			d.first = without(d.first, p.id)
			d.lost++
			d.probeVerdict(Failure, 1, 0)
			if d.generation != generation {
				return
			}
		}
	}
	if !d.ramping {
		return
	}
	for len(d.ramp) > 0 && d.settled(d.ramp[0]) {
		second, n := d.ramp[0].start/time.Second, 0
		for len(d.ramp) > 0 && d.ramp[0].start/time.Second == second {
			d.ramp = d.ramp[1:]
			n++
		}
		d.lost += n
		d.probeVerdict(Failure, n, 0)
		if d.generation != generation {
			return
		}
	}
	d.climb()
}

func (d *model) settled(p modelPermit) bool {
	return d.now-d.cfg.PermitDeadline >= p.start.Truncate(time.Second)+time.Second
}

func (d *model) share() float64 {
	share := d.cfg.RampStart
	for range int((d.now - d.begun) / d.cfg.RampStep) {
		share *= d.cfg.RampFactor
	}
	return share
}

func (d *model) climb() {
	if d.share() >= 1 {
		if d.rampOpens(1, 0) {
			d.move(Open)
		} else {
			d.move(Closed)
		}
		return
	}
	if steps := 1 + int((d.now-d.begun)/d.cfg.RampStep); steps != d.steps {
		d.steps, d.credit = steps, max(d.credit, 1)
	}
}

func (d *model) allow(now time.Duration, id int) (modelPermit, bool) {
	d.tick(now)
	p := modelPermit{id: id, start: d.now, generation: d.generation}
	p.call = d.admitted + 1
	switch d.state {
	case Closed:
		p.kind = permitClosed
		d.admitted++
		return p, true
	case Open:
	case HalfOpen:
		if d.ramping {
			if d.credit += d.share(); d.credit >= 1 {
				d.credit--
				p.kind = permitRamp
				d.ramp = append(d.ramp, p)
				d.admitted++
				return p, true
			}
		} else if len(d.first) < d.cfg.ProbesInFlight {
			p.kind = permitFirst
			d.first = append(d.first, p)
			d.admitted++
			return p, true
		}
	}
	return modelPermit{}, false
}

func (d *model) done(now time.Duration, p modelPermit, r Result) {
	d.tick(now)
	if p.generation != d.generation {
		d.stale++
		return
	}
	switch p.kind {
	case permitClosed:
		if r != Ignored {
			d.samples = append(d.samples, modelSample{d.now, r, p.call})
			if d.opens(r) {
				d.move(Open)
			}
		}
		return
	case permitFirst, permitRamp:
		before := len(d.first) + len(d.ramp)
		d.first, d.ramp = without(d.first, p.id), without(d.ramp, p.id)
		if len(d.first)+len(d.ramp) == before {
			d.late++
			return
		}
		if r == Ignored && p.kind == permitRamp {
			d.credit++
		}
	case permitNone, permitShadow:
	}
	if r != Ignored {
		d.probeVerdict(r, 1, p.call)
	}
}

func (d *model) probeVerdict(r Result, n, call int) {
	for range n {
		d.samples = append(d.samples, modelSample{d.now, r, call})
	}
	if d.ramping {
		if d.opens(r) || d.rampOpens(d.cfg.RampMinCalls, d.cfg.Z) {
			d.move(Open)
		}
		return
	}
	d.verdict = append(d.verdict, r == Success || r == Slow && d.cfg.SlowRate < 0)
	good, row := 0, 0
	for _, ok := range d.verdict {
		if ok {
			good, row = good+1, 0
		} else {
			row++
		}
	}
	switch {
	case row >= d.cfg.ProbeFailures:
		d.move(Open)
	case d.cfg.SuccessesToClose > 0 && good >= d.cfg.SuccessesToClose:
		d.move(Closed)
	case d.cfg.SuccessesToClose == 0 && good >= d.cfg.FirstProbes:
		d.ramping, d.begun = true, d.now
		d.climb()
	}
}

func without(permits []modelPermit, id int) []modelPermit {
	var rest []modelPermit
	for _, p := range permits {
		if p.id != id {
			rest = append(rest, p)
		}
	}
	return rest
}

// fuzzConfig makes a small valid configuration, so that a short input reaches every state.
func fuzzConfig(b [6]byte) Config {
	pick := func(i, n int) int { return int(b[i]) % n }
	c := Config{
		FailureWindow: time.Duration(1+pick(0, 5)) * time.Second, FailureRate: []float64{0.25, 0.5, 1}[pick(1, 3)], FailureMinCalls: 1 + pick(2, 7),
		SlowWindow: time.Duration(1+pick(3, 7)) * time.Second, SlowRate: []float64{-1, 0.5, 0.75}[pick(4, 3)], SlowMinCalls: 1 + pick(5, 5),
		ConsecutiveFailures: 2 + pick(0, 9), OpenWait: 2 * time.Second, OpenJitter: -1, OpenGrowth: 2, OpenWaitMax: 7 * time.Second,
		FirstProbes: 1 + pick(1, 4), ProbesInFlight: 1 + pick(2, 3), ProbeFailures: 1 + pick(3, 3),
		RampStart: []float64{0.125, 0.25, 0.5, 1}[pick(4, 4)], RampStep: time.Duration(1+pick(0, 2)*5) * 500 * time.Millisecond, RampMinCalls: 1 + pick(5, 6),
		SuccessesToClose: max(0, pick(1, 5)-2), PermitDeadline: time.Duration(700+pick(2, 4)*500) * time.Millisecond,
	}
	if c.FailureRate < 1 && pick(3, 2) == 1 {
		c.Z = 1.96
	}
	return c
}

// FuzzBreakerAgreesWithTheNaiveModel drives both with the same steps and compares everything they show.
func FuzzBreakerAgreesWithTheNaiveModel(f *testing.F) {
	f.Add([]byte("\x04\x01\x03\x04\x01\x02" + "CCCCCCCCCC" + "t\xff" + "CcAaAaAaDdT\x09" + "ccccAAAADDDD"))
	f.Add([]byte("\x02\x00\x05\x00\x00\x00" + "AAAAAAAAAAXXXXXT\xffccT\xffccccT\xffAAAAT\x30T\x30DDDD"))
	f.Add([]byte("\x00\x02\x02\x03\x02\x04" + "SSSSSSSST\xffSST\xffssssAAAAIIII"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 6 || len(in) > 2000 {
			return
		}
		cfg := fuzzConfig([6]byte(in[:6]))
		if err := cfg.Validate(); err != nil {
			t.Fatalf("the fuzz configuration is invalid: %v", err)
		}
		runAgainstModel(t, cfg, in[6:])
	})
}

func runAgainstModel(t *testing.T, cfg Config, steps []byte) *model {
	t.Helper()
	type pair struct {
		p Permit
		m modelPermit
	}
	b, err := NewAt(epoch, Key{}, cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &model{cfg: cfg.WithDefaults()}
	var now time.Duration
	var kept, reported []pair
	allow := func(i int) (pair, bool) {
		var p Permit
		var ok bool
		if gateKind(b.gate.Load()&gateMask) == gateFree && i%2 == 0 {
			p, ok = b.Allow() // which looks at no clock, so that its permit has no start
		} else {
			p, ok = b.AllowAt(epoch.Add(now))
		}
		m, want := d.allow(now, i)
		if ok != want || ok && p.Probe() != (m.kind == permitFirst || m.kind == permitRamp) {
			t.Fatalf("step %d at %v: admitted %v (probe %v), the model says %v (kind %d)", i, now, ok, p.Probe(), want, m.kind)
		}
		return pair{p, m}, ok
	}
	done := func(x pair, r Result) {
		b.DoneAt(epoch.Add(now), x.p, r)
		d.done(now, x.m, r)
	}
	results := []Result{Ignored, Success, Failure, Slow}
	for i := range steps {
		op, r := steps[i], results[steps[i]>>3&3]
		switch op & 7 {
		case 0: // one call
			if x, ok := allow(i); ok {
				done(x, r)
			}
		case 1, 2: // one permit, kept
			if x, ok := allow(i); ok {
				kept = append(kept, x)
			}
		case 3: // the oldest kept permit reported
			if len(kept) > 0 {
				done(kept[0], r)
				reported, kept = append(reported, kept[0]), kept[1:]
			}
		case 4: // time goes on, by up to 2 s
			now += time.Duration(op>>3) * 63 * time.Millisecond
		case 5: // the newest kept permit reported
			if n := len(kept); n > 0 {
				done(kept[n-1], r)
				reported, kept = append(reported, kept[n-1]), kept[:n-1]
			}
		case 6: // a first probe reported once more (a second report of another permit cannot be told from the first)
			if n := len(reported); n > 0 && reported[n-1].m.kind == permitFirst {
				done(reported[n-1], r)
			}
		case 7: // a long pause
			now += time.Duration(op>>3) * time.Second
		}
		compare(t, i, now, b, d)
	}
	return d
}

func compare(t *testing.T, step int, now time.Duration, b *Breaker, d *model) {
	t.Helper()
	d.tick(now)
	s := b.SnapshotAt(epoch.Add(now))
	n, failures, _ := d.window(d.cfg.FailureWindow)
	slowN, _, slow := d.window(d.cfg.SlowWindow)
	type seen struct {
		state                       State
		generation                  uint64
		streak, n, bad, slowN, slow int
		probes, opens               int
		lost, late, stale           int
		since                       time.Duration
		admitted                    int
		runFailed, runOthers        int
	}
	failed, others, _, _ := d.run()
	got := seen{
		s.State, s.Generation, s.Streak, s.FailureSamples, s.Failures, s.SlowSamples, s.SlowCalls, s.Probes, s.OpenStreak,
		int(s.Totals.Lost), int(s.Totals.Late), int(s.Totals.Stale), s.Since.Sub(epoch),
		int(s.Totals.Admitted), b.m.run.failed, b.m.run.others(),
	}
	want := seen{
		d.state, d.generation, d.streak(), n, failures, slowN, slow, len(d.first) + len(d.ramp), len(d.opened),
		d.lost, d.late, d.stale, d.since,
		d.admitted, len(failed), others,
	}
	if got != want {
		t.Fatalf("step %d at %v:\n got %+v\nwant %+v", step, now, got, want)
	}
	if s.State == HalfOpen && s.Share == 0 && s.Probes > d.cfg.ProbesInFlight {
		t.Fatalf("step %d: %d first probes under way, at most %d allowed", step, s.Probes, d.cfg.ProbesInFlight)
	}
}

// modelSteps is how many steps the comparison with the model takes in all: a quarter of a million in the usual run;
// go test ./breaker -run Model -model.steps 10000000 -v for a long one.
var modelSteps = flag.Int("model.steps", 240_000, "steps of the comparison with the naive model")

// illness is step i of 20 to 59 in the story of a service that falls ill: it is well until 35 and calls begin that answer
// later; then those go on to answer well, while new ones fail at once or soon.
func illness(rnd *rand.Rand, i int) byte {
	const (
		ignored, success, failure, slow = 0 << 3, 1 << 3, 2 << 3, 3 << 3

		call, keep, oldest, time, newest = 0, 1, 3, 4, 5
	)
	well := []byte{call | success, call | success, call | success, keep, keep, keep, time | 31<<3}
	ill := []byte{
		call | failure, call | failure, call | failure, call | failure, keep, keep, oldest | success, oldest | success, oldest | slow,
		newest | failure, newest | failure, newest | ignored, newest | success,
	}
	if i < 35 {
		return well[rnd.IntN(len(well))]
	}
	return ill[rnd.IntN(len(ill))]
}

// TestBreakerAgreesWithTheNaiveModelOnRandomSteps is the fuzz target on seeded inputs, long enough to open, ramp,
// lose permits and close many times. In every second input the service falls ill now and then.
func TestBreakerAgreesWithTheNaiveModelOnRandomSteps(t *testing.T) {
	t.Parallel()
	const length = 600
	total := *modelSteps
	if testing.Short() {
		total = min(total, 60_000)
	}
	var overtook, passed, startOver int
	for seed := range (total + length - 1) / length {
		rnd := seeded(uint64(seed))
		steps := make([]byte, length)
		for i := range steps {
			steps[i] = byte(rnd.Uint32())
			if seed%2 == 1 && i%60 >= 20 {
				steps[i] = illness(rnd, i%60)
				continue
			}
			if steps[i]&7 == 7 && rnd.IntN(4) > 0 { // long pauses are rare, calls are common
				steps[i] &^= 7
			}
		}
		var shape [6]byte
		for i := range shape {
			shape[i] = byte(rnd.Uint32())
		}
		cfg := fuzzConfig(shape)
		if seed%4 == 1 { // or the rates, which need few calls here, would open it first
			cfg.FailureRate, cfg.SlowRate = -1, -1
		}
		d := runAgainstModel(t, cfg, steps)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		overtook, passed, startOver = overtook+d.overtook, passed+d.passed, startOver+d.startOver
	}
	t.Logf("%d steps, no difference: %d good answers passed over, %d runs started over, %d openings by the order of admission alone",
		(total+length-1)/length*length, passed, startOver, overtook)
	if overtook < total/5000 || passed < total/500 || startOver < total/5000 {
		t.Error("the inputs hardly show the run of failures by the order of admission")
	}
}
