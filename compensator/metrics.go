package compensator

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// metrics of one route. All are there from the start, so that a rate over them has a beginning.
type metrics struct {
	claimed  *prometheus.CounterVec // by phase
	lookups  *prometheus.CounterVec // by verdict
	settled  *prometheus.CounterVec // by what the order became
	rescued  prometheus.Counter
	failures *prometheus.CounterVec // by service
}

// What becomes of a finding that did not move its order.
const (
	becameStale    = "stale"
	becameConflict = "conflict"
	becameLost     = "lost"
)

func newMetrics(reg prometheus.Registerer, route string) (*metrics, error) {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "spillway", Subsystem: "compensator", Name: name, Help: help}
	}
	m := &metrics{
		claimed:  prometheus.NewCounterVec(opts("claimed_total", "Due orders this worker claimed, by the phase they are in then."), []string{"phase"}),
		lookups:  prometheus.NewCounterVec(opts("lookups_total", "Lookups by what they showed; REFUSED ones were not made, or not counted."), []string{"verdict"}),
		settled:  prometheus.NewCounterVec(opts("settled_total", "Findings by what the order became: stale ones came late, lost ones could not be written."), []string{"became"}),
		rescued:  prometheus.NewCounter(opts("rescued_total", "Orders put into the replay queue again that it had forgotten or never got.")),
		failures: prometheus.NewCounterVec(opts("failures_total", "Calls to a service that went wrong."), []string{"service"}),
	}
	for _, p := range []order.Phase{order.Replaying, order.Unknown} {
		m.claimed.WithLabelValues(p.String())
	}
	for _, v := range order.Verdicts() {
		m.lookups.WithLabelValues(v.String())
	}
	for _, became := range []string{
		order.Succeeded.String(), order.Failed.String(), order.Dead.String(), order.Replaying.String(),
		order.Unknown.String(), becameStale, becameConflict, becameLost,
	} {
		m.settled.WithLabelValues(became)
	}
	if reg == nil {
		return m, nil
	}
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"route": route}, reg)
	for _, c := range []prometheus.Collector{m.claimed, m.lookups, m.settled, m.rescued, m.failures} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of the compensator of route %s: %w", route, err)
		}
	}
	return m, nil
}

func (m *metrics) became(t order.Transition, how order.Settled) {
	became := t.State.String()
	if t.State == order.Processing {
		became = t.Phase.String()
	}
	switch how {
	case order.Applied:
	case order.Stale:
		became = becameStale
	case order.Conflict:
		became = becameConflict
	}
	m.settled.WithLabelValues(became).Inc()
}

// service follows whether one service answers, so that the log says so once per change. One goroutine uses it.
type service struct {
	name     string
	log      *slog.Logger
	failures prometheus.Counter
	away     bool
}

// note takes down how a call ended. A call that our own end cut short says nothing.
func (s *service) note(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		s.failures.Inc()
		if !s.away {
			s.away = true
			s.log.WarnContext(ctx, "compensator: a service does not answer", slog.String("service", s.name), slog.Any("error", err))
		}
	case s.away:
		s.away = false
		s.log.InfoContext(ctx, "compensator: a service answers again", slog.String("service", s.name))
	}
}
