package breaker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// loop is a caller that always has as many calls in flight as it may. Good answers take a time of their own and so do
// failures.
type loop struct {
	b         *Breaker
	rnd       *rand.Rand
	good, bad []flying // in flight
	goodTakes time.Duration
	badTakes  time.Duration
	failing   float64 // share of the calls that fail
	begun     int
	failures  int       // answers that were failures
	now       time.Time // of the latest answer
	refused   bool
	unclocked bool // asks by Allow, whose permits have no start here
	uneven    bool // failures take anything up to twice badTakes
}

// newLoop begins width calls that answer well, one after the other at even distances.
func newLoop(t *testing.T, cfg Config, width int, failing float64, badTakes time.Duration, seed uint64) *loop {
	t.Helper()
	const takes = 100 * time.Millisecond
	l := &loop{b: newAt(t, cfg), rnd: seeded(seed), goodTakes: takes, badTakes: badTakes, failing: failing, now: epoch}
	for i := range width {
		p, _ := l.b.AllowAt(epoch)
		l.good = append(l.good, flying{p, epoch.Add(takes * time.Duration(i) / time.Duration(width))})
		l.begun++
	}
	return l
}

// run goes on until a moment, or until a call is refused.
func (l *loop) run(until time.Time) {
	for !l.refused && len(l.good)+len(l.bad) > 0 {
		from, result := &l.good, Success
		if len(l.bad) > 0 && (len(l.good) == 0 || !l.bad[0].ends.After(l.good[0].ends)) {
			from, result = &l.bad, Failure
		}
		next := (*from)[0]
		if next.ends.After(until) {
			return
		}
		*from = (*from)[1:]
		l.now = next.ends
		if result == Failure {
			l.failures++
		}
		l.b.DoneAt(l.now, next.permit, result)
		l.begin()
	}
}

func (l *loop) begin() {
	var p Permit
	var ok bool
	if l.unclocked && l.b.ReadyAt(l.now) {
		p, ok = l.b.Allow()
	} else {
		p, ok = l.b.AllowAt(l.now)
	}
	switch {
	case !ok:
		l.refused = true
		return
	case l.rnd.Float64() < l.failing:
		takes := l.badTakes
		if l.uneven {
			takes = time.Duration(2 * l.rnd.Float64() * float64(takes))
		}
		f := flying{p, l.now.Add(takes)}
		i, _ := slices.BinarySearchFunc(l.bad, f, func(a, b flying) int { return a.ends.Compare(b.ends) })
		l.bad = slices.Insert(l.bad, i, f)
	default:
		l.good = append(l.good, flying{p, l.now.Add(l.goodTakes)})
	}
	l.begun++
}

// TestAnOutageIsSeenPastTheGoodAnswersOfCallsThatBeganBefore is the story of a service with calls of 100 ms that falls ill
// and answers new calls with failures, while those in flight still end well. The default breaker, its window full of good
// answers, used to open only when hardly any of them was left.
func TestAnOutageIsSeenPastTheGoodAnswersOfCallsThatBeganBefore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		width      int
		badTakes   time.Duration
		uneven     bool
		background float64 // failures before the outage
		most       int     // failures until it opens
	}{
		{"at once", 50, time.Microsecond, false, 0, 20},
		{"in 1 ms", 50, time.Millisecond, false, 0, 20},
		{"in 16 ms", 50, 16 * time.Millisecond, false, 0, 20},
		{"in half the time of a good call", 50, 50 * time.Millisecond, false, 0, 20},
		{"as late as a good call", 50, 100 * time.Millisecond, false, 0, 20},
		{"a thousand calls in flight", 1000, time.Millisecond, false, 0, 20},
		{"in anything up to 2 ms", 50, time.Millisecond, true, 0, 40},
		{"in anything up to 20 ms", 50, 10 * time.Millisecond, true, 0, 60},
		{"one call of 500 fails anyway", 50, time.Millisecond, false, 0.002, 25},
		{"one call of 50 fails anyway", 50, time.Millisecond, false, 0.02, 60},
		{"one call of 50 fails anyway, of a thousand in flight", 1000, time.Millisecond, false, 0.02, 60},
	} {
		for _, unclocked := range []bool{false, true} {
			for seed := range uint64(10) {
				l := newLoop(t, Config{SlowRate: -1}, c.width, c.background, c.badTakes, seed)
				l.unclocked, l.uneven = unclocked, c.uneven
				l.run(epoch.Add(2*time.Second + time.Duration(seed)*13300*time.Microsecond))
				before := l.failures
				l.failing = 1
				l.run(epoch.Add(10 * time.Second))
				if s := l.b.SnapshotAt(l.now); s.State != Open || l.failures-before > c.most {
					t.Errorf("%s, seed %d, unclocked %v: %s after %d failures, want open after at most %d", c.name, seed, unclocked, s.State, l.failures-before, c.most)
				}
			}
		}
	}
}

