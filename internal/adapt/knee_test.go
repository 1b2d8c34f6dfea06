package adapt

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// shape is a service and the knee that the limit is to find: the smallest concurrency that gives, without a queue,
//
//	fixed        all of the throughput there is: c
//	saturating   two thirds of it, where a call takes three times as long as an unloaded one: 2k
//	contended    97 % of the peak
type shape struct {
	name string
	service
	knee float64
}

func fixedAt(c int, work time.Duration) shape {
	return shape{fmt.Sprintf("fixed %d", c), fixed(c, work), float64(c)}
}

func saturatingAt(knee float64, work time.Duration) shape {
	return shape{fmt.Sprintf("saturating %.0f", knee), saturating(knee/2, work), knee}
}

// contendedAt has its peak at the concurrency given, with some contention for what is shared and the rest for coherence.
func contendedAt(peak float64, work time.Duration) shape {
	s := contended(0.3/peak, (1-0.3/peak)/(peak*peak), work)
	most, knee := 0.0, 1.0
	for n := 1.0; n < 4*peak; n++ {
		most = max(most, n*s.speed(n))
	}
	for knee*s.speed(knee) < 0.97*most {
		knee += 0.1
	}
	return shape{fmt.Sprintf("contended %.0f", knee), s, knee}
}

const work = 50 * time.Millisecond

// bases runs for d and returns the mean of the limit learnt, against the knee.
func (w *world) bases(d time.Duration, knee float64) (mean float64) {
	const looks = 50
	for range looks {
		w.run(d / looks)
		mean += float64(w.limiter.Base()) / knee / looks
	}
	return mean
}

func within(v, share float64) bool { return math.Abs(v-1) <= share }

func TestLimitSettlesAtTheKneeOfEachShape(t *testing.T) {
	t.Parallel()
	for _, s := range []shape{
		fixedAt(10, work), fixedAt(50, work), fixedAt(200, work),
		saturatingAt(20, work), saturatingAt(80, work), saturatingAt(200, work),
		contendedAt(25, work), contendedAt(60, work), contendedAt(150, work),
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, sigma := range []float64{0, 0.1} { // of the logarithm of a call's work
				for _, from := range []float64{0.2, 1, 4} { // of the knee
					s.sigma = sigma
					for seed := range uint64(2) {
						w := newWorld(s.service, Config{Min: 1, Max: 2000, Start: int(s.knee * from)}, seed)
						w.run(25 * time.Second)
						force := w.limits
						got := w.bases(20*time.Second, s.knee)
						force = (w.limits - force) / 20 / s.knee
						t.Logf("scatter %.1f, from %.1f, seed %d: %.2f of the knee, in force %.2f", sigma, from, seed, got, force)
						if !within(got, 0.1) {
							t.Errorf("scatter %.1f, from %.1f of the knee, seed %d: it settled at %.2f of the knee", sigma, from, seed, got)
						}
					}
				}
			}
		})
	}
}

// TestLimitFindsTheKneeThroughScatter has calls whose work is lognormal with σ 0.5: their latencies scatter by half, and
// one in twenty takes more than twice the median. A single limiter may be off for a while; many are not, on the average.
func TestLimitFindsTheKneeThroughScatter(t *testing.T) {
	t.Parallel()
	for _, s := range []shape{fixedAt(50, work), saturatingAt(80, work), contendedAt(60, work)} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.sigma = 0.5
			const seeds = 8
			mean, lowest, highest := 0.0, math.Inf(1), 0.0
			for seed := range uint64(seeds) {
				w := newWorld(s.service, Config{Min: 1, Max: 2000, Start: int(s.knee)}, seed)
				w.run(10 * time.Second)
				got := w.bases(40*time.Second, s.knee)
				mean += got / seeds
				lowest, highest = min(lowest, got), max(highest, got)
			}
			t.Logf("%.2f of the knee, single ones %.2f to %.2f", mean, lowest, highest)
			if !within(mean, 0.1) || lowest < 0.7 || highest > 1.3 {
				t.Errorf("it settled at %.2f of the knee, single ones at %.2f to %.2f", mean, lowest, highest)
			}
		})
	}
}

func TestLimitFollowsAStepOfTheServiceWithinTenSeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		from, to shape
	}{
		{"fixed, capacity halves", fixedAt(100, work), fixedAt(50, work)},
		{"fixed, capacity doubles", fixedAt(50, work), fixedAt(100, work)},
		{"fixed, latency doubles", fixedAt(50, work), fixedAt(50, 2*work)},
		{"saturating, capacity halves", saturatingAt(100, work), saturatingAt(50, work)},
		{"saturating, capacity doubles", saturatingAt(50, work), saturatingAt(100, work)},
		{"saturating, latency doubles", saturatingAt(50, work), saturatingAt(50, 2*work)},
		{"contended, capacity halves", contendedAt(120, work), contendedAt(60, work)},
		{"contended, capacity doubles", contendedAt(60, work), contendedAt(120, work)},
		{"contended, latency doubles", contendedAt(60, work), contendedAt(60, 2*work)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.from.sigma, c.to.sigma = 0.1, 0.1
			const seeds = 8
			mean, lowest, highest := 0.0, math.Inf(1), 0.0
			for seed := range uint64(seeds) {
				w := newWorld(c.from.service, Config{Min: 1, Max: 1000, Start: int(c.from.knee)}, seed)
				w.run(15 * time.Second)
				w.svc = c.to.service
				w.run(9 * time.Second)
				got := w.bases(2*time.Second, c.to.knee)
				mean += got / seeds
				lowest, highest = min(lowest, got), max(highest, got)
			}
			t.Logf("after ten seconds %.2f of the new knee, single ones %.2f to %.2f", mean, lowest, highest)
			if !within(mean, 0.1) || lowest < 0.75 || highest > 1.25 {
				t.Errorf("ten seconds after the step it stood at %.2f of the new knee, single ones at %.2f to %.2f", mean, lowest, highest)
			}
		})
	}
}
