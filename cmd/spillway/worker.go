package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
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

The database's schema must be up to date: see "spillway migrate". /metrics, /livez, /readyz and /breakers are served
at http.listen.

Exit codes: 0 after a clean drain, 1 when the worker can't start or go on, 2 for mistakes in the settings, 130 after a
second signal.`
}

// Run implements the command.
func (c *workerCmd) Run(s *surroundings) error {
	cfg, err := worker.Load(c.File, s.env)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		heap.SetFloor(heapFloor)
	}
	log := newLogger(s.err, cfg.Log.Level, cfg.Log.Format)
	ctx, stop := stopOnSignal(s.ctx, log)
	defer stop()
	w, err := worker.New(ctx, cfg, worker.Options{Logger: log})
	if err != nil {
		return err
	}
	return w.Run(ctx)
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

// newLogger makes the logger that the settings ask for; they were checked.
func newLogger(to io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "text" {
		return slog.New(slog.NewTextHandler(to, opts))
	}
	return slog.New(slog.NewJSONHandler(to, opts))
}
