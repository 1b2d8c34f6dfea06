package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"spillway/internal/heap"
	"spillway/worker"
)

// workerCmd runs the daemon.
type workerCmd struct {
	settingsFile
}

// Help is shown by spillway worker --help.
func (*workerCmd) Help() string {
	return `Consumes the topics of all routes and delivers their orders until it is told to stop.

SIGTERM or SIGINT drains within shutdown.grace: stop fetching, finish what is in flight, settle, commit, leave the
group. A second signal ends at once; what did not finish is not committed.

SIGHUP reads the settings again, and so does a change of the settings file (reload.poll). Settings that docs/settings.md
calls hot (permits, rates, shares, prefetch, log.level) change at once, without a rebalance and without losing what breakers know. A
file with a mistake, or one in which another setting differs, changes nothing: the log says why, the running settings
stay, and spillway_settings_taken is 0. What the environment says is read at the start only.

The database's schema must be up to date: see "spillway migrate". /metrics, /livez, /readyz and /breakers are served
at http.listen.

Exit codes: 0 after a clean drain, 1 when the worker can't start or go on, 2 for mistakes in the settings, 130 after a
second signal.`
}

// Run implements the command.
func (c *workerCmd) Run(s *surroundings) error {
	reload := make(chan os.Signal, 1) // a second one before the first is served is the same wish
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	cfg, err := worker.Load(c.File, s.env)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		heap.SetFloor(heapFloor)
	}
	level := new(slog.LevelVar)
	level.Set(cfg.Log.Slog())
	log := newLogger(s.err, level, cfg.Log.Format)
	ctx, stop := stopOnSignal(s.ctx, log)
	defer stop()
	w, err := worker.New(ctx, cfg, worker.Options{Logger: log, Level: level})
	if err != nil {
		return err
	}
	// Until the drain has ended: its brakes can be changed too.
	following, stopFollowing := context.WithCancel(s.ctx)
	var follow sync.WaitGroup
	follow.Go(func() { w.Follow(following, c.File, s.env, reload) })
	err = w.Run(ctx)
	stopFollowing()
	follow.Wait()
	return err
}

// heapFloor is how far the worker's heap may grow before it is collected: three times what an overloaded worker with the
// default settings keeps, so that its memory is the same with a backlog as without.
const heapFloor = 32 << 20

// exitSecondSignal is the exit code of a worker that was told twice.
const exitSecondSignal = 130

// stopOnSignal returns a context that ends at the first SIGTERM or SIGINT. The second ends the process.
func stopOnSignal(parent context.Context, log *slog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for told := false; ; told = true {
			select {
			case sig := <-signals:
				if told {
					log.WarnContext(parent, "told again: ending at once", slog.String("signal", sig.String()))
					os.Exit(exitSecondSignal)
				}
				log.InfoContext(parent, "told to stop: draining", slog.String("signal", sig.String()))
				cancel()
			case <-parent.Done():
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// newLogger makes a logger that writes from a level on, which may change.
func newLogger(to io.Writer, level slog.Leveler, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(to, opts))
	}
	return slog.New(slog.NewJSONHandler(to, opts))
}
