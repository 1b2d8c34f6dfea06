package breaker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func newSet(t *testing.T, cfg Config, maxKeys int) *Set {
	t.Helper()
	s, err := NewSet(cfg, maxKeys, seeded(3), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, s *Set, now time.Time, endpoint string) *Breaker {
	t.Helper()
	b, err := s.GetAt(now, Key{"wallet", endpoint})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSetGivesEachKeyItsOwnBreaker(t *testing.T) {
	t.Parallel()
	s := newSet(t, Config{ConsecutiveFailures: 1}, 0)
	pay, query := get(t, s, epoch, "pay"), get(t, s, epoch, "query")
	if pay == query || get(t, s, epoch, "pay") != pay || s.Len() != 2 {
		t.Fatalf("two keys got %p and %p, the set holds %d", pay, query, s.Len())
	}
	p, _ := pay.AllowAt(epoch)
	pay.DoneAt(epoch, p, Failure)
	snapshots := s.SnapshotsAt(epoch)
	if len(snapshots) != 2 || snapshots[0].Key.Endpoint != "pay" || snapshots[0].State != Open || snapshots[1].State != Closed {
		t.Errorf("snapshots %+v, want pay open, then query closed", snapshots)
	}
	if b, ok := s.Find(Key{"wallet", "query"}); !ok || b != query {
		t.Error("Find does not know a key that Get created")
	}
	if _, ok := s.Find(Key{"wallet", "refund"}); ok || s.Len() != 2 {
		t.Error("Find created a breaker")
	}
}

// TestSetForgetsOnlyWhatRemembersNothing puts one breaker in each state that must survive next to an idle one.
func TestSetForgetsOnlyWhatRemembersNothing(t *testing.T) {
	t.Parallel()
	call := func(b *Breaker, now time.Time, r Result) {
		p, _ := b.AllowAt(now)
		b.DoneAt(now, p, r)
	}
	cfg := Config{ConsecutiveFailures: 2, OpenWait: time.Hour, OpenJitter: -1}
	later := epoch.Add(time.Minute)
	for name, c := range map[string]struct {
		prepare func(*Breaker)
		forgets bool
	}{
		"never used":                {func(*Breaker) {}, true},
		"samples aged out":          {func(b *Breaker) { call(b, epoch, Success) }, true},
		"samples in the window":     {func(b *Breaker) { call(b, later, Success) }, false},
		"a failure in a row":        {func(b *Breaker) { call(b, epoch, Failure) }, false},
		"open":                      {func(b *Breaker) { call(b, epoch, Failure); call(b, epoch, Failure) }, false},
		"a permit under way":        {func(b *Breaker) { b.AllowAt(later) }, false},
		"forced":                    {func(b *Breaker) { _ = b.ForceAt(epoch, ForceClosed, time.Hour) }, false},
		"mode changed":              {func(b *Breaker) { _ = b.SetModeAt(epoch, ModeObserve) }, false},
		"growth not yet worked off": {func(b *Breaker) { openAndClose(b) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSet(t, cfg, 1)
			c.prepare(get(t, s, epoch, "pay"))
			at := later
			if name == "growth not yet worked off" {
				at = epoch.Add(3 * time.Hour)
			}
			_, err := s.GetAt(at, Key{"wallet", "query"})
			if forgot := err == nil; forgot != c.forgets || err != nil && !errors.Is(err, ErrSetFull) {
				t.Errorf("forgotten: %v (%v), want %v", forgot, err, c.forgets)
			}
			if s.Len() != 1 {
				t.Errorf("the set holds %d breakers, at most 1 allowed", s.Len())
			}
		})
	}
}

func openAndClose(b *Breaker) {
	now := epoch
	for range 2 {
		p, _ := b.AllowAt(now)
		b.DoneAt(now, p, Failure)
	}
	for now = now.Add(time.Hour); b.SnapshotAt(now).State != Closed; now = now.Add(time.Second) {
		if p, ok := b.AllowAt(now); ok {
			b.DoneAt(now, p, Success)
		}
	}
}

func TestSetGivesUpPermitsThatWereNeverReported(t *testing.T) {
	t.Parallel()
	s := newSet(t, Config{PermitDeadline: 10 * time.Second}, 1)
	get(t, s, epoch, "pay").AllowAt(epoch)
	for _, c := range []struct {
		after time.Duration
		full  bool
	}{{time.Minute, true}, {time.Minute + 9*time.Second, true}, {time.Minute + 10*time.Second, false}} {
		_, err := s.GetAt(epoch.Add(c.after), Key{"wallet", "query"})
		if errors.Is(err, ErrSetFull) != c.full {
			t.Errorf("after %v: %v, want full %v", c.after, err, c.full)
		}
	}
}

func TestSetRefusesBadNumbersAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := NewSet(Config{OpenGrowth: 0.5}, -1, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "maxKeys is -1, accepted: 1 to 100000") || !strings.Contains(err.Error(), "OpenGrowth") {
		t.Errorf("error %v, want both fields named", err)
	}
}

func TestSetStaysBoundedUnderConcurrentKeys(t *testing.T) {
	t.Parallel()
	s := newSet(t, Config{}, 10)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 300 {
				b, err := s.Get(Key{"wallet", fmt.Sprint((w*7 + i) % 40)})
				if err != nil {
					if !errors.Is(err, ErrSetFull) {
						t.Error(err)
					}
					continue
				}
				if p, ok := b.Allow(); ok {
					b.Done(p, Ignored)
				}
				if n := s.Len(); n > 10 {
					t.Errorf("%d keys, at most 10 allowed", n)
				}
				s.Snapshots()
			}
		})
	}
	wg.Wait()
}
