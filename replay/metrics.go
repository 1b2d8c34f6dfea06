package replay

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// metrics of one route. All are there from the start, so that a rate over them has a beginning.
type metrics struct {
	depth      *prometheus.GaugeVec   // by state
	oldest     prometheus.Gauge       // seconds
	pushed     prometheus.Counter     // orders
	full       prometheus.Counter     // orders
	finished   *prometheus.CounterVec // by what the order became
	dropped    prometheus.Counter
	putOff     prometheus.Counter
	unreadable prometheus.Counter
	limit      prometheus.Gauge
}

// becameStale is the label of an order whose row had moved on when its attempt was to be settled.
const becameStale = "stale"

func newMetrics(reg prometheus.Registerer, route string) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "spillway", Subsystem: "replay", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "spillway", Subsystem: "replay", Name: name, Help: help}
	}
	m := &metrics{
		depth:  prometheus.NewGaugeVec(gauge("depth", "Entries in the replay queue, over all workers."), []string{"state"}),
		oldest: prometheus.NewGauge(gauge("oldest_seconds", "How long the oldest order has been in the replay queue.")),
		limit:  prometheus.NewGauge(gauge("pace", "How many replayed orders may be in flight now.")),
		pushed: counter("pushed_total", "Orders this worker handed to the replay queue."),
		full:   counter("full_total", "Orders this worker could not hand to the replay queue because it was full."),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "spillway", Subsystem: "replay", Name: "finished_total",
			Help: "Attempts of replayed orders that were settled, by what the order became.",
		}, []string{"became"}),
		dropped:    counter("dropped_total", "Entries dropped because their order had moved on."),
		putOff:     counter("put_off_total", "Entries put off because their tenant was at its rate."),
		unreadable: counter("unreadable_total", "Entries that could not be read and became dead letters."),
	}
	for _, state := range []string{"ready", "delayed", "in_flight"} {
		m.depth.WithLabelValues(state)
	}
	for _, became := range []string{
		order.Succeeded.String(), order.Failed.String(), order.Dead.String(),
		order.Replaying.String(), order.Unknown.String(), becameStale,
	} {
		m.finished.WithLabelValues(became)
	}
	if reg == nil {
		return m, nil
	}
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"route": route}, reg)
	for _, c := range []prometheus.Collector{m.depth, m.oldest, m.limit, m.pushed, m.full, m.finished, m.dropped, m.putOff, m.unreadable} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("metrics of the replay of route %s: %w", route, err)
		}
	}
	return m, nil
}

// saw takes down a look at the queue.
func (m *metrics) saw(d Depths) {
	m.depth.WithLabelValues("ready").Set(float64(d.Ready))
	m.depth.WithLabelValues("delayed").Set(float64(d.Delayed))
	m.depth.WithLabelValues("in_flight").Set(float64(d.InFlight))
	m.oldest.Set(d.Oldest.Seconds())
}

// settled takes down what an order became.
func (m *metrics) settled(t order.Transition, how order.Settled) {
	became := t.State.String()
	if t.State == order.Processing {
		became = t.Phase.String()
	}
	if how != order.Applied {
		became = becameStale
	}
	m.finished.WithLabelValues(became).Inc()
}
