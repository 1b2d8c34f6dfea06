package scale

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"spillway/consumer"
)

var full = flag.Bool("full", false, "simulate a thousand workers with ten thousand partitions: a minute or more")

func TestControllersOfAFleetAreStable(t *testing.T) {
	t.Parallel()
	o := Small()
	if *full {
		o = Full()
	}
	begun := time.Now()
	results := Run(o)
	t.Logf("%d workers, %d partitions, %d brokers: simulated in %v", o.Workers, o.Partitions, o.Brokers, time.Since(begun).Round(time.Millisecond))
	for i, r := range results {
		t.Logf("%-32s goodput %.0f/s (capacity %.0f, offered %.0f), from second to second ±%.1f %%; pauses %.2f per partition and minute; "+
			"a partition with records asked within %v; held %d KiB and waiting %d KiB at most; in flight %d; per worker and second %.1f fetches, %.1f statements; "+
			"back after %v; bound %v",
			r.Phase, r.Goodput, r.Capacity, r.Offered, 100*r.Spread, r.Pauses, r.Starved.Round(time.Millisecond), r.Held>>10, r.Waiting>>10,
			r.InFlight, r.Fetches, r.Store, r.Recovery.Round(time.Millisecond), r.Bound)
		check(t, o, o.Phases[i], r)
	}
}

// check holds a result against what stable means.
func check(t *testing.T, o Options, p Phase, r Result) {
	t.Helper()
	backlog := p.Load >= 1
	if want := 0.98 * r.Capacity; backlog && r.Goodput < want {
		t.Errorf("%s: goodput %.0f a second, want %.0f", r.Phase, r.Goodput, want)
	}
	if want := 0.93 * r.Offered; !backlog && r.Goodput < want {
		t.Errorf("%s: goodput %.0f a second of %.0f offered", r.Phase, r.Goodput, r.Offered)
	}
	if backlog && r.Spread > 0.05 {
		t.Errorf("%s: goodput varies by %.1f %% from second to second", r.Phase, 100*r.Spread)
	}
	if r.Pauses > 15.1 {
		t.Errorf("%s: %.1f pauses per partition and minute", r.Phase, r.Pauses)
	}
	// A request brings two seconds of work or a batch, to one partition after the other.
	each := max(2, p.Slow*batchOf*o.Service.Seconds()/(float64(o.FleetCap)/float64(o.Workers)))
	if most := time.Duration(2 * each * float64(o.Partitions/o.Workers+1) * float64(time.Second)); r.Starved > most {
		t.Errorf("%s: a partition with records was not asked for %v, want %v at most", r.Phase, r.Starved, most)
	}
	if r.Held > o.Limits.Bytes {
		t.Errorf("%s: a worker held %d bytes of %d", r.Phase, r.Held, o.Limits.Bytes)
	}
	if r.InFlight > o.FleetCap {
		t.Errorf("%s: %d calls in flight with %d permits", r.Phase, r.InFlight, o.FleetCap)
	}
	if backlog && r.Bound[consumer.ConstraintPermits] < 0.95 {
		t.Errorf("%s: bound by %v, want permits", r.Phase, r.Bound)
	}
}

func TestASeedTellsTheWholeStory(t *testing.T) {
	t.Parallel()
	o := Small()
	o.Workers, o.Partitions, o.FleetCap = 10, 80, 50
	if a, b := Run(o), Run(o); !reflect.DeepEqual(a, b) {
		t.Errorf("two runs differ:\n%+v\n%+v", a, b)
	}
}
