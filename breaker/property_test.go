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
			if err := b.ForceAt(at, Force(rnd.IntN(4)), 3*time.Second); err != nil {
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
