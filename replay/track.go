package replay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// track follows whether one service answers, so that all who use it together try at most once per pause while it does
// not, and so that the log says so once per change.
type track struct {
	what  string // for people
	pause time.Duration
	log   *slog.Logger

	mu    sync.Mutex // guards the fields below
	err   error      // of the last try; nil while the service is well
	since time.Time  // of the first error in a row
	next  time.Time  // when the next try is due
}

// turn returns nil when the caller may try now, else the last error and for how long not. While the service is away the
// turn is the caller's alone for one pause.
func (t *track) turn(now time.Time) (time.Duration, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait, err := t.left(now)
	if t.err != nil && err == nil {
		t.next = now.Add(t.pause)
	}
	return wait, err
}

// peek is turn for one who does not take the turn from others.
func (t *track) peek(now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.left(now)
	return err
}

// left is for how long nobody may try. The caller holds mu.
func (t *track) left(now time.Time) (time.Duration, error) {
	if wait := t.next.Sub(now); t.err != nil && wait > 0 {
		return wait, fmt.Errorf("%s: %w", t.what, t.err)
	}
	return 0, nil
}

// forget drops an error that nobody is about to try again.
func (t *track) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = nil
}

// note takes down how a try ended. A try that the caller's own context cut short says nothing.
func (t *track) note(ctx context.Context, err error, now time.Time) {
	if err != nil && ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	was, since := t.err, t.since
	t.err = err
	if err != nil {
		t.next = now.Add(t.pause)
		if was == nil {
			t.since = now
		}
	}
	t.mu.Unlock()
	switch {
	case err != nil && was == nil:
		t.log.WarnContext(ctx, "replay: a service does not answer", slog.String("service", t.what), slog.Any("error", err))
	case err == nil && was != nil:
		t.log.InfoContext(ctx, "replay: a service answers again", slog.String("service", t.what), slog.Duration("away", now.Sub(since)))
	}
}

// failing returns nil or why the service is taken to be away.
func (t *track) failing() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", t.what, t.err)
}
