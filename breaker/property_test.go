package breaker

import (
	"math/rand/v2"
	"testing"
	"time"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func newAt(t *testing.T, cfg Config) *Breaker {
	t.Helper()
	b, err := NewAt(epoch, Key{"wallet", "pay"}, cfg, seeded(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBreakerIsNeverStuck leaves a breaker in whatever state a random past led to, with permits lost and forces on,
// then lets a healthy service be called ten times a second. It must close within the bounds of its configuration.
func TestBreakerIsNeverStuck(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rnd := seeded(seed)
		var shape [6]byte
		for i := range shape {
			shape[i] = byte(rnd.Uint32())
		}
		cfg := fuzzConfig(shape)
		cfg.OpenJitter = 0.2
		b := newAt(t, cfg)
		now := randomPast(t, b, rnd)

		d := cfg.WithDefaults()
		const gap, force = 100 * time.Millisecond, 3 * time.Second
		waits := time.Duration(float64(d.OpenWaitMax) * (1 + d.OpenJitter))
		// A force, an open wait, lost probes that reopen it once more, the first probes, the ramp at its longest.
		bound := force + 2*waits + 3*d.PermitDeadline + 4*time.Second + gap*time.Duration(d.FirstProbes+d.SuccessesToClose+d.ProbeFailures) + 10*d.RampStep
		closed := false
		for end := now + bound; now < end && !closed; now += gap {
			if p, ok := b.AllowAt(epoch.Add(now)); ok {
				b.DoneAt(epoch.Add(now), p, Success)
			}
			s := b.SnapshotAt(epoch.Add(now))
			closed = s.State == Closed && s.Force == ForceNone
		}
		if s := b.SnapshotAt(epoch.Add(now)); !closed || s.Probes != 0 {
			t.Fatalf("seed %d: not closed %v after the service became healthy: %+v", seed, bound, s)
		}
	}
}

func randomPast(t *testing.T, b *Breaker, rnd *rand.Rand) (now time.Duration) {
	t.Helper()
	var kept []Permit
	for range 300 {
		at := epoch.Add(now)
		switch rnd.IntN(12) {
		case 0:
			now += time.Duration(rnd.IntN(4000)) * time.Millisecond
		case 1:
			if err := b.ForceAt(at, Force(rnd.IntN(3)), 3*time.Second); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := b.SetModeAt(at, Mode(rnd.IntN(4))); err != nil {
				t.Fatal(err)
			}
		case 3, 4:
			if len(kept) > 0 { // also twice the same, and of any age
				b.DoneAt(at, kept[rnd.IntN(len(kept))], Result(rnd.IntN(4)))
			}
		default:
			p, ok := b.AllowAt(at)
			switch {
			case ok && rnd.IntN(3) == 0:
				kept = append(kept, p) // most of these are never reported
			case ok:
				b.DoneAt(at, p, Result(rnd.IntN(4)))
			}
		}
	}
	if err := b.SetModeAt(epoch.Add(now), ModeEnforce); err != nil {
		t.Fatal(err)
	}
	return now
}

// TestHalfOpenSurvivesEveryFateOfItsProbes is the field case of a breaker wedged half-open for days: the probes that
// took its slots gave no verdict. Whatever became of them, it closes within a probe's deadline, two waits and the ramp.
func TestHalfOpenSurvivesEveryFateOfItsProbes(t *testing.T) {
	t.Parallel()
	const wait, deadline, ramp = 5 * time.Second, 2 * time.Second, 21 * time.Second
	lost := func(*Breaker, time.Duration, Permit) {}
	reports := func(results ...Result) func(*Breaker, time.Duration, Permit) {
		return func(b *Breaker, now time.Duration, p Permit) {
			for _, r := range results {
				b.DoneAt(epoch.Add(now), p, r)
			}
		}
	}
	fates := map[string]func(*Breaker, time.Duration, Permit){
		"never answered":                  lost,
		"refused by a later gate":         reports(Ignored),
		"answered that nothing was found": reports(Success),
		"answered with a cut body":        reports(Failure),
		"too slow":                        reports(Slow),
		"reported by a deferred call too": reports(Failure, Ignored),
	}
	for name, fate := range fates {
		for _, inFlight := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newAt(t, Config{
					ConsecutiveFailures: 3, OpenWait: wait, OpenJitter: -1, OpenGrowth: 1, ProbesInFlight: inFlight, PermitDeadline: deadline,
				})
				for range 3 {
					p, _ := b.AllowAt(epoch)
					b.DoneAt(epoch, p, Failure)
				}
				unlucky := inFlight
				var now time.Duration
				for ; now <= deadline+2*wait+ramp; now += 50 * time.Millisecond {
					p, ok := b.AllowAt(epoch.Add(now))
					switch {
					case ok && unlucky > 0:
						unlucky--
						fate(b, now, p)
					case ok:
						b.DoneAt(epoch.Add(now), p, Success)
					}
					if s := b.SnapshotAt(epoch.Add(now)); s.Probes < 0 || s.Probes > inFlight {
						t.Fatalf("at %v: %d probes under way, at most %d allowed", now, s.Probes, inFlight)
					}
				}
				s := b.SnapshotAt(epoch.Add(now))
				if unlucky != 0 || s.State != Closed || s.Probes != 0 {
					t.Errorf("%d probes never met their fate; %s with %d probes under way, want closed with none", unlucky, s.State, s.Probes)
				}
			})
		}
	}
}

