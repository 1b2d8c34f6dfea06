package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"spillway/consumer"
	"spillway/internal/testkit"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// worker runs a Group in the background and shows what happens to it. Every generation reads with a feed of its own
// and commits where it stands when the generation ends, unless told otherwise.
type worker struct {
	group *Group
	log   *logbook
	stop  context.CancelCauseFunc
	ended chan error

	grant  int32
	drain  func(ctx context.Context, s consumer.Session) // before the last commit
	commit bool

	mu       sync.Mutex
	session  consumer.Session
	feed     *testFeed // of the newest generation
	feeds    []*testFeed
	final    error // of the newest generation's last commit
	sessions int   // that serve was called for
}

func startWorker(t *testing.T, config Config, adjust ...func(*worker)) *worker {
	t.Helper()
	w := &worker{log: &logbook{}, ended: make(chan error, 1), grant: 1 << 20, commit: true}
	for _, a := range adjust {
		a(w)
	}
	if config.Logger == nil {
		config.Logger = slog.New(w.log)
	}
	group, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	w.group = group
	ctx, stop := context.WithCancelCause(context.WithoutCancel(t.Context()))
	w.stop = stop
	go func() { w.ended <- group.Run(ctx, w.serve) }()
	t.Cleanup(func() {
		stop(errors.New("the test ends"))
		if w.ended == nil {
			return
		}
		select {
		case err := <-w.ended:
			if err != nil {
				t.Errorf("Run returns %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return")
		}
	})
	return w
}

// end stops the worker and waits for it.
func (w *worker) end(t *testing.T) {
	t.Helper()
	w.stop(errors.New("told to end"))
	select {
	case err := <-w.ended:
		w.ended = nil
		if err != nil {
			t.Fatalf("Run returns %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
}

func (w *worker) serve(ctx context.Context, s consumer.Session) error {
	feed := newTestFeed(w.grant, s.Assigned())
	w.mu.Lock()
	w.session, w.feed, w.final = s, feed, nil
	w.feeds = append(w.feeds, feed)
	w.sessions++
	w.mu.Unlock()
	if err := s.Fetch(ctx, feed); err != nil {
		return err
	}
	feed.mu.Lock()
	if feed.given != feed.back {
		feed.mu.Unlock()
		return errors.New("a grant did not come back")
	}
	feed.mu.Unlock()
	if w.drain != nil {
		w.drain(ctx, s)
	}
	if !w.commit {
		return nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := s.Commit(last, feed.positions())
	w.mu.Lock()
	w.final = err
	w.mu.Unlock()
	return nil
}

// now returns the newest generation's session and feed, nil before the first.
func (w *worker) now() (consumer.Session, *testFeed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session, w.feed
}

// lastCommit returns how the newest ended generation's commit went.
func (w *worker) lastCommit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.final
}

// owned returns how many partitions the newest generation has.
func (w *worker) owned() int {
	s, _ := w.now()
	if s == nil {
		return 0
	}
	return len(s.Assigned())
}

// count returns how many messages came over all generations.
func (w *worker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, f := range w.feeds {
		n += f.count()
	}
	return n
}

// values returns what came over all generations.
func (w *worker) values() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.feeds {
		all = append(all, f.values()...)
	}
	return all
}

// gaps returns what was reported lost over all generations.
func (w *worker) gaps() []consumer.Gap {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []consumer.Gap
	for _, f := range w.feeds {
		all = append(all, f.lost()...)
	}
	return all
}

// until waits for a condition.
func until(t *testing.T, why string, cond func() bool) {
	t.Helper()
	testkit.Eventually(t, patience, func() (bool, string) { return cond(), why })
}

// logbook counts log records by level and message.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.Key + "=" + a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logbook) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logbook) WithGroup(string) slog.Handler      { return l }
