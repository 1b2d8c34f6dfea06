package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/consumer"
	"spillway/internal/config"
	"spillway/internal/notify"
	"spillway/internal/postgres"
	"spillway/internal/quota"
	"spillway/internal/redis"
	"spillway/order"
)

// Config is everything a worker can be told; see docs/settings.md.
type Config = config.Config

// Load reads a settings file and the environment's overrides (name=value, as os.Environ gives them). The error lists
// every mistake with its place.
func Load(path string, environ []string) (*Config, error) { return config.Load(path, environ) }

// Options is what a Config can't say. The zero value is the default.
type Options struct {
	// Handlers deliver the orders of a route, by the route's name, in place of its HTTP downstream.
	Handlers map[string]order.Handler
	// Logger hears everything; nil for nothing.
	Logger *slog.Logger
	// Level, where set, follows log.level when settings are reloaded: what Logger's handler was made with.
	Level *slog.LevelVar
	// Registry takes the metrics and is served at /metrics; nil for one of the worker's own.
	Registry *prometheus.Registry
	// DialKafka, where set, makes the connections to the brokers.
	DialKafka func(ctx context.Context, network, address string) (net.Conn, error)
	// Trace, where set, is told of each step of each record's way; see consumer.Config.
	Trace func(route string, step consumer.Step, number string)
}

// Worker runs the routes of a Config. Make it with New and run it once.
type Worker struct {
	cfg    *Config // of the start; what is in force now is inForce's
	opts   Options
	owner  string
	store  *postgres.Store
	redis  *redis.Client
	routes []*route
	sharer *fleet.Sharer
	quotas *quota.Sharer
	health *health
	listen net.Listener

	notifier *notify.Notifier
	inForce  *inForce
}

// New checks what the worker stands on: the database must be there with the schema of this version. Redis and Kafka
// may be away. It starts nothing; Close what is not run.
func New(ctx context.Context, cfg *Config, opts Options) (*Worker, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registry == nil {
		opts.Registry = prometheus.NewRegistry()
		opts.Registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	owner, err := newOwner()
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone() // the caller may go on to change it and call Reload
	w := &Worker{cfg: cfg, opts: opts, owner: owner, health: newHealth()}
	if err := w.open(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) open(ctx context.Context) (err error) {
	w.inForce, err = newInForce(w.cfg, w.opts.Registry)
	if err != nil {
		return err
	}
	w.store, err = postgres.Open(ctx, StoreConfig(w.cfg, w.opts.Logger))
	if err != nil {
		return err
	}
	if err := w.store.CheckSchema(ctx); err != nil {
		return err
	}
	w.redis, err = redis.Open(redis.Config{URL: w.cfg.Redis.URL.Reveal(), Prefix: w.cfg.Redis.Prefix})
	if err != nil {
		return err
	}
	w.notifier, err = w.newNotifier()
	if err != nil {
		return err
	}
	for i := range w.cfg.Routes {
		r, err := w.newRoute(&w.cfg.Routes[i])
		if err != nil {
			return fmt.Errorf("route %s: %w", w.cfg.Routes[i].Name, err)
		}
		w.routes = append(w.routes, r)
	}
	shared := w.sharedBreakers()
	w.sharer, err = fleet.New(fleet.Config{Worker: w.owner}, w.redis.Breakers(),
		func() []*breaker.Breaker { return shared }, w.opts.Logger)
	if err != nil {
		return err
	}
	if err := w.shareQuotas(); err != nil {
		return err
	}
	w.listen, err = (&net.ListenConfig{}).Listen(ctx, "tcp", w.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	return nil
}

// sharedBreakers are those whose state the workers share.
func (w *Worker) sharedBreakers() []*breaker.Breaker {
	var shared []*breaker.Breaker
	for _, r := range w.routes {
		if r.cfg.Breaker.Scope == config.ScopeShared {
			shared = append(shared, r.breakers[:]...)
		}
	}
	return shared
}

// StoreConfig is the part of cfg that concerns Postgres.
func StoreConfig(cfg *Config, log *slog.Logger) postgres.Config {
	return postgres.Config{
		URL: cfg.Postgres.URL.Reveal(), MaxConnections: cfg.Postgres.MaxConnections,
		StatementTimeout: cfg.Postgres.StatementTimeout, Logger: log,
	}
}

// newOwner names this start of this worker: nobody else ever has the name.
func newOwner() (string, error) {
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	if len(host) > 60 {
		host = host[:60]
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(id[:])), nil
}

// Addr is where /metrics, /livez and /readyz are served.
func (w *Worker) Addr() string { return w.listen.Addr().String() }

// Owner is the worker's name in leases and history.
func (w *Worker) Owner() string { return w.owner }

// Close ends the connections of a worker that is not run. Run does it by itself.
func (w *Worker) Close() {
	if w.listen != nil {
		_ = w.listen.Close() // the server may have closed it
	}
	if w.redis != nil {
		_ = w.redis.Close() // nothing is under way
	}
	if w.store == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.store.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeWait):
		// A Postgres that says nothing keeps the driver waiting some 15 s for its answer to a cancelled query. The goroutine
		// ends with that.
	}
}

// closeWait is how long the database's connections may take to close.
const closeWait = time.Second

// Run works until ctx ends, then drains: stop fetching, finish what is in flight, settle, commit, leave the group,
// within shutdown.grace. It returns nil after a clean end, and the first error of a part that can't go on.
func (w *Worker) Run(ctx context.Context) error {
	defer w.Close()
	log := w.opts.Logger
	log.InfoContext(ctx, "worker starts", slog.String("owner", w.owner), slog.String("http", w.Addr()))

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var server errgroup.Group
	server.Go(func() error {
		defer stop() // a worker that can't be watched does not go on
		return w.serveHTTP(serving)
	})
	server.Go(func() error { w.watch(serving); return nil })
	server.Go(func() error { return w.sharer.Run(serving) })
	server.Go(func() error { return w.quotas.Run(serving) }) // which gives back what was allotted: after the last call
	server.Go(func() error { return w.notifier.Run(serving) })

	parts, working := errgroup.WithContext(ctx)
	for _, r := range w.routes {
		parts.Go(func() error { return r.lane.Run(working) })
		parts.Go(func() error { return r.replay.Run(working) })
		parts.Go(func() error { return r.scanner.Run(working) })
	}
	err := parts.Wait()
	stopServing()
	err = errors.Join(err, server.Wait())
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	log.InfoContext(serving, "worker ended", slog.Any("error", err))
	return err
}

// watch looks after what no event tells: whether the stores answer, how deep the queues are.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look takes one look. Each question has a second; an answer that does not come is a reason not to be ready.
func (w *Worker) look(ctx context.Context) {
	ask := func(name string, question func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		w.health.set(name, question(ctx))
	}
	ask("postgres", w.store.Ping)
	for _, r := range w.routes {
		w.health.set("replay:"+r.cfg.Name, r.replay.Healthy())
		ask("kafka:"+r.cfg.Name, r.group.Check)
		r.look(ctx, w.store)
		w.health.set("intake:"+r.cfg.Name, r.holding())
	}
}
