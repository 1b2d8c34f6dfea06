package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Config holds a Sharer's numbers. The zero value of each field but Worker is its default.
type Config struct {
	// Worker names this worker among those that share; no two starts may have the same name. Required.
	Worker string
	// Every is the mean time between exchanges, 10 ms to 1 s, default 1 s; each is 25 % shorter to 25 % longer.
	Every time.Duration
	// Timeout bounds an exchange, 10 ms to 1 s, default 1 s.
	Timeout time.Duration
}

// Sharer exchanges reports for answers, for all parts of a worker. Run it once.
type Sharer struct {
	cfg    Config
	store  Store
	parts  []Part
	log    *slog.Logger
	away   atomic.Pointer[error]
	missed atomic.Uint64
	told   map[string]int64 // caps of the fleet that differ from the worker's own, by key, as they were logged
}

// New makes a Sharer. log may be nil.
func New(cfg Config, store Store, parts []Part, log *slog.Logger) (*Sharer, error) {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"every", cfg.Every}, {"timeout", cfg.Timeout}} {
		if d.d < 10*time.Millisecond || d.d > time.Second {
			return nil, fmt.Errorf("quota: %s %v, accepted: 10ms to 1s", d.name, d.d)
		}
	}
	if cfg.Worker == "" {
		return nil, errors.New("quota: a worker without a name")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Sharer{cfg: cfg, store: store, parts: parts, log: log, told: make(map[string]int64)}, nil
}

// Run exchanges until ctx ends, then gives everything back that is not in use any more: end it after the last call. It
// always returns nil.
func (s *Sharer) Run(ctx context.Context) error {
	if len(s.parts) == 0 {
		return nil
	}
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
		timer.Reset(time.Duration((0.75 + rand.Float64()/2) * float64(s.cfg.Every))) //nolint:gosec // jitter, not a secret
	}
}

// Away is why the latest exchange was not made; nil if it was, or none was tried. It may be called concurrently.
func (s *Sharer) Away() error {
	if err := s.away.Load(); err != nil {
		return *err
	}
	return nil
}

// Missed is how many exchanges brought no answer. It may be called concurrently.
func (s *Sharer) Missed() uint64 { return s.missed.Load() }

// round is one exchange.
func (s *Sharer) round(ctx context.Context) {
	sent := time.Now()
	reports, answers, err := s.exchange(ctx, sent, false)
	if ctx.Err() != nil {
		return
	}
	s.note(ctx, err)
	now := time.Now()
	for i, p := range s.parts {
		if err != nil {
			p.Missed(now)
			continue
		}
		p.Answered(sent, now, answers[i])
		s.compare(ctx, p, reports[i], answers[i])
	}
}

func (s *Sharer) exchange(ctx context.Context, sent time.Time, gone bool) ([]Report, []Answer, error) {
	reports := make([]Report, len(s.parts))
	for i, p := range s.parts {
		reports[i] = p.Report(sent, gone)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	answers, err := s.store.Exchange(ctx, s.cfg.Worker, reports)
	if err == nil && len(answers) != len(reports) {
		err = fmt.Errorf("%d answers to %d reports", len(answers), len(reports))
	}
	return reports, answers, err
}

// note logs when the store goes away and when it comes back.
func (s *Sharer) note(ctx context.Context, err error) {
	before := s.away.Load()
	switch {
	case err != nil:
		s.missed.Add(1)
		s.away.Store(&err)
		if before == nil {
			s.log.WarnContext(ctx, "fleet limits are not shared: allotted permits end with their lease, rates go on lowered", slog.Any("error", err))
		}
	case before != nil:
		s.away.Store(nil)
		s.log.InfoContext(ctx, "fleet limits are shared again")
	}
}

// compare logs once when another worker knows a smaller cap.
func (s *Sharer) compare(ctx context.Context, p Part, r Report, a Answer) {
	if a.Stale {
		return
	}
	if a.Cap >= r.Cap {
		delete(s.told, r.Key)
		return
	}
	if s.told[r.Key] != a.Cap {
		s.told[r.Key] = a.Cap
		s.log.WarnContext(ctx, "workers are configured with different fleet limits: the smallest counts",
			slog.String("limit", r.Key), slog.String("own", p.Text(r.Cap)), slog.String("smallest", p.Text(a.Cap)))
	}
}

// leave gives everything back.
func (s *Sharer) leave(ctx context.Context) {
	_, _, err := s.exchange(context.WithoutCancel(ctx), time.Now(), true)
	if err != nil {
		s.log.InfoContext(ctx, "the fleet learns late that this worker ended", slog.Any("error", err))
	}
}
