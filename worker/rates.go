package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/config"
	"spillway/internal/rate"
	"spillway/order"
)

// registerRates shows a route's rate limits. Tenants are never a label: anybody who writes records makes them up.
func registerRates(cfg *config.Route, reg prometheus.Registerer, rates *rate.Limiter) {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"route": cfg.Name}, reg)
	counter := func(name, help string, labels prometheus.Labels, read func(s rate.Stats) float64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_rate_" + name, Help: help, ConstLabels: labels,
		}, func() float64 { return read(rates.Stats()) }))
	}
	for lane := range order.Lane(order.Lanes) {
		for kind := range rate.Kind(rate.Kinds) {
			counter("waits_total", "Times that a submit or a lookup was told to wait, by lane and by the limit it met.",
				prometheus.Labels{"lane": lane.String(), "limit": kind.String()},
				func(s rate.Stats) float64 { return float64(s.Waits[lane][kind]) })
		}
	}
	counter("tenant_overflow_total", "Orders that counted against the one limit of all tenants beyond rate.tenant.max.", nil,
		func(s rate.Stats) float64 { return float64(s.Overflow) })
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_rate_tenants", Help: "Tenants told apart now, at most rate.tenant.max.",
	}, func() float64 { return float64(rates.Stats().Tenants) }))
}
