package breaker

import (
	"flag"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
)

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

// fullTable runs the whole table of what the bound costs and saves, a thousand trials a cell, in some twenty seconds:
// go test ./breaker -run WholeTable -table -v.
var fullTable = flag.Bool("table", false, "run the whole statistical table")

// TestWholeTableOfTripsIsReproduced measures, for each true failure rate and rate of calls, how many of a thousand runs
// of 60 s open a breaker of threshold 50 %, minimum 20, ten one-second buckets, and after how many calls on average.
// The expected numbers were simulated apart from this package, a thousand runs each too. The shares may differ by three
// standard errors of their difference and one point (7.7 points at 50 %, 3.6 at 4 %, 1 at 0 and 100 %), the mean number of
// calls by 15 % and two calls.
func TestWholeTableOfTripsIsReproduced(t *testing.T) {
	t.Parallel()
	if !*fullTable {
		t.Skip("-table is not set")
	}
	const trials = 1000
	const none = 0 // the mean is not known
	zs := [4]float64{0, 1.96, 2.58, 3.29}
	for _, row := range []struct {
		rate      float64
		perSecond int
		trips     [4]float64 // per cent, by z
		calls     [4]float64 // on average, of those that opened
	}{
		{0.40, 2, [4]float64{94.9, 3.9, 1.1, 0}, [4]float64{}},
		{0.40, 200, [4]float64{40.2, 0.5, 0.2, 0}, [4]float64{26, none, none, none}},
		{0.40, 1000, [4]float64{36.4, 0.8, 0, 0}, [4]float64{24, none, none, none}},
		{0.45, 20, [4]float64{92.7, 4.6, 1.1, 0}, [4]float64{}},
		{0.60, 2, [4]float64{100, 84.5, 55.3, 7.4}, [4]float64{21, 52, 59, none}},
		{0.60, 200, [4]float64{100, 100, 100, 100}, [4]float64{22, 86, 145, 247}},
		{0.90, 2, [4]float64{100, 100, 100, 100}, [4]float64{20, 20, 20, 21}},
		{0.90, 200, [4]float64{100, 100, 100, 100}, [4]float64{20, 20, 20, 23}},
	} {
		for i, z := range zs {
			trips, calls := measure(t, row.rate, row.perSecond, z, trials)
			t.Logf("true rate %.0f %% at %d/s, z %.2f: %.1f %% open after %.0f calls; simulated %.1f %% after %.0f (0: not known)",
				100*row.rate, row.perSecond, z, trips, calls, row.trips[i], row.calls[i])
			p := row.trips[i] / 100
			if math.Abs(trips-row.trips[i]) > 300*math.Sqrt(2*p*(1-p)/trials)+1 {
				t.Errorf("true rate %v at %d/s, z %v: %.1f %% open, want %.1f %%", row.rate, row.perSecond, z, trips, row.trips[i])
			}
			if want := row.calls[i]; want != none && math.Abs(calls-want) > 0.15*want+2 {
				t.Errorf("true rate %v at %d/s, z %v: opened after %.1f calls on average, want %.0f", row.rate, row.perSecond, z, calls, want)
			}
		}
	}
}

// measure returns how many per cent of the trials opened, and after how many calls on average.
func measure(t *testing.T, rate float64, perSecond int, z float64, trials int) (trips, calls float64) {
	t.Helper()
	took := make([]int, trials)
	var running sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		running.Go(func() {
			for i := w; i < trials; i += workers {
				took[i] = openedAfter(t, rate, perSecond, z, seeded(uint64(i)))
			}
		})
	}
	running.Wait()
	opened := 0
	for _, n := range took {
		if n > 0 {
			opened++
			calls += float64(n)
		}
	}
	return 100 * float64(opened) / float64(trials), calls / float64(max(1, opened))
}
