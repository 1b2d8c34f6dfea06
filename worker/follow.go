package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"os"
	"time"

	"spillway/internal/config"
)

// Follow keeps the worker's settings as the file at path says, with the overrides of environ, until ctx ends. It reads the
// file when something arrives on now (SIGHUP, as a rule; nil for never) and takes what it finds; every reload.poll it looks
// whether the content changed, and takes what stood there for two looks in a row, so that a file that is being written is
// not taken half. A link that is switched to another file, as Kubernetes does with a ConfigMap, is a change of content.
//
// What can't be taken is logged, each mistake of it, and counted; the running settings stay. The same content is not tried
// again unless now asks for it. Run it in one goroutine.
func (w *Worker) Follow(ctx context.Context, path string, environ []string, now <-chan os.Signal) {
	f := follower{worker: w, path: path, environ: environ}
	f.start()
	for {
		looks, stop := after(w.poll())
		select {
		case <-now:
			f.take(ctx, f.read())
		case <-looks:
			if c := f.read(); f.seen.changed(c.sum) {
				f.take(ctx, c)
			}
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// after is a channel that gets a value after d; none ever with 0.
func after(d time.Duration) (at <-chan time.Time, stop func()) {
	if d == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// follower reads one settings file for one worker.
type follower struct {
	worker  *Worker
	path    string
	environ []string
	seen    seen
}

// content is what a look found: the file, or why there is none.
type content struct {
	data []byte
	err  error
	sum  [sha256.Size]byte // of either
}

// seen decides which content is to be taken.
type seen struct{ tried, last [sha256.Size]byte }

// changed reports whether content that a look found is new and has settled: it is not what was tried last, and it was found
// by the look before too.
func (s *seen) changed(sum [sha256.Size]byte) bool {
	settled := sum == s.last
	s.last = sum
	return settled && sum != s.tried
}

// start takes note of the file that the worker was started with, so that it is not tried again.
func (f *follower) start() {
	c := f.read()
	if cfg, err := f.load(c); err == nil && f.worker.worksBy(cfg) {
		f.seen.tried = c.sum
	}
	f.seen.last = c.sum
}

func (f *follower) read() content {
	data, err := config.Read(f.path)
	if err != nil {
		return content{err: err, sum: sha256.Sum256([]byte(err.Error()))}
	}
	return content{data: data, sum: sha256.Sum256(data)}
}

func (f *follower) load(c content) (*Config, error) {
	if c.err != nil {
		return nil, c.err
	}
	return config.LoadFrom(f.path, c.data, f.environ)
}

// take makes the worker work by the content, or tells why not.
func (f *follower) take(ctx context.Context, c content) {
	f.seen.tried, f.seen.last = c.sum, c.sum
	cfg, err := f.load(c)
	if err != nil {
		f.worker.inForce.reject()
	} else {
		err = f.worker.Reload(ctx, cfg)
	}
	if err == nil {
		return
	}
	problems := []string{err.Error()}
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		problems = problems[:0]
		for _, p := range wrong.Problems {
			problems = append(problems, p.String())
		}
	}
	f.worker.opts.Logger.ErrorContext(ctx, "settings not taken: those in force stay", slog.String("file", f.path),
		slog.Any("problems", bounded(problems)))
}

// bounded leaves out what would make a log line endless.
func bounded(problems []string) []string {
	const most = 50
	if len(problems) > most {
		problems = append(problems[:most:most], "and more: see spillway config check")
	}
	return problems
}
