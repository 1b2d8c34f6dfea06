// Command little measures a whole worker against Little's law: with P permits and a downstream that takes L for each
// call, P ÷ L calls a second are all there can be. What is missing is the time a permit lies idle between two calls.
//
// The worker is the real one, with its broker, its Redis and a Postgres that flushes each commit; the downstream is a
// handler in the same process that waits. An order counts when its final row was written. Start it through
// scripts/bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/report"
	"spillway/bench/rig"
)

const (
	partitions = 12
	valueBytes = 200
	keys       = 1000 // of the records that come in key order
)

// law is one case: permits and latency, and whether the records of a key wait for each other.
type law struct {
	name    string
	permits int
	latency time.Duration
	keyed   bool
}

func laws() []law {
	return []law{
		{"50x10ms", 50, 10 * time.Millisecond, false},
		{"100x100ms", 100, 100 * time.Millisecond, false},
		{"1000x100ms", 1000, 100 * time.Millisecond, false},
		{"key_1000x10ms", 100, 10 * time.Millisecond, true},
	}
}

// most is how many orders a second there can be.
func (l law) most() float64 { return float64(l.permits) / l.latency.Seconds() }

func (l law) what() string {
	what := fmt.Sprintf("%d permits, calls of %v, %d partitions, no order among records", l.permits, l.latency, partitions)
	if l.keyed {
		what = fmt.Sprintf("%d permits, calls of %v, %d partitions, ordering: key with %d keys drawn at random", l.permits, l.latency, partitions, keys)
	}
	return what + "; the ratio little is the rate of final rows x latency / permits, the ratio waited is the same with the latency that the handler measured"
}

// bench is one run.
type bench struct {
	*rig.Servers

	window, warm time.Duration
	orders       map[bool]int64 // in the topics, by whether they are keyed
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	b := &bench{orders: map[bool]int64{}}
	out := flag.String("out", "out/little.json", "file for the results")
	rounds := flag.Int("rounds", 1, "how often each case is measured")
	only := flag.String("only", "", "cases to measure, by name, with commas; nothing is written then")
	cpu := flag.String("cpuprofile", "", "file for a CPU profile")
	block := flag.String("blockprofile", "", "file for a profile of waiting")
	allocs := flag.String("memprofile", "", "file for a profile of allocations")
	flag.DurationVar(&b.window, "window", 20*time.Second, "how long one measurement lasts")
	flag.DurationVar(&b.warm, "warm", 5*time.Second, "how long a case runs before that")
	flag.Parse()
	if *rounds < 1 || b.window < time.Second || flag.NArg() > 0 {
		return errors.New("want at least one round, a window of a second or more, and no arguments but flags")
	}
	cases, err := pick(*only)
	if err != nil {
		return err
	}
	setup := report.Machine()
	setup["window"], setup["warm"] = b.window.String(), b.warm.String()
	setup["partitions"], setup["value_bytes"] = fmt.Sprint(partitions), fmt.Sprint(valueBytes)
	calibrate(setup)
	if b.Servers, err = rig.Open(ctx, setup); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Drop(context.WithoutCancel(ctx), b.topic(false), b.topic(true))) }()
	if err := b.fill(ctx, cases); err != nil {
		return err
	}
	stopProfiles, err := rig.Profile(*cpu, *block, *allocs)
	if err != nil {
		return err
	}
	results, err := b.measure(ctx, cases, *rounds)
	if err := errors.Join(err, stopProfiles()); err != nil {
		return err
	}
	f := report.File{Bench: "little", Setup: setup, Results: results}
	if *only == "" {
		if err := f.Save(*out); err != nil {
			return err
		}
	}
	return f.List(os.Stdout)
}

// pick returns the cases named, or all.
func pick(names string) ([]law, error) {
	if names == "" {
		return laws(), nil
	}
	var picked []law
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(laws(), func(l law) bool { return l.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no case %q", name)
		}
		picked = append(picked, laws()[at])
	}
	return picked, nil
}

// calibrate says what a wait of each case's length takes when nothing else happens, by the Go runtime's timers, which
// an idle process keeps to the millisecond, and by the kernel's, which the handler waits by.
func calibrate(setup map[string]string) {
	for _, d := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
		for name, wait := range map[string]func(time.Duration){"time_sleep": time.Sleep, "handler_wait": rig.NewWaits().Wait} {
			began := time.Now()
			n := max(int(500*time.Millisecond/d), 1)
			for range n {
				wait(d)
			}
			setup[fmt.Sprintf("%s_%v_takes", name, d)] = (time.Since(began) / time.Duration(n)).Round(time.Microsecond).String()
		}
	}
}

func (b *bench) topic(keyed bool) string {
	if keyed {
		return b.Tag + "_keyed"
	}
	return b.Tag + "_free"
}

// fill makes a topic with the business number as key, and one with few keys and the number in a header.
func (b *bench) fill(ctx context.Context, cases []law) error {
	for _, keyed := range []bool{false, true} {
		most := 0.0
		for _, l := range cases {
			if l.keyed == keyed {
				most = max(most, l.most())
			}
		}
		if most == 0 {
			continue
		}
		record := free
		if keyed {
			record = newKeyed()
		}
		// Ten seconds more than is measured: a start and an end at full speed.
		n := int(most * (b.warm + b.window + 10*time.Second).Seconds())
		b.orders[keyed] = int64(n)
		if err := b.Topic(ctx, b.topic(keyed), partitions, n, record); err != nil {
			return err
		}
	}
	return nil
}

func free(i int) *kgo.Record {
	return &kgo.Record{Partition: int32(i % partitions), Key: []byte(rig.Number(i)), Value: rig.Value(i, valueBytes)}
}

// measure runs all cases round by round.
func (b *bench) measure(ctx context.Context, cases []law, rounds int) ([]report.Result, error) {
	rates := make([][]float64, len(cases))
	little, waited := make([][]float64, len(cases)), make([][]float64, len(cases))
	for round := range rounds {
		for i, l := range cases {
			debug.FreeOSMemory() // nobody pays for another's garbage
			o, err := b.one(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			fmt.Printf("round %d  %-14s %8.1f orders/s, %.4f of permits / latency; calls took %v, by that %.4f; at most %d in flight; own CPU %.2f cores\n",
				round+1, l.name, o.rate, o.rate/l.most(), o.took.Round(time.Microsecond),
				o.rate*o.took.Seconds()/float64(l.permits), o.flying, o.cores)
			rates[i] = append(rates[i], o.rate)
			little[i] = append(little[i], o.rate/l.most())
			waited[i] = append(waited[i], o.rate*o.took.Seconds()/float64(l.permits))
		}
	}
	results := make([]report.Result, len(cases))
	for i, l := range cases {
		results[i] = report.Figure(l.name, "orders/s", l.what(), rates[i],
			map[string][]float64{"little": little[i], "waited": waited[i]})
	}
	return results, nil
}
