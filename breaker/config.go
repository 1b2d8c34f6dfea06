package breaker

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Bounds that keep a breaker small and its waits finite.
const (
	maxWindow         = 5 * time.Minute
	maxMinCalls       = 1_000_000
	maxOpenWait       = 24 * time.Hour
	maxProbesInFlight = 16
	maxDeadline       = 10 * time.Minute
)

// Config holds the numbers of a breaker. The zero value of each field is its default; a negative value turns a rule
// off where the field says so.
type Config struct {
	// Mode at the start; SetMode changes it later. Default ModeEnforce.
	Mode Mode

	// FailureWindow is how far back the failure rate looks: whole seconds, 1 s to 5 min, default 10 s. The window is
	// made of one-second buckets and includes the running one, so it spans between FailureWindow-1 s and FailureWindow.
	FailureWindow time.Duration
	// FailureRate is the share of failures that opens the breaker, 0 < rate <= 1, default 0.5; negative: rule off.
	FailureRate float64
	// FailureMinCalls is how many results the window must hold before its rate means anything, 1 to 1e6, default 20.
	FailureMinCalls int

	// SlowCall is the duration beyond which a success counts as slow. Zero: durations are not looked at and only
	// results reported as Slow are slow.
	SlowCall time.Duration
	// SlowWindow, SlowRate and SlowMinCalls are the slow rule's own; defaults and bounds as for failures.
	SlowWindow   time.Duration
	SlowRate     float64
	SlowMinCalls int

	// ConsecutiveFailures in a row open the breaker whatever the window holds, 1 to 1e6, default 20; negative: rule off.
	// The count does not age; any answer that is not a failure ends it. So does the second count, of calls in the order they
	// were admitted, but for answers of calls older than its first failure: those are good for a while after a service fell ill.
	// There each call that has not failed yet stands against two that have, because failures may be the quicker answers.
	ConsecutiveFailures int

	// Z is the standard score of the Wilson lower bound that a rate must reach in place of the raw rate, 0 to 5.
	// Zero, the default, compares the raw rate. 1.96 keeps a service that truly fails 40 % of its calls from tripping a
	// 50 % rule at the first look, and costs some 60 more calls to see a true 60 %; it costs nothing at 90 %.
	Z float64

	// OpenWait is how long the first opening lasts, 1 ms to 24 h, default 30 s.
	OpenWait time.Duration
	// OpenJitter spreads the wait evenly over wait*(1-j) to wait*(1+j), 0 < j < 1, default 0.2; negative: none.
	OpenJitter float64
	// OpenGrowth multiplies the wait at each further opening, 1 to 10, default 1.5. It starts over when the breaker
	// opens after it has been closed for at least its last wait and saw FailureMinCalls successes in that time.
	OpenGrowth float64
	// OpenWaitMax caps the wait before jitter, OpenWait to 24 h, default 5 min (or OpenWait if that is longer).
	OpenWaitMax time.Duration

	// FirstProbes is how many probes must succeed before the ramp starts, 1 to 100, default 3.
	FirstProbes int
	// ProbesInFlight is how many first probes may run at once, 1 to 16, default 1 (one after the other).
	ProbesInFlight int
	// ProbeFailures is how many bad first probes in a row reopen the breaker, 1 to 100, default 2.
	ProbeFailures int

	// RampStart is the share of calls admitted in the ramp's first step, 0 < share <= 1, default 0.01.
	RampStart float64
	// RampFactor multiplies the share from step to step, 1.01 to 100, default 2.
	RampFactor float64
	// RampStep is how long a step lasts, 1 ms to 10 min, default 3 s. At least one call is admitted in each step. The
	// breaker closes when the share would reach 1: after 21 s with the defaults.
	RampStep time.Duration
	// RampMinCalls is how many results since half-open the ramp's own rates need, 1 to 1e6, default 5.
	RampMinCalls int
	// SuccessesToClose, when positive, replaces FirstProbes and the ramp: the breaker closes after that many
	// successful probes, at most 1000. Zero, the default, ramps.
	SuccessesToClose int

	// PermitDeadline is how long a permit may stay unreported, 1 ms to 10 min, default 10 s. It must be longer than
	// any call. A first probe is counted failed at its deadline, a probe of the ramp at most a second later.
	PermitDeadline time.Duration
}

// FieldError names one field of a Config that cannot be used.
type FieldError struct {
	Field    string // the field's name in Config
	Value    string // the value found
	Accepted string // what would be accepted
}

// Error returns the field, its value and what is accepted.
func (e *FieldError) Error() string {
	return fmt.Sprintf("breaker: %s is %s, accepted: %s", e.Field, e.Value, e.Accepted)
}

// WithDefaults returns the configuration with every zero field replaced by its default.
func (c Config) WithDefaults() Config {
	c.FailureWindow = orDefault(c.FailureWindow, 10*time.Second)
	c.FailureRate = orDefault(c.FailureRate, 0.5)
	c.FailureMinCalls = orDefault(c.FailureMinCalls, 20)
	c.SlowWindow = orDefault(c.SlowWindow, 10*time.Second)
	c.SlowRate = orDefault(c.SlowRate, 0.5)
	c.SlowMinCalls = orDefault(c.SlowMinCalls, 20)
	c.ConsecutiveFailures = orDefault(c.ConsecutiveFailures, 20)
	c.OpenWait = orDefault(c.OpenWait, 30*time.Second)
	c.OpenJitter = orDefault(c.OpenJitter, 0.2)
	c.OpenGrowth = orDefault(c.OpenGrowth, 1.5)
	c.OpenWaitMax = orDefault(c.OpenWaitMax, max(5*time.Minute, c.OpenWait))
	c.FirstProbes = orDefault(c.FirstProbes, 3)
	c.ProbesInFlight = orDefault(c.ProbesInFlight, 1)
	c.ProbeFailures = orDefault(c.ProbeFailures, 2)
	c.RampStart = orDefault(c.RampStart, 0.01)
	c.RampFactor = orDefault(c.RampFactor, 2)
	c.RampStep = orDefault(c.RampStep, 3*time.Second)
	c.RampMinCalls = orDefault(c.RampMinCalls, 5)
	c.PermitDeadline = orDefault(c.PermitDeadline, 10*time.Second)
	return c
}

