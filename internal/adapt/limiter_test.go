package adapt

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestShortBlipDoesNotCollapseTheLimit(t *testing.T) {
	t.Parallel()
	for _, s := range []shape{fixedAt(50, work), saturatingAt(50, work), contendedAt(60, work)} {
		for _, timeout := range []time.Duration{0, 300 * time.Millisecond} { // with it every call of the blip is dropped
			s.sigma = 0.1
			for seed := range uint64(4) {
				w := newWorld(s.service, Config{Min: 1, Max: 1000, Start: int(s.knee)}, seed)
				w.timeout = timeout
				w.run(15 * time.Second)
				before := w.limiter.Base()
				w.factor = 10
				w.run(time.Second)
				w.factor = 1
				lowest := before
				for range 20 {
					lowest = min(lowest, w.limiter.Base())
					w.run(100 * time.Millisecond)
				}
				w.run(6 * time.Second)
				after := w.limiter.Base()
				t.Logf("%s, deadline %v: %d, then %d, then %d", s.name, timeout, before, lowest, after)
				if 5*lowest < 2*before || 4*after < 3*before {
					t.Errorf("%s, deadline %v, seed %d: a second ten times slower took %d to %d, and to %d after eight seconds",
						s.name, timeout, seed, before, lowest, after)
				}
			}
		}
	}
}

func TestLimitDoesNotGrowWithoutDemand(t *testing.T) {
	t.Parallel()
	s := fixed(1000, work)
	s.sigma = 0.3
	w := newWorld(s, Config{Min: 1, Max: 1000, Start: 40}, 1)
	w.rate = 400 // 20 in flight
	for range 60 {
		w.run(time.Second)
		if w.limiter.Base() > 40 || w.limiter.Limit() > 48 {
			t.Fatalf("after %v it stands at %d and tries %d", w.now, w.limiter.Base(), w.limiter.Limit())
		}
	}
	w.rate = 0
	w.run(10 * time.Second)
	if w.limiter.Base() < 200 {
		t.Errorf("ten seconds after the demand came it stands at %d", w.limiter.Base())
	}
}

func TestLimitAtItsCeilingIsUsedAndLeftWhenTheServiceWeakens(t *testing.T) {
	t.Parallel()
	s := fixedAt(200, work)
	s.sigma = 0.1
	w := newWorld(s.service, Config{Min: 1, Max: 100, Start: 60}, 1)
	w.run(20 * time.Second)
	force := w.limits
	w.run(10 * time.Second)
	if force = (w.limits - force) / 10; force < 98 {
		t.Errorf("%.1f of 100 are in force though the service takes 200", force)
	}
	w.svc = fixedAt(50, work).service
	w.run(9 * time.Second)
	if got := w.bases(2*time.Second, 50); !within(got, 0.15) {
		t.Errorf("ten seconds after the service became half of the ceiling it stands at %.2f of that", got)
	}
}

// TestServiceThatTurnsAwayIsRarelyAsked has one that answers what is beyond its capacity with "too much", at once, and
// whose latency tells nothing.
func TestServiceThatTurnsAwayIsRarelyAsked(t *testing.T) {
	t.Parallel()
	s := fixed(1000, work)
	s.sigma, s.capacity = 0.3, 50
	w := newWorld(s, Config{Min: 1, Max: 1000, Start: 100}, 1)
	w.run(15 * time.Second)
	done, dropped := w.done, w.dropped
	got := w.bases(60*time.Second, 50)
	done, dropped = w.done-done, w.dropped-dropped
	t.Logf("%.2f of the capacity, %d calls answered, %d turned away", got, done, dropped)
	if got < 0.55 || got > 1 || float64(dropped) > 0.03*float64(done) {
		t.Errorf("%.2f of the capacity, %d calls answered, %d turned away", got, done, dropped)
	}
}

