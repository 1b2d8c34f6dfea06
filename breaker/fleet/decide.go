package fleet

import (
	"math"
	"time"

	"spillway/breaker"
)

// poolZ is the least standard score that pooled evidence must reach: what opens a whole fleet is not left to the first
// look above a minimum.
const poolZ = 1.96

// decide returns the record that must follow the one in v, if one must. Every worker decides alike from the same view,
// except that what a worker reached alone is published by itself. v holds only members that are alive.
func decide(cfg breaker.Config, v View, me string) (breaker.Record, bool) {
	r := v.Record
	if r.Force != breaker.ForceNone && r.ForceLeft <= 0 {
		return endForce(r), true
	}
	if r.Force == breaker.ForceOpen || r.Force == breaker.ForceClosed || cfg.Mode == breaker.ModeDisabled && r.Force == breaker.ForceNone {
		return r, false
	}
	p := gather(v)
	switch r.State {
	case breaker.Closed:
		if why, ok := p.opensClosed(cfg); ok {
			return reopen(cfg, r, p, why), true
		}
	case breaker.Open:
		if r.Age >= r.Wait {
			if next, ok := rejoin(r, p.find(me)); ok {
				return next, true
			}
			return move(r, breaker.HalfOpen, breaker.Grounds{Reason: breaker.ReasonWaitOver}), true
		}
	case breaker.HalfOpen:
		if next, ok := rejoin(r, p.find(me)); ok {
			return next, true
		}
		if r.Ramping {
			return decideRamp(cfg, r, p)
		}
		return decideProbes(cfg, r, p)
	}
	return r, false
}

// endForce is the record after its force. The state that comes then is in it already and begins now; under a force to
// observe it went on.
func endForce(r breaker.Record) breaker.Record {
	if r.Force != breaker.ForceObserve {
		r = move(r, r.State, breaker.Grounds{Reason: breaker.ReasonForceEnded})
	} else {
		r.Epoch++
	}
	r.Force, r.ForceLeft = breaker.ForceNone, 0
	return r
}

func move(r breaker.Record, to breaker.State, why breaker.Grounds) breaker.Record {
	r.Epoch++
	r.Moves++
	r.State, r.Ramping, r.Age, r.Why = to, false, 0, why
	return r
}

// reopen opens the record. The wait grows unless the fleet has shown health since it closed.
func reopen(cfg breaker.Config, r breaker.Record, p pool, why breaker.Grounds) breaker.Record {
	if r.State == breaker.Closed && r.Age >= r.Wait && p.successes >= cfg.FailureMinCalls {
		r.Opens = 0
	}
	r = move(r, breaker.Open, why)
	r.Wait = cfg.WaitAfter(r.Opens)
	r.Opens++
	return r
}

// rejoin publishes how far a worker got while it was alone.
func rejoin(r breaker.Record, mine breaker.Evidence) (breaker.Record, bool) {
	if !mine.Own || mine.Epoch != r.Epoch {
		return r, false
	}
	switch {
	case mine.State == breaker.Closed:
		return move(r, breaker.Closed, breaker.Grounds{Reason: breaker.ReasonRampDone}), true
	case mine.State == breaker.HalfOpen && mine.Ramping && !r.Ramping:
		r = move(r, breaker.HalfOpen, breaker.Grounds{Reason: breaker.ReasonProbesSucceeded})
		r.Ramping, r.Age = true, mine.RampAge
		return r, true
	}
	return r, false
}

func decideProbes(cfg breaker.Config, r breaker.Record, p pool) (breaker.Record, bool) {
	why := breaker.Grounds{Samples: p.good + p.bad, Failures: p.bad, Window: r.Age}
	why.Rate = float64(p.bad) / float64(max(1, why.Samples))
	why.Bound = why.Rate
	// Two in a row of one worker open that worker. The order of the probes of several is not known, so among them more
	// must be bad than good.
	if p.bad >= cfg.ProbeFailures && p.bad > p.good && (p.badAt >= 2 || p.alive == 1) {
		why.Reason, why.Threshold = breaker.ReasonProbesFailed, float64(cfg.ProbeFailures)
		return reopen(cfg, r, p, why), true
	}
	if why, ok := p.quorum(); ok {
		return reopen(cfg, r, p, why), true
	}
	why.Reason = breaker.ReasonProbesSucceeded
	if n := cfg.SuccessesToClose; n > 0 {
		if why.Threshold = float64(n); p.good >= n {
			return move(r, breaker.Closed, why), true
		}
		return r, false
	}
	if why.Threshold = float64(cfg.FirstProbes); p.good < cfg.FirstProbes {
		return r, false
	}
	r = move(r, breaker.HalfOpen, why)
	r.Ramping = true
	return r, true
}