// TestQuickFailuresDoNotOpenAServiceThatMostlyAnswers lets a part of the calls fail at once while good ones take 100 ms.
// Of the calls begun since any failure, the failures are then known first: 2 % of 1,000 calls are 20 failures before the
// first good answer. With the rates off, nothing may open it.
func TestQuickFailuresDoNotOpenAServiceThatMostlyAnswers(t *testing.T) {
	t.Parallel()
	for _, width := range []int{20, 50, 1000} {
		for _, failing := range []float64{0.02, 0.1, 0.3, 0.4} {
			for _, badTakes := range []time.Duration{time.Microsecond, 20 * time.Millisecond} {
				if testing.Short() && (width == 1000 || badTakes > time.Microsecond) {
					continue
				}
				l := newLoop(t, Config{FailureRate: -1, SlowRate: -1}, width, failing, badTakes, 1)
				lasts := time.Minute
				if width == 1000 {
					lasts = 20 * time.Second // as many runs, and many times as many calls
				}
				l.run(epoch.Add(lasts))
				if l.refused || l.begun < width*150 || float64(l.failures) < 0.9*failing*float64(l.begun) {
					t.Errorf("%d in flight, %v fail in %v: %s after %d calls and %d failures", width, failing, badTakes,
						l.b.SnapshotAt(l.now).State, l.begun, l.failures)
				}
			}
		}
	}
}

// TestABurstIsJudgedByAllOfItsCalls begins a thousand calls and none after them. The failures come first.
func TestABurstIsJudgedByAllOfItsCalls(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rnd := seeded(seed)
		b := newAt(t, Config{FailureRate: -1, SlowRate: -1})
		var good, bad []Permit
		for range 1000 {
			p, _ := b.AllowAt(epoch)
			if rnd.Float64() < 0.3 {
				bad = append(bad, p)
			} else {
				good = append(good, p)
			}
		}
		rnd.Shuffle(len(bad), func(i, j int) { bad[i], bad[j] = bad[j], bad[i] })
		at := epoch
		for i, p := range bad {
			at = at.Add(time.Millisecond)
			b.DoneAt(at, p, Failure)
			if i%15 == 14 { // or it is a row as they answer, which has always been enough
				b.DoneAt(at, good[0], Success)
				good = good[1:]
			}
		}
		if s := b.SnapshotAt(at); s.State != Closed {
			t.Fatalf("seed %d: %s after %d of 1000 calls failed", seed, s.State, len(bad))
		}
	}
}

// TestReportsTwiceDoNotShortenARun reports the failure of one call again and again, with good answers between.
func TestReportsTwiceDoNotShortenARun(t *testing.T) {
	t.Parallel()
	b := newAt(t, Config{FailureRate: -1, SlowRate: -1})
	old, _ := b.AllowAt(epoch)
	first, _ := b.AllowAt(epoch)
	p, _ := b.AllowAt(epoch)
	b.DoneAt(epoch, first, Failure)
	for i := range 18 {
		b.DoneAt(epoch, p, Failure)
		b.DoneAt(epoch, old, Success)
		if s := b.SnapshotAt(epoch); s.State != Closed {
			t.Fatalf("%s after %d reports", s.State, i+1)
		}
	}
}