func TestServiceThatAnswersNothingInTimeShrinksTheLimitToItsFloorSlowly(t *testing.T) {
	t.Parallel()
	s := fixed(100, work)
	w := newWorld(s, Config{Min: 5, Max: 1000, Start: 100}, 1)
	w.timeout, w.factor = 300*time.Millisecond, 20
	for second := range 12 {
		before := w.limiter.Base()
		w.run(time.Second)
		if 100*w.limiter.Base() < 47*before { // twice at most within a second
			t.Errorf("second %d took it from %d to %d", second, before, w.limiter.Base())
		}
	}
	w.run(20 * time.Second)
	if w.limiter.Base() != 5 || w.limiter.Limit() != 5 {
		t.Errorf("it stands at %d, want its floor", w.limiter.Base())
	}
	w.factor = 1
	w.run(30 * time.Second)
	if w.limiter.Base() < 80 {
		t.Errorf("half a minute after the service came back it stands at %d of 100", w.limiter.Base())
	}
}

// TestWhatIsNotInForceDoesNotRunAway watches calls that another limit bounds, as in mode observe: nothing is known of what
// more or fewer would bring.
func TestWhatIsNotInForceDoesNotRunAway(t *testing.T) {
	t.Parallel()
	for _, start := range []int{20, 50, 150} {
		s := fixed(50, work)
		s.sigma = 0.3
		w := newWorld(s, Config{Min: 1, Max: 1000, Start: start}, 1)
		w.observe = true
		w.run(2 * time.Minute)
		if got := w.limiter.Base(); got < start/4 || got > start*2 || w.limit != start {
			t.Errorf("with %d in force it came to %d", start, got)
		}
	}
}

func TestBoundsHoldWhateverIsNoted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		cfg := Config{Min: 1 + rnd.IntN(20), Max: 20 + rnd.IntN(200)}
		cfg.Start = cfg.Min + rnd.IntN(cfg.Max-cfg.Min+1)
		l := New(cfg)
		now := epoch
		for i := range 5000 {
			now = now.Add(time.Duration(rnd.IntN(4_000_000) - 200_000)) // the clock of the calls may step back
			took := time.Duration(rnd.ExpFloat64() * float64(rnd.IntN(50)) * float64(time.Millisecond))
			if rnd.IntN(1000) == 0 {
				took = -took
			}
			got := l.Note(now.Add(-took), now, rnd.IntN(2*l.Limit()+1), Kind(rnd.IntN(3)))
			if got < cfg.Min || got > cfg.Max || l.Base() < cfg.Min || l.Base() > cfg.Max || got != l.Limit() {
				t.Fatalf("seed %d, call %d: limit %d, base %d, want %d to %d", seed, i, got, l.Base(), cfg.Min, cfg.Max)
			}
			if rnd.IntN(2000) == 0 {
				cfg = Config{Min: 1 + rnd.IntN(20), Max: 20 + rnd.IntN(200)}
				l.Configure(cfg)
			}
		}
	}
}

func TestConfigIsBroughtIntoOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cfg, want Config }{
		{Config{}, Config{1, 1, 1}},
		{Config{Min: 5}, Config{5, 5, 5}},
		{Config{Min: 2, Max: 10, Start: 50}, Config{2, 10, 10}},
		{Config{Min: 2, Max: 10, Start: 1}, Config{2, 10, 2}},
		{Config{Min: -3, Max: 10, Start: 4}, Config{1, 10, 4}},
	} {
		if got := c.cfg.sane(); got != c.want {
			t.Errorf("%+v became %+v, want %+v", c.cfg, got, c.want)
		}
	}
}

func TestNoteAllocatesNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	l := New(Config{Min: 1, Max: 100, Start: 10})
	now := epoch
	n := testing.AllocsPerRun(10_000, func() {
		now = now.Add(2 * time.Millisecond)
		l.Note(now.Add(-20*time.Millisecond), now, 10, Answered)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkNote(b *testing.B) {
	l := New(Config{Min: 1, Max: 100, Start: 10})
	now := epoch
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(2 * time.Millisecond)
		l.Note(now.Add(-20*time.Millisecond), now, 10, Answered)
	}
}
