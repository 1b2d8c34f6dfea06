package scale

import (
	"time"

	"spillway/consumer"
)

// Options is one run. The zero value is not of use: start from [Full] or [Small].
type Options struct {
	Seed       uint64
	Workers    int // at the start
	Partitions int
	Brokers    int

	Limits   consumer.Limits // of each worker
	FleetCap int             // permits of all workers together, and calls that the downstream serves at once
	Service  time.Duration   // mean time of a call that need not wait
	Record   int             // bytes, mean

	Fetch     time.Duration // median round trip of a fetch
	Admission time.Duration // median time to admit a batch
	Drain     time.Duration // the longest a worker takes to give its partitions up

	Phases []Phase
	Window time.Duration // at the end of a phase: what is measured of it
}

// Phase is a time of one kind.
type Phase struct {
	Name   string
	For    time.Duration
	Load   float64       // records offered, times what the downstream can take
	Skew   float64       // exponent of Zipf's law over the partitions; 0: all alike
	Bursts time.Duration // mean time between bursts, of a tenth of the partitions; 0: none
	Slow   float64       // factor on the service time, 1 or more; 0 is 1
	Join   int           // workers that join at its begin
	Leave  int           // workers that leave then
}

// Full is a thousand workers with ten thousand partitions.
func Full() Options {
	return Options{
		Seed: 1, Workers: 1000, Partitions: 10_000, Brokers: 30,
		Limits:   consumer.Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000},
		FleetCap: 5000, Service: 100 * time.Millisecond, Record: 400,
		Fetch: 5 * time.Millisecond, Admission: 8 * time.Millisecond, Drain: 5 * time.Second,
		Window: 20 * time.Second,
		Phases: []Phase{
			{Name: "half load", For: 30 * time.Second, Load: 0.5},
			{Name: "four fifths, skewed", For: 40 * time.Second, Load: 0.8, Skew: 1},
			{Name: "half load with bursts", For: 40 * time.Second, Load: 0.5, Bursts: 2 * time.Second},
			{Name: "five times the load", For: 60 * time.Second, Load: 5},
			{Name: "service three times as slow", For: 60 * time.Second, Load: 1, Slow: 3},
			{Name: "a twentieth of the workers leave", For: 40 * time.Second, Load: 1, Leave: 50},
			{Name: "they join again", For: 40 * time.Second, Load: 1, Join: 50},
		},
	}
}

// Small is the same at a twentieth of the size.
func Small() Options {
	o := Full()
	o.Workers, o.Partitions, o.Brokers, o.FleetCap = 50, 500, 6, 250
	for i := range o.Phases {
		o.Phases[i].Join, o.Phases[i].Leave = o.Phases[i].Join/20, o.Phases[i].Leave/20
	}
	return o
}