// Validate reports every field that cannot be used, each as a *FieldError, joined; nil when all can. Zero fields are
// judged by their defaults.
func (c Config) Validate() error {
	d := c.WithDefaults()
	var v validation
	v.check(d.Mode.valid(), "Mode", fmt.Sprintf("%d", d.Mode), "enforce, alert, observe or disabled")
	v.window("FailureWindow", d.FailureWindow)
	v.rate("FailureRate", d.FailureRate, d.Z)
	v.count("FailureMinCalls", d.FailureMinCalls, 1, maxMinCalls)
	v.check(d.SlowCall >= 0, "SlowCall", d.SlowCall.String(), "0s (durations are not looked at) or more")
	v.window("SlowWindow", d.SlowWindow)
	v.rate("SlowRate", d.SlowRate, d.Z)
	v.count("SlowMinCalls", d.SlowMinCalls, 1, maxMinCalls)
	v.check(d.ConsecutiveFailures <= maxMinCalls, "ConsecutiveFailures", fmt.Sprint(d.ConsecutiveFailures),
		fmt.Sprintf("1 to %d, or negative for off", maxMinCalls))
	v.number("Z", d.Z, 0, 5, "0 to 5")
	v.duration("OpenWait", d.OpenWait, time.Millisecond, maxOpenWait)
	v.check(d.OpenJitter < 1, "OpenJitter", fmt.Sprint(d.OpenJitter), "more than 0 and less than 1, or negative for none")
	v.number("OpenGrowth", d.OpenGrowth, 1, 10, "1 to 10")
	v.duration("OpenWaitMax", d.OpenWaitMax, max(d.OpenWait, time.Millisecond), maxOpenWait)
	v.count("FirstProbes", d.FirstProbes, 1, 100)
	v.count("ProbesInFlight", d.ProbesInFlight, 1, maxProbesInFlight)
	v.count("ProbeFailures", d.ProbeFailures, 1, 100)
	v.check(d.RampStart > 0 && d.RampStart <= 1, "RampStart", fmt.Sprint(d.RampStart), "more than 0, at most 1")
	v.number("RampFactor", d.RampFactor, 1.01, 100, "1.01 to 100")
	v.duration("RampStep", d.RampStep, time.Millisecond, 10*time.Minute)
	v.count("RampMinCalls", d.RampMinCalls, 1, maxMinCalls)
	v.count("SuccessesToClose", d.SuccessesToClose, 0, 1000)
	v.duration("PermitDeadline", d.PermitDeadline, time.Millisecond, maxDeadline)
	v.check(d.Mode == ModeDisabled || d.FailureRate > 0 || d.SlowRate > 0 || d.ConsecutiveFailures > 0,
		"FailureRate, SlowRate and ConsecutiveFailures", "all off", "at least one rule, or mode disabled")
	return errors.Join(v.errs...)
}

// validation collects the fields that cannot be used.
type validation struct{ errs []error }

func (v *validation) check(ok bool, field, value, accepted string) {
	if !ok {
		v.errs = append(v.errs, &FieldError{Field: field, Value: value, Accepted: accepted})
	}
}

func (v *validation) window(field string, d time.Duration) {
	v.check(d >= time.Second && d <= maxWindow && d%time.Second == 0, field, d.String(), "whole seconds, 1s to 5m")
}

func (v *validation) rate(field string, r, z float64) {
	// With z > 0 the bound of an all-bad window stays below 1, so a threshold of 1 would never be reached.
	if z > 0 {
		v.check(r < 1, field, fmt.Sprint(r), "more than 0 and less than 1 while Z is set, or negative for off")
		return
	}
	v.check(r <= 1, field, fmt.Sprint(r), "more than 0, at most 1, or negative for off")
}

func (v *validation) count(field string, n, low, high int) {
	v.check(n >= low && n <= high, field, fmt.Sprint(n), fmt.Sprintf("%d to %d", low, high))
}

func (v *validation) number(field string, x, low, high float64, accepted string) {
	v.check(x >= low && x <= high, field, fmt.Sprint(x), accepted)
}

func (v *validation) duration(field string, d, low, high time.Duration) {
	v.check(d >= low && d <= high, field, d.String(), unzero(low)+" to "+unzero(high))
}

// unzero prints a duration without the zero minutes and seconds that a reader need not see: 24h, not 24h0m0s.
func unzero(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// wilson returns the lower end of the Wilson score interval for bad out of n at standard score z (Wilson 1927); with
// z = 0 it is the raw rate.
func wilson(bad, n int, z float64) float64 {
	if n == 0 {
		return 0
	}
	size, rate := float64(n), float64(bad)/float64(n)
	if z == 0 {
		return rate
	}
	zz := z * z / size
	return (rate + zz/2 - z*math.Sqrt(rate*(1-rate)/size+zz/(4*size))) / (1 + zz)
}
