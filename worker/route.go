package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"spillway/breaker"
	"spillway/compensator"
	"spillway/consumer"
	"spillway/internal/attempt"
	"spillway/internal/config"
	"spillway/internal/downstream"
	"spillway/internal/kafka"
	"spillway/internal/permit"
	"spillway/internal/postgres"
	"spillway/internal/rate"
	"spillway/internal/redis"
	"spillway/order"
	"spillway/replay"
)

// callMargin is what a call may take beyond its deadline until it has returned.
const callMargin = time.Second

// maxInFlight bounds what one route's replay has in flight beside its permits, which may move: as many as there can be.
const maxInFlight = 10_000

// route is one bulkhead: everything between a topic and its downstream.
type route struct {
	cfg       *config.Route
	group     *kafka.Group
	lane      *consumer.Lane
	service   *downstream.HTTP // nil with a handler of the program's own
	replay    *replay.Engine
	queue     *redis.Queue // the replay engine's
	scanner   *compensator.Scanner
	rates     *rate.Limiter
	permits   *permit.Pool
	shared    shared
	breakers  [2]*breaker.Breaker // in the order of endpoints
	attempter *attempt.Attempter
	m         *routeMetrics
	log       *slog.Logger
}

// endpoints are what a route has breakers for.
func endpoints() [2]string { return [...]string{"submit", "lookup"} }

func (w *Worker) newRoute(cfg *config.Route) (*route, error) {
	r := &route{cfg: cfg, log: w.opts.Logger.With(slog.String("route", cfg.Name))}
	handler := w.opts.Handlers[cfg.Name]
	if handler == nil {
		c, err := downstreamConfig(cfg)
		if err != nil {
			return nil, err
		}
		c.Route, c.Registerer, c.Logger = cfg.Name, w.opts.Registry, r.log
		r.service, err = downstream.New(c)
		if err != nil {
			return nil, fmt.Errorf("downstream: %w", err)
		}
		handler = r.service
	}
	permits := permitConfig(cfg)
	if err := permits.Validate(); err != nil {
		return nil, fmt.Errorf("permits: %w", err)
	}
	r.permits = permit.New(permits)
	r.rates = rate.New(rateConfig(cfg), time.Now())
	var err error
	for i, endpoint := range endpoints() {
		key := breaker.Key{Service: cfg.Name, Endpoint: endpoint}
		if r.breakers[i], err = breaker.New(key, BreakerConfig(cfg), nil, func(e breaker.Event) {
			w.health.moves.note(e)
			r.breakerMoved(e)
			w.notifier.Notify(r.breakerEvent(w.owner, e))
		}); err != nil {
			return nil, fmt.Errorf("breaker: %w", err)
		}
	}
	registerRates(cfg, w.opts.Registry, r.rates)
	r.m = newRouteMetrics(cfg.Name, w.opts.Registry, r.permits, r.breakers[:])
	attempter := attempt.New(attempt.Config{
		Submit: cfg.Downstream.Timeout, Lookup: cfg.Downstream.LookupTimeout, Holds: cfg.Policy().Degrade == order.Hold,
	}, r.rates, r.permits, handler, r.breakers[0], r.breakers[1], r.m.took)
	r.attempter = attempter

	r.queue = w.redis.Queue(cfg.Name, cfg.Replay.Capacity)
	r.replay, err = replay.New(replay.Config{
		Route: cfg.Name, Owner: w.owner, InFlight: maxInFlight, PermitLimit: r.permits.Limit, Batch: cfg.Replay.Batch,
		Step: replayStep(cfg.Breaker.RampStep), Lease: cfg.Replay.Lease, Grace: w.cfg.Shutdown.Grace * 4 / 5,
		Tail: w.cfg.Shutdown.Grace / 5, Tenant: tenantRule(cfg.Rate.Tenant),
	}, cfg.Policy(), r.queue, w.store, attempter, w.opts.Logger, w.opts.Registry)
	if err != nil {
		return nil, err
	}
	r.scanner, err = compensator.New(compensator.Config{
		Route: cfg.Name, Owner: w.owner, Interval: cfg.Compensate.Interval, Batch: cfg.Compensate.Batch,
		Lease: max(cfg.Lease, 4*cfg.Downstream.LookupTimeout), LookupTimeout: cfg.Downstream.LookupTimeout,
		Grace: w.cfg.Shutdown.Grace,
	}, cfg.Policy(), w.store, attempter, r.replay, r.log, w.opts.Registry)
	if err != nil {
		return nil, err
	}
	k, err := kafkaConfig(w.cfg, cfg, w.opts)
	if err != nil {
		return nil, err
	}
	if r.group, err = kafka.New(k); err != nil {
		return nil, err
	}
	lane := laneConfig(w.cfg, cfg, w.owner, w.opts)
	lane.PermitLimit = r.permits.Limit
	r.lane = consumer.New(lane, r.group, w.store, attempter, r.replay)
	return r, nil
}

// replayStep is how long the replay's calls in flight stay as many before they double: a third of the breaker's own step,
// so that during a recovery it is the breaker that holds back, and a second at most, for a start with the breaker closed.
func replayStep(ramp time.Duration) time.Duration { return min(ramp/3, time.Second) }

// breakerMoved tells people that a breaker changed its state, and why.
func (r *route) breakerMoved(e breaker.Event) {
	r.m.moved.WithLabelValues(e.Key.Endpoint, e.To.String()).Inc()
	r.log.Warn("breaker moved", slog.String("endpoint", e.Key.Endpoint), slog.String("from", e.From.String()),
		slog.String("to", e.To.String()), slog.String("reason", e.Reason.String()), slog.Int("samples", e.Samples),
		slog.Int("failures", e.Failures), slog.Int("slow", e.Slow), slog.Float64("rate", e.Rate),
		slog.Float64("threshold", e.Threshold), slog.Duration("wait", e.Wait), slog.String("mode", e.Mode.String()),
		slog.String("source", e.Source.String()), slog.Uint64("generation", e.Generation))
}

// look reads what the gauges show, and tells the lane whether the replay queue is full: at its bound, until a tenth
// of it is free again.
func (r *route) look(ctx context.Context, store *postgres.Store) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if depths, err := r.replay.Depths(ctx); err == nil {
		switch capacity := r.queue.Capacity(); {
		case depths.Total() >= capacity:
			r.lane.SetReplayFull(ctx, true)
		case depths.Total() <= capacity*9/10:
			r.lane.SetReplayFull(ctx, false)
		}
	}
	if counts, err := store.Counts(ctx, r.cfg.Name); err == nil {
		for _, p := range order.Phases() {
			r.m.processing.WithLabelValues(p.String()).Set(float64(counts.Processing[p]))
		}
		r.m.oldest.Set(counts.Oldest.Seconds())
		r.m.dead.Set(float64(counts.DeadWaiting))
	}
}

// holding says why intake holds, for readiness: not for want of permits or an open breaker, which is the downstream's
// state and not this worker's.
func (r *route) holding() error {
	var why []string
	for _, h := range r.lane.Level().Holds {
		switch h {
		case consumer.HoldStore, consumer.HoldReplay, consumer.HoldReplayFull:
			why = append(why, h.String())
		case consumer.HoldPermits, consumer.HoldBreaker, consumer.HoldRate:
		}
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("intake holds: %s", strings.Join(why, ", "))
}
