package adapt

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The limiter's constants were chosen with the services of the other tests. These are drawn at random, and one kind was
// never among those.

// coresAt is a service of so many processors that all calls at it share.
func coresAt(c int, work time.Duration) shape {
	speed := func(n float64) float64 { return min(1, float64(c)/n) }
	return shape{fmt.Sprintf("cores %d", c), service{work: work, speed: speed}, float64(c)}
}

var drawn = flag.Int("adapt.drawn", 8, "services of each kind that are drawn at random")

var kinds = map[string]func(knee float64, work time.Duration) shape{
	"fixed":      func(knee float64, work time.Duration) shape { return fixedAt(int(knee), work) },
	"saturating": saturatingAt,
	"contended":  contendedAt,
	"cores":      func(knee float64, work time.Duration) shape { return coresAt(int(knee), work) },
}

// draw is evenly distributed by its logarithm.
func draw(rnd *rand.Rand, least, most float64) float64 {
	return least * math.Pow(most/least, rnd.Float64())
}

// drawService has 150 calls a second at least: with fewer the limiter is slower.
func drawService(rnd *rand.Rand) (knee float64, work time.Duration) {
	for {
		knee, work = draw(rnd, 12, 300), time.Duration(draw(rnd, 5, 200)*float64(time.Millisecond))
		if knee/work.Seconds() >= 150 {
			return knee, work
		}
	}
}

// tally is how near to the knee the limits of many services were.
type tally struct {
	n, near         int
	mean            float64
	lowest, highest float64
}

func (c *tally) add(share float64) {
	c.n++
	c.mean += (share - c.mean) / float64(c.n)
	if within(share, 0.1) {
		c.near++
	}
	if c.n == 1 || share < c.lowest {
		c.lowest = share
	}
	c.highest = max(c.highest, share)
}

func (c *tally) String() string {
	return fmt.Sprintf("%d services: %.3f of the knee, %d within a tenth, single ones %.2f to %.2f", c.n, c.mean, c.near, c.lowest, c.highest)
}

func TestLimitFindsTheKneeOfServicesDrawnAtRandom(t *testing.T) {
	t.Parallel()
	for kind, at := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var all tally
			rnd := rand.New(rand.NewPCG(20261201, 99))
			for i := range uint64(*drawn) {
				s := at(drawService(rnd))
				s.sigma = []float64{0, 0.1, 0.25, 0.5}[rnd.IntN(4)]
				w := newWorld(s.service, Config{Min: 1, Max: 3000, Start: max(1, int(s.knee*draw(rnd, 0.25, 4)))}, 1000+i)
				w.run(25 * time.Second)
				all.add(w.bases(20*time.Second, s.knee))
			}
			t.Log(&all)
			if !within(all.mean, 0.05) || float64(all.near) < 0.75*float64(all.n) {
				t.Errorf("%v, want 0.95 to 1.05 on the mean and three in four within a tenth", &all)
			}
		})
	}
}

func TestLimitFollowsStepsDrawnAtRandomWithinTenSeconds(t *testing.T) {
	t.Parallel()
	for kind, at := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var all tally
			rnd := rand.New(rand.NewPCG(20261202, 99))
			for i := range uint64(*drawn) {
				knee, work := drawService(rnd)
				before := at(knee, work)
				if factor := draw(rnd, 0.5, 2); i%2 == 0 {
					knee *= factor
				} else {
					work = time.Duration(float64(work) * factor)
				}
				after := at(knee, work)
				before.sigma, after.sigma = 0.1, 0.1
				w := newWorld(before.service, Config{Min: 1, Max: 3000, Start: int(before.knee)}, 2000+i)
				w.run(20 * time.Second)
				w.svc = after.service
				w.run(9 * time.Second)
				all.add(w.bases(2*time.Second, after.knee))
			}
			t.Log(&all)
			if !within(all.mean, 0.1) || float64(all.near) < 0.75*float64(all.n) {
				t.Errorf("%v, want 0.9 to 1.1 on the mean and three in four within a tenth", &all)
			}
		})
	}
}
