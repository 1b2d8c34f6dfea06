package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/config"
)

// Change is one setting that differs; see docs/settings.md for which are hot.
type Change = config.Change

// RestartError says that settings differ which a running worker can't change. Nothing was applied, hot ones included.
type RestartError struct {
	Changes []Change // those that are not hot, in the order of the settings file
}

// Error names the settings with what they are and what they should become, secrets hidden.
func (e *RestartError) Error() string {
	names := make([]string, len(e.Changes))
	for i, c := range e.Changes {
		names[i] = c.String()
	}
	return "needs a restart, nothing was changed: " + strings.Join(names, "; ")
}

// Results of a reload, as metrics name them.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged"
	reloadInvalid   = "invalid"
	reloadRestart   = "needs_restart"
)

// inForce is the settings that a worker works by: those of its start, and what reloads made of them.
type inForce struct {
	mu  sync.Mutex // guards what follows; held for the whole of a reload
	cfg *Config

	reloads     *prometheus.CounterVec
	taken       prometheus.Gauge
	loaded      prometheus.Gauge
	fingerprint prometheus.Gauge
}

func newInForce(cfg *Config, reg prometheus.Registerer) (*inForce, error) {
	s := &inForce{
		cfg: cfg,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_settings_reloads_total", Help: "Settings given to the running worker, by what became of them.",
		}, []string{"result"}),
		taken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_settings_taken", Help: "1 if the settings given last were taken, 0 if the worker works by earlier ones.",
		}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_settings_loaded_timestamp_seconds", Help: "When the settings in force were taken.",
		}),
		fingerprint: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_settings_fingerprint",
			Help: "A number made of the settings in force, the same in workers whose settings are the same; secrets, http.listen and kafka.client_id aside.",
		}),
	}
	for _, result := range []string{reloadApplied, reloadUnchanged, reloadInvalid, reloadRestart} {
		s.reloads.WithLabelValues(result)
	}
	s.show()
	s.taken.Set(1)
	for _, c := range []prometheus.Collector{s.reloads, s.taken, s.loaded, s.fingerprint} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// show tells which settings are in force, and returns their fingerprint.
func (s *inForce) show() uint64 {
	fingerprint := s.cfg.Fingerprint()
	s.loaded.Set(float64(time.Now().UnixMilli()) / 1e3)
	s.fingerprint.Set(float64(fingerprint))
	return fingerprint
}

// count notes what became of a reload.
func (s *inForce) count(result string) {
	s.reloads.WithLabelValues(result).Inc()
	s.taken.Set(1)
	if result == reloadInvalid || result == reloadRestart {
		s.taken.Set(0)
	}
}

// reject notes settings that could not even be read.
func (s *inForce) reject() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(reloadInvalid)
}

// Reload makes the worker work by cfg, as Load returned it, without a restart: permits, rates, shares, prefetch and the
// other settings that docs/settings.md calls hot. Calls in flight, permits in use, breakers with their windows and the
// group's generation are left as they are; a limit that became smaller is reached as calls end, for none is cut short.
//
// It changes all that differs or nothing: a *RestartError where a setting differs that is not hot, another error where a
// value can't be used. It returns once all new values are in force, which takes no I/O. It may be called at any time, from
// any goroutine; cfg is not kept.
func (w *Worker) Reload(ctx context.Context, cfg *Config) error {
	w.inForce.mu.Lock()
	defer w.inForce.mu.Unlock()
	changes := config.Diff(w.inForce.cfg, cfg)
	if len(changes) == 0 {
		w.inForce.count(reloadUnchanged)
		w.opts.Logger.InfoContext(ctx, "settings: nothing changed")
		return nil
	}
	if err := w.mayTake(cfg, changes); err != nil {
		return err
	}
	for _, r := range w.routes {
		r.take(routeOf(cfg, r.cfg.Name))
	}
	w.inForce.cfg = cfg.Clone()
	fingerprint := w.inForce.show()
	w.inForce.count(reloadApplied)
	if w.opts.Level != nil { // what changed is told at the lower of the two levels
		w.opts.Level.Set(min(w.opts.Level.Level(), cfg.Log.Slog()))
		defer w.opts.Level.Set(cfg.Log.Slog())
	}
	for _, c := range changes {
		w.opts.Logger.InfoContext(ctx, "setting changed", slog.String("setting", c.Path), slog.String("old", c.Old), slog.String("new", c.New))
	}
	w.opts.Logger.InfoContext(ctx, "settings taken", slog.Int("changed", len(changes)), slog.Uint64("fingerprint", fingerprint))
	return nil
}

// mayTake checks everything before anything is changed.
func (w *Worker) mayTake(cfg *Config, changes []Change) error {
	cold := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Hot })
	if len(cold) > 0 {
		w.inForce.count(reloadRestart)
		return &RestartError{Changes: cold}
	}
	var errs []error
	for _, c := range changes {
		if c.Wrong != "" {
			errs = append(errs, fmt.Errorf("%s: %s %s", c.Path, c.New, c.Wrong))
		}
	}
	for _, r := range w.routes {
		if err := r.mayTake(routeOf(cfg, r.cfg.Name)); err != nil {
			errs = append(errs, fmt.Errorf("route %s: %w", r.cfg.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		w.inForce.count(reloadInvalid)
		return err
	}
	return nil
}

// routeOf is the settings of a route. Those of all running ones are there: a route less is no hot change.
func routeOf(cfg *Config, name string) *config.Route {
	for i := range cfg.Routes {
		if cfg.Routes[i].Name == name {
			return &cfg.Routes[i]
		}
	}
	return nil
}

// mayTake says what of the route's new settings its parts can't use. Package config has checked them; this is for those
// that were made otherwise.
func (r *route) mayTake(cfg *config.Route) error {
	return errors.Join(permitConfig(cfg).Validate(), rateConfig(cfg).Validate())
}

// take gives the route's parts their new numbers. mayTake has let them pass.
func (r *route) take(cfg *config.Route) {
	if r.service != nil {
		r.service.Grow(mostPermits(cfg)) // before there are as many calls
	}
	_ = r.permits.Configure(permitConfig(cfg)) // what could be wrong was checked
	r.lane.SetPermitWait(cfg.Permits.Wait)
	r.lane.SetLimits(limitsConfig(cfg))
	r.rates.Configure(rateConfig(cfg), time.Now())
	// Neither is turned on or off: that is no hot change.
	if r.shared.permits != nil {
		r.shared.permits.SetCap(cfg.Permits.Fleet)
	}
	if r.shared.rate != nil {
		r.shared.rate.SetCap(float64(cfg.Rate.Fleet))
	}
	r.queue.SetCapacity(cfg.Replay.Capacity)
	r.lane.SetPolicy(cfg.Policy())
	r.replay.SetPolicy(cfg.Policy())
	r.scanner.SetPolicy(cfg.Policy())
}

// worksBy reports whether cfg is what is in force.
func (w *Worker) worksBy(cfg *Config) bool {
	w.inForce.mu.Lock()
	defer w.inForce.mu.Unlock()
	return len(config.Diff(w.inForce.cfg, cfg)) == 0
}

// poll is how often the settings file is looked at; 0 for not at all.
func (w *Worker) poll() time.Duration {
	w.inForce.mu.Lock()
	defer w.inForce.mu.Unlock()
	return w.inForce.cfg.Reload.Poll
}
