package downstream

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"spillway/order"
)

// endpoints is the shell of a choice: a lock, the clock, the addresses, and what people are told. It is safe for
// concurrent use and starts no goroutine; an instance that is out is probed by the calls that come.
type endpoints struct {
	hosts []string
	start time.Time
	log   *slog.Logger

	mu     sync.Mutex // guards choice
	choice choice
}

// newEndpoints returns nil where there is one instance only, which needs no choice.
func newEndpoints(c Config, first *url.URL, others []*url.URL) *endpoints {
	if len(others) == 0 {
		return nil
	}
	e := &endpoints{hosts: []string{first.Host}, start: time.Now(), log: c.Logger}
	for _, u := range others {
		e.hosts = append(e.hosts, u.Host)
	}
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // which instance is no secret
	e.choice = newChoice(c.Ejection, len(e.hosts), rnd.Float64)
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	return e
}

// direct sends a request to the instance that is chosen for it. The ticket must be given back by done.
func (e *endpoints) direct(req *http.Request) ticket {
	e.mu.Lock()
	t := e.choice.pick(time.Since(e.start))
	e.mu.Unlock()
	req.URL.Host, req.Host = e.hosts[t.at], e.hosts[t.at]
	return t
}

// done gives a ticket back with what came of the call. It reports whether a failure is the instance's own, and adds to the
// detail of a failure which instance that was.
func (e *endpoints) done(t ticket, o order.Outcome, detail string) (one bool, said string) {
	e.mu.Lock()
	v := shown(o)
	one, m := e.choice.done(time.Since(e.start), t, v)
	wait := e.choice.ends[t.at].wait
	e.mu.Unlock()
	switch m {
	case takenOut:
		e.log.Warn("endpoint taken out", slog.Int("endpoint", t.at), slog.String("host", e.hosts[t.at]), slog.Duration("wait", wait))
	case probeFailed:
		e.log.Info("endpoint stays out", slog.Int("endpoint", t.at), slog.String("host", e.hosts[t.at]), slog.Duration("wait", wait))
	case cameBack:
		e.log.Info("endpoint is back", slog.Int("endpoint", t.at), slog.String("host", e.hosts[t.at]))
	case stays:
	}
	if v == showsFailure {
		detail = cut(fmt.Sprintf("endpoint %d: %s", t.at, detail))
	}
	return one, detail
}

// shown is what an outcome shows of the instance that was called: what the breaker learns of it.
func shown(o order.Outcome) verdict {
	switch o {
	case order.OutcomeSucceeded, order.OutcomeRejected:
		return showsHealth
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown:
		return showsFailure
	case order.NoOutcome, order.OutcomeInvalid, order.OutcomeRefused, order.OutcomeCancelled:
		return showsNothing
	}
	return showsNothing
}