// TestWilsonBoundKeepsTheFirstLooksFromTripping repeats, in short, the table that says what the bound costs and saves:
// threshold 50 %, minimum 20, ten one-second buckets, 60 s of calls at an even rate.
func TestWilsonBoundKeepsTheFirstLooksFromTripping(t *testing.T) {
	t.Parallel()
	const trials = 150
	for _, c := range []struct {
		name        string
		rate        float64 // true failure rate
		perSecond   int
		z           float64
		least, most float64 // share of trials that open
	}{
		{"raw rate trips on a healthy 40 % at 2/s", 0.40, 2, 0, 0.88, 0.99},
		{"z=1.96 seldom does", 0.40, 2, 1.96, 0, 0.10},
		{"z=3.29 never does", 0.40, 2, 3.29, 0, 0.01},
		{"raw rate trips on 40 % at 200/s", 0.40, 200, 0, 0.28, 0.52},
		{"z=2.58 does not", 0.40, 200, 2.58, 0, 0.03},
		{"raw rate trips on 45 % at 20/s", 0.45, 20, 0, 0.85, 0.99},
		{"z=1.96 on 45 % at 20/s", 0.45, 20, 1.96, 0, 0.12},
		{"z=1.96 sees a true 60 % at 2/s", 0.60, 2, 1.96, 0.75, 0.94},
		{"z=2.58 misses many of them", 0.60, 2, 2.58, 0.40, 0.70},
		{"z=2.58 sees a true 60 % at 200/s", 0.60, 200, 2.58, 1, 1},
		{"z=3.29 sees 90 % at 2/s", 0.90, 2, 3.29, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			for trial := range uint64(trials) {
				if openedAfter(t, c.rate, c.perSecond, c.z, seeded(trial)) > 0 {
					opened++
				}
			}
			if share := float64(opened) / trials; share < c.least || share > c.most {
				t.Errorf("%.3f of the trials opened, want %.2f to %.2f", share, c.least, c.most)
			}
		})
	}
}

// openedAfter returns how many calls a breaker took to open within 60 s, 0 if it did not.
func openedAfter(t *testing.T, rate float64, perSecond int, z float64, rnd *rand.Rand) int {
	t.Helper()
	b := newAt(t, Config{Z: z, ConsecutiveFailures: -1})
	for i := range 60 * perSecond {
		at := epoch.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		p, ok := b.AllowAt(at)
		if !ok {
			return i
		}
		result := Success
		if rnd.Float64() < rate {
			result = Failure
		}
		b.DoneAt(at, p, result)
	}
	return 0
}

// TestBoundCostsFewCallsWhereTheServiceIsReallyBad pins the mean number of calls until a true 60 % is seen.
func TestBoundCostsFewCallsWhereTheServiceIsReallyBad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate, z     float64
		least, most int
	}{{0.6, 0, 20, 25}, {0.6, 1.96, 65, 110}, {0.6, 2.58, 115, 180}, {0.9, 2.58, 20, 23}} {
		calls := 0
		for trial := range uint64(200) {
			calls += openedAfter(t, c.rate, 200, c.z, seeded(trial))
		}
		if mean := calls / 200; mean < c.least || mean > c.most {
			t.Errorf("true rate %v, z %v: opened after %d calls on average, want %d to %d", c.rate, c.z, mean, c.least, c.most)
		}
	}
}
