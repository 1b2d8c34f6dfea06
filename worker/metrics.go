package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/breaker"
	"spillway/internal/permit"
	"spillway/order"
)

// routeMetrics is what a route shows beside what its parts show of themselves.
type routeMetrics struct {
	took       *prometheus.HistogramVec
	moved      *prometheus.CounterVec
	processing *prometheus.GaugeVec
	oldest     prometheus.Gauge
	dead       prometheus.Gauge
}

func newRouteMetrics(route string, reg prometheus.Registerer, permits *permit.Pool, breakers []*breaker.Breaker) *routeMetrics {
	labels := prometheus.Labels{"route": route}
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Name: "spillway_" + name, Help: help, ConstLabels: labels}
	}
	m := &routeMetrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_call_seconds", Help: "How long calls to the downstream take.", ConstLabels: labels,
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, []string{"lane", "outcome"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_breaker_moves_total", Help: "Moves of the breakers.", ConstLabels: labels,
		}, []string{"endpoint", "to"}),
		processing: prometheus.NewGaugeVec(gauge("processing_orders",
			"PROCESSING orders of the route, over all workers, by who is due to act."), []string{"phase"}),
		oldest: prometheus.NewGauge(gauge("oldest_processing_seconds", "Age of the oldest PROCESSING order of the route.")),
		dead:   prometheus.NewGauge(gauge("dead_letters", "Dead letters of the route that wait for a person.")),
	}
	for _, endpoint := range []string{"submit", "lookup"} {
		for _, s := range []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen} {
			m.moved.WithLabelValues(endpoint, s.String())
		}
	}
	reg.MustRegister(m.took, m.moved, m.processing, m.oldest, m.dead)
	reg.MustRegister(
		prometheus.NewGaugeFunc(gauge("permits", "Permits of the route in this worker: the limit in force."),
			func() float64 { return float64(permits.Limit()) }),
		prometheus.NewGaugeFunc(gauge("permits_adaptive",
			"Limit of permits that was learnt, in force with mode enforce alone; with mode fixed the configured one."),
			func() float64 { return float64(permits.Adaptive()) }),
		prometheus.NewGaugeFunc(gauge("permits_high_water", "Most permits ever in use at once."),
			func() float64 { return float64(permits.HighWater()) }))
	for _, lane := range []order.Lane{order.LaneLive, order.LaneReplay, order.LaneCompensate} {
		opts := gauge("permits_in_use", "Permits in use, which is calls in flight.")
		opts.ConstLabels = prometheus.Labels{"route": route, "lane": lane.String()}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return float64(permits.InUseLane(lane)) }))
	}
	for _, b := range breakers {
		opts := gauge("breaker_state", "The breaker's state: 0 closed, 1 half-open, 2 open.")
		opts.ConstLabels = prometheus.Labels{"route": route, "endpoint": b.Key().Endpoint}
		reg.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 { return stateLevel(b.Snapshot().State) }))
	}
	return m
}

// stateLevel orders the states by how much they refuse.
func stateLevel(s breaker.State) float64 {
	switch s {
	case breaker.Closed:
		return 0
	case breaker.HalfOpen:
		return 1
	case breaker.Open:
		return 2
	}
	return 0
}
