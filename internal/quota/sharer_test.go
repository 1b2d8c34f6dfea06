package quota

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a Store over tables in memory.
type memory struct {
	mu      sync.Mutex
	err     error
	start   time.Time
	tables  map[string]*Table
	reports []Report
}

func (m *memory) Exchange(ctx context.Context, worker string, reports []Report) ([]Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	answers := make([]Answer, len(reports))
	for i, r := range reports {
		if m.tables[r.Key] == nil {
			m.tables[r.Key] = &Table{}
		}
		answers[i] = m.tables[r.Key].Exchange(time.Since(m.start), "r", worker, r)
		m.reports = append(m.reports, r)
	}
	return answers, ctx.Err()
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// still is a pool that nobody uses.
type still struct {
	mu     sync.Mutex
	leased int
	until  time.Time
}

func (p *still) Lease(n int, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leased, p.until = n, until
}

func (p *still) Use(now time.Time) (held, peak, limit int, short bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.until.IsZero() && now.After(p.until) {
		return 0, 0, 50, true
	}
	return p.leased, 0, 50, false
}

func (p *still) now() int {
	held, _, _, _ := p.Use(time.Now())
	return held
}

func TestSharerKeepsAnAllotmentThroughAShortOutageAndGivesItBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memory{start: time.Now(), tables: map[string]*Table{}}
		pool, limiter := &still{}, &fakeLimiter{}
		permits, err := NewPermits("pay", 20, time.Second, pool)
		if err != nil {
			t.Fatal(err)
		}
		rate := newRate(t, 100, limiter)
		var text bytes.Buffer
		s, err := New(Config{Worker: "a"}, store, []Part{permits, rate}, slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = s.Run(ctx) }()
		time.Sleep(Lease + time.Second + Step - time.Second)
		if pool.now() != 0 || !permits.State().Unsure {
			t.Errorf("%d permits of a table that nobody knows, %+v", pool.now(), permits.State())
		}
		time.Sleep(5 * time.Second)
		if pool.now() != 20 || limiter.now() != 100 {
			t.Errorf("%d permits and %v/s, alone", pool.now(), limiter.now())
		}
		store.fail(errors.New("gone fishing"))
		time.Sleep(3 * time.Second)
		if pool.now() != 20 || limiter.now() != 100 || s.Away() == nil || s.Missed() == 0 {
			t.Errorf("%d permits, %v/s, away %v", pool.now(), limiter.now(), s.Away())
		}
		time.Sleep(4 * time.Second)
		if pool.now() != 0 || limiter.now() != 50 {
			t.Errorf("%d permits and %v/s after the lease", pool.now(), limiter.now())
		}
		store.fail(nil)
		time.Sleep(4 * time.Second)
		if pool.now() != 20 || limiter.now() != 100 || s.Away() != nil {
			t.Errorf("%d permits, %v/s, away %v", pool.now(), limiter.now(), s.Away())
		}
		stop()
		<-ended
		if pool.now() != 0 || limiter.now() != 0 {
			t.Errorf("%d permits and %v/s after the end", pool.now(), limiter.now())
		}
		for _, table := range store.tables {
			if len(table.rows) != 0 || table.allotted != 0 {
				t.Errorf("left behind: %+v", table)
			}
		}
		if n := strings.Count(text.String(), "not shared"); n != 1 || strings.Count(text.String(), "shared again") != 1 {
			t.Errorf("log:\n%s", text.String())
		}
	})
}

func TestDifferentCapsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memory{start: time.Now(), tables: map[string]*Table{}}
		var text bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for name, limit := range map[string]int{"a": 20, "b": 12} {
			permits, err := NewPermits("pay", limit, time.Second, &still{})
			if err != nil {
				t.Fatal(err)
			}
			rate, err := NewRate("pay", float64(limit)*1.5, &fakeLimiter{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			log := slog.New(slog.DiscardHandler)
			if name == "a" {
				log = slog.New(slog.NewTextHandler(&text, nil))
			}
			s, err := New(Config{Worker: name}, store, []Part{permits, rate}, log)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { _ = s.Run(ctx) })
		}
		time.Sleep(30 * time.Second)
		stop()
		wg.Wait()
		for _, want := range []string{"limit=pay:permits own=20 smallest=12", "limit=pay:rate own=30/s smallest=18/s"} {
			if n := strings.Count(text.String(), want); n != 1 {
				t.Errorf("%d lines with %q in\n%s", n, want, text.String())
			}
		}
	})
}

func TestNumbersOfASharerAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {Worker: "a", Every: time.Millisecond}, {Worker: "a", Timeout: time.Minute}} {
		if _, err := New(c, &memory{}, nil, nil); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
