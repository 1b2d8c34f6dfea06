package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"spillway/breaker"
)

// Config holds a Sharer's numbers. The zero value of each field but Worker is its default.
type Config struct {
	// Worker names this worker among those that share, 1 to 200 bytes. A name that was used before a restart should not
	// come back within a minute.
	Worker string
	// Every is the mean time between exchanges, 10 ms to 1 s, default 300 ms; each is 25 % shorter to 25 % longer. While a
	// breaker is not closed, a fleet of less than 16 workers exchanges up to four times as often.
	Every time.Duration
	// Timeout bounds an exchange, 10 ms to 10 s, default 500 ms.
	Timeout time.Duration
	// Lease is how long a worker counts as alive, and a record rules, since the last exchange: longer than Every +
	// Timeout, at most 1 min, default 1.5 s.
	Lease time.Duration
}

func (c Config) withDefaults() (Config, error) {
	orDefault := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
	}
	orDefault(&c.Every, 300*time.Millisecond)
	orDefault(&c.Timeout, 500*time.Millisecond)
	orDefault(&c.Lease, max(1500*time.Millisecond, 2*c.Every+c.Timeout))
	var errs []error
	if n := len(c.Worker); n == 0 || n > maxText {
		errs = append(errs, fmt.Errorf("worker's name of %d bytes, accepted: 1 to %d", n, maxText))
	}
	if c.Every < 10*time.Millisecond || c.Every > time.Second {
		errs = append(errs, fmt.Errorf("every %v, accepted: 10ms to 1s", c.Every))
	}
	if c.Timeout < 10*time.Millisecond || c.Timeout > 10*time.Second {
		errs = append(errs, fmt.Errorf("timeout %v, accepted: 10ms to 10s", c.Timeout))
	}
	if c.Lease <= c.Every+c.Timeout || c.Lease > time.Minute {
		errs = append(errs, fmt.Errorf("lease %v, accepted: more than %v, at most 1m", c.Lease, c.Every+c.Timeout))
	}
	return c, errors.Join(errs...)
}

// Sharer keeps breakers in step with the records of a store. Run it once.
type Sharer struct {
	cfg      Config
	store    Store
	breakers func() []*breaker.Breaker
	log      *slog.Logger
	keep     map[*breaker.Breaker]*keeper
	order    []*keeper // of the exchange under way
	away     atomic.Pointer[error]
}

// New makes a Sharer for the breakers that a function lists; it is asked before each exchange and should list the same
// ones each time, at most a few thousand. log may be nil.
func New(cfg Config, store Store, breakers func() []*breaker.Breaker, log *slog.Logger) (*Sharer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("breaker fleet: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sharer{cfg: cfg, store: store, breakers: breakers, log: log, keep: make(map[*breaker.Breaker]*keeper)}, nil
}

// Run exchanges until ctx ends, then tells the others that this worker is gone. It always returns nil: without the
// store the breakers go on alone.
func (s *Sharer) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.leave(ctx)
			return nil
		case <-timer.C:
		}
		s.round(ctx)
		timer.Reset(time.Duration((0.75 + rand.Float64()/2) * float64(s.pause()))) //nolint:gosec // jitter, not a secret
	}
}

// crowd is how many workers that exchange at their usual pace are as many as the store should hear in a recovery.
const crowd = 16

// pause is the mean time to the next exchange. A recovery takes three of them: for the slots of the first probes, for what
// these showed, and for the end of the ramp. A small fleet can afford to have them sooner.
func (s *Sharer) pause() time.Duration {
	of, restless := 1, false
	for _, k := range s.order {
		of = max(of, k.of)
		restless = restless || k.restless
	}
	if !restless {
		return s.cfg.Every
	}
	return max(s.cfg.Every/4, min(s.cfg.Every, s.cfg.Every*time.Duration(min(of, crowd))/crowd))
}

// Away is why the latest exchange was not made; nil if it was, or none was tried. It may be called concurrently.
func (s *Sharer) Away() error {
	if err := s.away.Load(); err != nil {
		return *err
	}
	return nil
}

// round is one exchange and what follows from it.
func (s *Sharer) round(ctx context.Context) {
	sent := time.Now()
	reports := s.reports(sent, false)
	if len(reports) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	views, err := s.store.Exchange(asking, s.cfg.Worker, reports)
	cancel()
	if err == nil && len(views) != len(reports) {
		err = fmt.Errorf("%d views for %d reports", len(views), len(reports))
	}
	if ctx.Err() != nil {
		return
	}
	s.note(ctx, err)
	if err != nil {
		return
	}
	moves := s.absorb(sent, time.Now(), views)
	if len(moves) == 0 {
		return
	}
	moving, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	done, err := s.store.Move(moving, moves)
	cancel()
	if err != nil || len(done) != len(moves) {
		return // the next exchange shows whether it happened
	}
	s.moved(time.Now(), moves, done)
}

// note logs when the store goes away and when it comes back.
func (s *Sharer) note(ctx context.Context, err error) {
	before := s.away.Load()
	switch {
	case err != nil:
		s.away.Store(&err)
		if before == nil {
			s.log.WarnContext(ctx, "breakers are not shared: each goes on alone", slog.Any("error", err))
		}
	case before != nil:
		s.away.Store(nil)
		s.log.InfoContext(ctx, "breakers are shared again")
	}
}

// leave gives the slots and the place among the living back.
func (s *Sharer) leave(ctx context.Context) {
	reports := s.reports(time.Now(), true)
	if len(reports) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	if _, err := s.store.Exchange(ctx, s.cfg.Worker, reports); err != nil {
		s.log.InfoContext(ctx, "the others learn late that this worker ended", slog.Any("error", err))
	}
}

// reports states what every breaker has seen.
func (s *Sharer) reports(now time.Time, leaving bool) []Report {
	breakers := s.breakers()
	s.order = s.order[:0]
	reports := make([]Report, 0, len(breakers))
	for _, b := range breakers {
		k := s.keep[b]
		if k == nil {
			k = &keeper{b: b, cfg: b.Config()}
			s.keep[b] = k
		}
		s.order = append(s.order, k)
		reports = append(reports, k.report(now, s.cfg.Lease, leaving))
	}
	if len(s.keep) > len(breakers) {
		for b := range s.keep {
			if !slices.Contains(breakers, b) {
				delete(s.keep, b)
			}
		}
	}
	return reports
}

// absorb takes the answer to reports in, which were sent at sent and answered at now, and returns the moves to be made.
func (s *Sharer) absorb(sent, now time.Time, views []View) []Move {
	var moves []Move
	for i, k := range s.order {
		v := views[i]
		v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m Member) bool { return m.Seen > s.cfg.Lease })
		slices.SortFunc(v.Members, func(a, b Member) int { return strings.Compare(a.Worker, b.Worker) })
		if m, ok := k.absorb(sent, now, v, s.cfg.Worker, s.cfg.Lease); ok {
			moves = append(moves, m)
		}
	}
	return moves
}

// moved takes over at once what this worker itself moved.
func (s *Sharer) moved(now time.Time, moves []Move, done []bool) {
	for i, m := range moves {
		for _, k := range s.order {
			if done[i] && k.b.Key() == m.Key {
				k.take(now, m.Record)
			}
		}
	}
}