func decideRamp(cfg breaker.Config, r breaker.Record, p pool) (breaker.Record, bool) {
	minimum, z := cfg.RampMinCalls, max(cfg.Z, poolZ)
	top := r.Age >= rampLength(cfg)
	if top {
		minimum, z = 1, 0
	}
	half := func(e breaker.Evidence) breaker.Window { return e.Half }
	if why, ok := p.judge(half, minimum, cfg.FailureRate, z, failures); ok {
		why.Reason, why.Window = breaker.ReasonRampFailureRate, r.Age
		return reopen(cfg, r, p, why), true
	}
	if why, ok := p.judge(half, minimum, cfg.SlowRate, z, slow); ok {
		why.Reason, why.Window = breaker.ReasonRampSlowRate, r.Age
		return reopen(cfg, r, p, why), true
	}
	if why, ok := p.quorum(); ok {
		return reopen(cfg, r, p, why), true
	}
	if !top {
		return r, false
	}
	why := breaker.Grounds{Reason: breaker.ReasonRampDone, Window: r.Age}
	for _, e := range p.under {
		why.Samples, why.Failures, why.Slow = why.Samples+e.Half.Samples, why.Failures+e.Half.Failures, why.Slow+e.Half.Slow
	}
	return move(r, breaker.Closed, why), true
}

// rampLength is how long a ramp takes until its share reaches 1.
func rampLength(cfg breaker.Config) time.Duration {
	steps := math.Ceil(math.Log(1/cfg.RampStart)/math.Log(cfg.RampFactor) - 1e-9)
	return time.Duration(max(0, steps)) * cfg.RampStep
}

// pool is what the living members of a view have seen together.
type pool struct {
	names []string
	all   []breaker.Evidence // of the living
	under []breaker.Evidence // those of the record's epoch

	alive     int
	opened    int // by themselves
	successes int // since closed
	good, bad int // first probes
	badAt     int // workers with bad ones
}

func gather(v View) pool {
	p := pool{alive: len(v.Members)}
	for _, m := range v.Members {
		e := m.Evidence
		p.names, p.all = append(p.names, m.Worker), append(p.all, e)
		if e.Epoch != v.Record.Epoch {
			continue
		}
		p.under = append(p.under, e)
		p.successes += e.Successes
		if e.Own && e.State == breaker.Open {
			p.opened++
		}
		p.good, p.bad = p.good+e.ProbesGood, p.bad+e.ProbesBad
		if e.ProbesBad > 0 {
			p.badAt++
		}
	}
	return p
}

func (p *pool) find(worker string) breaker.Evidence {
	for i, name := range p.names {
		if name == worker {
			return p.all[i]
		}
	}
	return breaker.Evidence{}
}

func (p *pool) opensClosed(cfg breaker.Config) (breaker.Grounds, bool) {
	z := max(cfg.Z, poolZ)
	why, ok := p.judge(func(e breaker.Evidence) breaker.Window { return e.Failure }, cfg.FailureMinCalls, cfg.FailureRate, z, failures)
	if ok {
		why.Reason, why.Window = breaker.ReasonFailureRate, cfg.FailureWindow
		return why, true
	}
	why, ok = p.judge(func(e breaker.Evidence) breaker.Window { return e.Slow }, cfg.SlowMinCalls, cfg.SlowRate, z, slow)
	if ok {
		why.Reason, why.Window = breaker.ReasonSlowRate, cfg.SlowWindow
		return why, true
	}
	return p.quorum()
}

// quorum reports whether enough of the living have opened by themselves: two and half of them, or all.
func (p *pool) quorum() (breaker.Grounds, bool) {
	need := min(p.alive, max(2, (p.alive+1)/2))
	if p.opened == 0 || p.opened < need {
		return breaker.Grounds{}, false
	}
	rate := float64(p.opened) / float64(p.alive)
	return breaker.Grounds{
		Reason: breaker.ReasonQuorum, Samples: p.alive, Failures: p.opened, Rate: rate, Bound: rate, Threshold: float64(need),
	}, true
}

func failures(w breaker.Window) int { return w.Failures }
func slow(w breaker.Window) int     { return w.Slow }

// judge applies a rate's rule to the results of all. The one worker that saw most of the bad ones must not decide alone
// while others call too: without it, they have to reach the raw threshold.
func (p *pool) judge(window func(breaker.Evidence) breaker.Window, minimum int, threshold, z float64, bad func(breaker.Window) int) (breaker.Grounds, bool) {
	if threshold >= 1 {
		z = 0 // the bound of an all-bad sample stays below 1
	}
	var sum, worst breaker.Window
	for _, e := range p.under {
		w := window(e)
		sum = breaker.Window{Samples: sum.Samples + w.Samples, Failures: sum.Failures + w.Failures, Slow: sum.Slow + w.Slow}
		if bad(w) > bad(worst) {
			worst = w
		}
	}
	reached, rate, bound := breaker.Judge(bad(sum), sum.Samples, minimum, threshold, z)
	others := sum.Samples - worst.Samples
	if !reached || float64(bad(sum)-bad(worst)) < threshold*float64(others) {
		return breaker.Grounds{}, false
	}
	return breaker.Grounds{
		Samples: sum.Samples, Failures: sum.Failures, Slow: sum.Slow, Rate: rate, Bound: bound, Threshold: threshold,
	}, true
}
