package compensator

import "time"

// pace says how much to claim and how long to wait. It is pure.
type pace struct {
	interval time.Duration // between claims that are not full
	longest  time.Duration // of any wait
	batch    int           // bound of a claim
	rounds   int           // lookups one permit can make within half a lease

	width    int // bound of a claim after a refusal: doubles while lookups are let through
	failures int // of the store, in a row
	refusals int // rounds in a row in which the breaker refused
}

// round is what one claim came to.
type round struct {
	failed  bool // the store did not answer
	full    bool // as many orders came as were asked for
	refused bool // the breaker refused a lookup
	looked  int  // lookups that were made
	away    bool // the replay queue took nothing
}

func newPace(cfg Config) pace {
	fits := int(cfg.Lease / 2 / max(cfg.LookupTimeout, 1))
	return pace{
		interval: cfg.Interval, longest: cfg.MaxPause, batch: cfg.Batch, width: cfg.Batch,
		rounds: min(max(fits, 1), 4), // more than a few would only hold orders back from other workers
	}
}

// claim is how many orders to claim with so many permits free. While the breaker refuses lookups a claim needs no
// permits: it is there for orders that the replay queue forgot.
func (p *pace) claim(free int, open bool) int {
	if open {
		return p.batch
	}
	return max(min(p.batch, free*p.rounds, p.width), 0)
}

// after takes down a round and says how long to wait before the next.
func (p *pace) after(r round) time.Duration {
	if r.failed {
		p.failures++
		return p.backoff(p.failures)
	}
	p.failures = 0
	if r.refused {
		p.width = 1
		p.refusals++
		return p.backoff(p.refusals)
	}
	p.refusals = 0
	if r.looked > 0 {
		p.width = min(2*p.width, p.batch)
	}
	switch {
	case r.full && r.away:
		return p.interval / 8 // on to what is due behind them, but not in a hot loop
	case r.full:
		return 0
	}
	return p.interval
}

// backoff doubles the interval for each further time.
func (p *pace) backoff(times int) time.Duration {
	d := p.interval
	for range times - 1 {
		if d >= p.longest {
			break
		}
		d *= 2
	}
	return min(d, p.longest)
}
