package fleet

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

	"spillway/breaker"
)

// flakyStore is a fakeStore that may be away. It counts what it is asked.
type flakyStore struct {
	fakeStore

	mu        sync.Mutex // guards what follows
	away      error
	exchanges int
}

func (s *flakyStore) setAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func (s *flakyStore) Exchange(ctx context.Context, worker string, reports []Report) ([]View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchanges++
	if s.away != nil {
		return nil, s.away
	}
	return s.fakeStore.Exchange(ctx, worker, reports)
}

func TestSharerExchangesAtItsPaceAndSaysWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := breaker.New(breaker.Key{Service: "s"}, breaker.Config{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		store := &flakyStore{}
		s, err := New(Config{Worker: "w"}, store, func() []*breaker.Breaker { return []*breaker.Breaker{b} }, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()

		for range 100_000 {
			p, _ := b.Allow()
			b.Done(p, breaker.Success)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := store.exchanges; n < 85 || n > 120 {
			t.Errorf("%d exchanges in 30 s, want one each 300 ms", n)
		}
		if !b.Snapshot().Linked || s.Away() != nil {
			t.Errorf("%+v, away: %v", b.Snapshot(), s.Away())
		}

		gone := errors.New("nobody there")
		store.setAway(gone)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if b.Snapshot().Linked || !errors.Is(s.Away(), gone) {
			t.Errorf("%+v, away: %v", b.Snapshot(), s.Away())
		}
		store.setAway(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if !b.Snapshot().Linked || s.Away() != nil {
			t.Errorf("%+v, away: %v", b.Snapshot(), s.Away())
		}
		cancel()
		if err := <-ended; err != nil || len(store.rows) != 0 {
			t.Errorf("it ended with %v and left %v", err, store.rows)
		}
		if text := log.String(); strings.Count(text, "goes on alone") != 1 || strings.Count(text, "shared again") != 1 {
			t.Errorf("log:\n%s", text)
		}
	})
}

func TestSharerForgetsBreakersThatAreGone(t *testing.T) {
	t.Parallel()
	var breakers []*breaker.Breaker
	for _, endpoint := range []string{"a", "b", "c"} {
		b, err := breaker.New(breaker.Key{Endpoint: endpoint}, breaker.Config{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		breakers = append(breakers, b)
	}
	s, err := New(Config{Worker: "w"}, &fakeStore{}, func() []*breaker.Breaker { return breakers }, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.reports(time.Now(), false)
	breakers = breakers[2:]
	if r := s.reports(time.Now(), false); len(r) != 1 || len(s.keep) != 1 || r[0].Key.Endpoint != "c" {
		t.Errorf("reports %+v, keeps %d", r, len(s.keep))
	}
}

func TestSharerRefusesNumbersThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no name":       {},
		"a long name":   {Worker: strings.Repeat("x", 201)},
		"too often":     {Worker: "w", Every: time.Millisecond},
		"too seldom":    {Worker: "w", Every: 2 * time.Second},
		"no patience":   {Worker: "w", Timeout: time.Microsecond},
		"a short lease": {Worker: "w", Lease: 700 * time.Millisecond},
		"a long lease":  {Worker: "w", Lease: time.Hour},
	} {
		if _, err := New(cfg, &fakeStore{}, nil, nil); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestIdleHolderGivesItsSlotAway has a worker with a slot and no calls, and one with calls and no slot.
func TestIdleHolderGivesItsSlotAway(t *testing.T) {
	t.Parallel()
	store := &fakeStore{rows: map[string]fakeRow{}}
	store.now = time.Hour
	if _, err := store.Move(t.Context(), []Move{{Record: breaker.Record{Epoch: 1, Moves: 1, State: breaker.HalfOpen, By: "x"}}}); err != nil {
		t.Fatal(err)
	}
	zero := time.Unix(0, 0)
	var now time.Duration
	type worker struct {
		b *breaker.Breaker
		s *Sharer
	}
	workers := make(map[string]worker)
	for _, name := range []string{"a", "b"} {
		b, err := breaker.NewAt(zero, breaker.Key{}, breaker.Config{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Worker: name}, store, func() []*breaker.Breaker { return []*breaker.Breaker{b} }, nil)
		if err != nil {
			t.Fatal(err)
		}
		workers[name] = worker{b, s}
	}
	round := func() {
		now += 300 * time.Millisecond
		store.now = time.Hour + now
		for _, name := range []string{"a", "b"} {
			w := workers[name]
			views, err := store.Exchange(t.Context(), name, w.s.reports(zero.Add(now), false))
			if err != nil {
				t.Fatal(err)
			}
			w.s.absorb(zero.Add(now), zero.Add(now), views)
		}
	}
	// slotFor makes name want a slot and returns how long it took to get one.
	slotFor := func(name string) time.Duration {
		began := now
		for range 1000 {
			if workers[name].b.ReadyAt(zero.Add(now)) {
				return now - began
			}
			round()
		}
		t.Fatalf("%s never gets a slot", name)
		return 0
	}
	round()
	slotFor("a")
	var last time.Duration
	for range 4 {
		b := slotFor("b")
		a := slotFor("a")
		if b < last || a < last || a > 2*time.Minute {
			t.Errorf("a slot nobody uses changed hands after %v and %v, before that after %v", b, a, last)
		}
		last = a
	}
	if last < 4*time.Second {
		t.Errorf("a slot is kept %v after four changes: rare calls would never meet it", last)
	}
}
