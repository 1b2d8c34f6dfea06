package breakersim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"spillway/breaker"
)

// Bounds of what is generated.
const (
	maxPhases    = 100
	maxGenerated = 50_000_000 // calls
	maxPhase     = 30 * 24 * time.Hour
	maxRate      = 1e6 // calls a second
)

// phase is a time in which a service behaves one way.
type phase struct {
	rate        float64 // calls a second
	lasts       time.Duration
	fail        float64 // share of failures
	latency     time.Duration
	slow        float64 // share of calls that take slowLatency
	slowLatency time.Duration
}

// Generator makes up a trace: calls at random moments, with the shares and latencies of the phases. The same seed gives
// the same trace. It is a [Source] and not safe for concurrent use.
type Generator struct {
	phases []phase
	rnd    *rand.Rand
	start  time.Time
	now    time.Duration
	ends   time.Duration // of the first of phases
}

const acceptSpec = "phases with ; between them, each a list such as rate=200,for=5m,fail=2%,latency=20ms,slow=1%,slow_latency=1s; " +
	"what a phase leaves out is as in the one before"

// Generate reads a specification: see the error's words for what it may be.
func Generate(spec string, seed uint64) (*Generator, error) {
	g := &Generator{
		rnd:   rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a made-up trace, not a secret
		start: time.Unix(0, 0).UTC(),
	}
	p := phase{rate: 100, latency: 20 * time.Millisecond, slowLatency: time.Second}
	calls := 0.0
	for text := range strings.SplitSeq(spec, ";") {
		if len(g.phases) == maxPhases {
			return nil, fmt.Errorf("more than %d phases", maxPhases)
		}
		p.lasts = 0
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if why := p.set(strings.TrimSpace(key), strings.TrimSpace(value)); why != "" {
				return nil, fmt.Errorf("phase %d: %q %s; accepted: %s", len(g.phases)+1, strings.TrimSpace(part), why, acceptSpec)
			}
		}
		if p.lasts == 0 {
			return nil, fmt.Errorf("phase %d: does not say for how long; accepted: %s", len(g.phases)+1, acceptSpec)
		}
		if calls += p.rate * p.lasts.Seconds(); calls > maxGenerated {
			return nil, fmt.Errorf("more than %d calls in all", maxGenerated)
		}
		g.phases = append(g.phases, p)
	}
	g.ends = g.phases[0].lasts
	return g, nil
}

func (p *phase) set(key, value string) (why string) {
	var err error
	switch key {
	case "rate":
		if p.rate, err = strconv.ParseFloat(value, 64); err != nil || !(p.rate > 0 && p.rate <= maxRate) {
			return "is no rate: want calls a second, more than 0 and at most 1000000"
		}
	case "for":
		if p.lasts, err = time.ParseDuration(value); err != nil || p.lasts <= 0 || p.lasts > maxPhase {
			return "is no time: want a duration with a unit, at most 720h"
		}
	case "latency":
		return setLatency(&p.latency, value)
	case "slow_latency":
		return setLatency(&p.slowLatency, value)
	case "fail":
		return setShare(&p.fail, value)
	case "slow":
		return setShare(&p.slow, value)
	default:
		return "is not known"
	}
	return ""
}

func setLatency(to *time.Duration, value string) (why string) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxLatency/10 {
		return "is no latency: want a duration with a unit, at most 2h24m"
	}
	*to = d
	return ""
}

func setShare(to *float64, value string) (why string) {
	number, ok := strings.CutSuffix(value, "%")
	share, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(share >= 0 && share <= 100) {
		return "is no share: want 0% to 100%"
	}
	*to = share / 100
	return ""
}

// Next makes up one call. The error is io.EOF after the last phase.
func (g *Generator) Next() (Call, error) {
	if len(g.phases) == 0 {
		return Call{}, io.EOF
	}
	g.now += time.Duration(g.rnd.ExpFloat64() / g.phases[0].rate * float64(time.Second))
	for g.now >= g.ends {
		rest := g.now - g.ends
		rate := g.phases[0].rate
		if g.phases = g.phases[1:]; len(g.phases) == 0 {
			return Call{}, io.EOF
		}
		// What is left of the gap goes by at the rate of the phase that begins.
		g.now = g.ends + time.Duration(float64(rest)*rate/g.phases[0].rate)
		g.ends += g.phases[0].lasts
	}
	p := &g.phases[0]
	c := Call{At: g.start.Add(g.now), Result: breaker.Success, Latency: spread(p.latency, g.rnd)}
	if g.rnd.Float64() < p.fail {
		c.Result = breaker.Failure
	}
	if g.rnd.Float64() < p.slow {
		c.Latency = spread(p.slowLatency, g.rnd)
	}
	return c, nil
}

// spread draws a latency around a mean: half of it always, the rest with a tail.
func spread(mean time.Duration, rnd *rand.Rand) time.Duration {
	return time.Duration(float64(mean) * min(.5+.5*rnd.ExpFloat64(), 10))
}

var errNoCalls = errors.New("the trace holds no call")
