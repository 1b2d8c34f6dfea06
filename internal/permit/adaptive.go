package permit

import (
	"sync"
	"sync/atomic"
	"time"

	"spillway/internal/adapt"
	"spillway/order"
)

// Mode says whether a pool's limit is adapted to what the service can take.
type Mode int

// The modes.
const (
	Fixed   Mode = iota // it is not
	Observe             // it is computed and shown; the limit stays
	Enforce             // it is
)

// learner adapts a pool's limit.
type learner struct {
	on atomic.Bool // whether there is a limiter, so that a fixed pool takes no lock for it

	mu      sync.Mutex // guards what follows; taken before the pool's own
	limiter *adapt.Limiter
	asked   Config // the last configuration
}

// configure takes a configuration and returns the limit to begin with. The lock is held.
func (l *learner) configure(cfg Config) int {
	was := l.asked
	l.asked = cfg
	bounds := adapt.Config{Min: cfg.Min, Max: cfg.Max, Start: cfg.Limit}
	switch {
	case cfg.Mode == Fixed:
		l.limiter = nil
	case l.limiter == nil || was.Mode != cfg.Mode || was.Limit != cfg.Limit:
		l.limiter = adapt.New(bounds)
	default:
		l.limiter.Configure(bounds)
	}
	l.on.Store(l.limiter != nil)
	if cfg.Mode == Enforce {
		return l.limiter.Limit()
	}
	return cfg.Limit
}

// Learn tells the pool how a call went, while its permit is held. It is for submits: a lookup says nothing
// of how many orders the service takes. A fixed pool learns nothing. It allocates nothing.
func (p *Pool) Learn(began, ended time.Time, outcome order.Outcome, reason order.Reason) {
	if !p.on.Load() {
		return
	}
	p.learner.mu.Lock()
	defer p.learner.mu.Unlock()
	if p.limiter == nil {
		return
	}
	limit := p.limiter.Note(began, ended, p.InUse(), kind(outcome, reason))
	if p.asked.Mode == Enforce {
		p.setLimit(limit)
	}
}

// Adaptive is the limit that was learnt, Min to Max, whether it is in force or not; in a fixed pool the limit. What is in
// force may be a little more, or for a moment much less, while the pool tries what the service takes.
func (p *Pool) Adaptive() int {
	p.learner.mu.Lock()
	defer p.learner.mu.Unlock()
	if p.limiter == nil {
		return p.asked.Limit
	}
	return p.limiter.Base()
}

// setLimit sets the limit alone: 1 to 100000, others are brought to the nearest.
func (p *Pool) setLimit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = clamp(n); n != p.cfg.Limit {
		p.cfg.Limit = n
		p.resize()
	}
}

// kind is what an outcome says of the service's room for more calls: what it answered counts, and what it had no room or
// no time for. Its errors are the breaker's.
func kind(o order.Outcome, r order.Reason) adapt.Kind {
	switch o {
	case order.OutcomeSucceeded, order.OutcomeRejected:
		return adapt.Answered
	case order.OutcomeOverloaded:
		return adapt.Dropped
	case order.OutcomeUnknown:
		if r == order.UpstreamTimeout {
			return adapt.Dropped
		}
		return adapt.Ignored
	case order.NoOutcome, order.OutcomeInvalid, order.OutcomeNotSent, order.OutcomeRefused, order.OutcomeCancelled:
		return adapt.Ignored
	}
	return adapt.Ignored
}
