package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/quota"
)

// shared is a route's parts of what the fleet shares; nil where it is not shared.
type shared struct {
	permits *quota.Permits
	rate    *quota.Rate
}

// shareQuotas makes the parts of all routes, and what exchanges for them.
func (w *Worker) shareQuotas() error {
	var parts []quota.Part
	for _, r := range w.routes {
		d := &r.cfg.Downstream
		if n := r.cfg.Permits.Fleet; n > 0 {
			p, err := quota.NewPermits(r.cfg.Name, n, max(d.Timeout, d.LookupTimeout)+callMargin, r.permits)
			if err != nil {
				return err
			}
			r.shared.permits = p
			parts = append(parts, p)
		}
		if f := float64(r.cfg.Rate.Fleet); f > 0 {
			p, err := quota.NewRate(r.cfg.Name, f, r.rates, time.Now())
			if err != nil {
				return err
			}
			r.shared.rate = p
			parts = append(parts, p)
		}
		r.registerShared(w.opts.Registry)
	}
	var err error
	w.quotas, err = quota.New(quota.Config{Worker: w.owner}, w.redis.Quotas(), parts, w.opts.Logger)
	if err != nil {
		return err
	}
	for _, r := range w.routes {
		w.opts.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spillway_fleet_missed_total", ConstLabels: prometheus.Labels{"route": r.cfg.Name},
			Help: "Exchanges with Redis about what the fleet shares, permits and rates, that brought no answer.",
		}, func() float64 { return float64(w.quotas.Missed()) }))
	}
	return nil
}

// registerShared shows what the worker has of the fleet's permits and rate: 0 where they are not shared.
func (r *route) registerShared(reg prometheus.Registerer) {
	for _, part := range []struct {
		limit string
		unit  float64
		own   func() float64 // only called where it is shared
		state func() quota.Answer
	}{
		{"permits", 1, func() float64 { return float64(r.shared.permits.Cap()) }, func() (a quota.Answer) {
			if r.shared.permits != nil {
				a = r.shared.permits.State()
			}
			return a
		}},
		{"rate", quota.Unit, func() float64 { return r.shared.rate.Cap() }, func() (a quota.Answer) {
			if r.shared.rate != nil {
				a = r.shared.rate.State()
			}
			return a
		}},
	} {
		gauge := func(name, help string, read func(a quota.Answer) float64) {
			reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "spillway_fleet_" + name, Help: help, ConstLabels: prometheus.Labels{"route": r.cfg.Name, "limit": part.limit},
			}, func() float64 { return read(part.state()) }))
		}
		gauge("allotted", "What this worker was last allotted of the fleet's permits, or of its rate per second.",
			func(a quota.Answer) float64 { return float64(a.Grant) / part.unit })
		gauge("allotted_sum", "What all workers are allotted, as this worker was last told.",
			func(a quota.Answer) float64 { return float64(a.Allotted) / part.unit })
		gauge("cap", "The fleet's permits, or its rate per second: the smallest that any worker is configured with.",
			func(a quota.Answer) float64 { return float64(a.Cap) / part.unit })
		gauge("workers", "Workers that share, with those that went silent a few seconds ago.",
			func(a quota.Answer) float64 { return float64(a.Workers) })
		gauge("unsure", "1 while Redis may not know all that is held, after its data were lost: nobody is allotted more.",
			func(a quota.Answer) float64 { return truth(a.Unsure) })
		gauge("disagree", "1 while another worker is configured with a smaller fleet limit, which counts.",
			func(a quota.Answer) float64 { return truth(a.Workers > 0 && float64(a.Cap)/part.unit < part.own()) })
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
