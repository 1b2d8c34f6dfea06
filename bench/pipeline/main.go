// Command pipeline measures how many orders a second go through Kafka and Postgres with a downstream that answers at
// once, beside what the same machine's Postgres can do at best, what a worker written by hand does, and River.
//
// All contenders run in one process, one after another, round by round; each has a database of its own. Addresses come
// from the environment of scripts/services. Start it through scripts/bench.
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

	"spillway/bench/report"
	"spillway/bench/rig"
)

// bench is what all contenders stand on.
type bench struct {
	*rig.Servers

	topic  string
	window time.Duration // measured
	warm   time.Duration // before that, not measured
	orders int           // in the topic
}

// contender is one way to bring orders to their end. run measures once and returns orders per second.
type contender struct {
	name string
	what string
	run  func(ctx context.Context, r *bench) (float64, error)
}

// contenders is ours, then the references.
func contenders() []contender {
	return []contender{
		{"pipeline", "Spillway: 12 partitions, 1000 permits, an in-process handler that confirms at once", runPipeline},
		{"postgres_ceiling", "no Kafka: insert by unnest of 500, then the final update of the same 500, 4 connections, the same tables", runCeiling},
		{"hand_written", "kafka-go group Reader, one goroutine per partition, an insert and an update per order, offsets committed every 500 ms", runHandWritten},
		{"river", "River: InsertManyFast of 500 beside a no-op worker, 1000 workers, fetch cool-down 5 ms", runRiver},
	}
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
	out := flag.String("out", "out/pipeline.json", "file for the results")
	rounds := flag.Int("rounds", 5, "how often each contender is measured")
	only := flag.String("only", "", "contenders to measure, by name, with commas; nothing is written then")
	cpu := flag.String("cpuprofile", "", "file for a CPU profile")
	block := flag.String("blockprofile", "", "file for a profile of waiting")
	allocs := flag.String("memprofile", "", "file for a profile of allocations")
	r := &bench{}
	flag.DurationVar(&r.window, "window", 5*time.Second, "how long one measurement lasts")
	flag.DurationVar(&r.warm, "warm", 1500*time.Millisecond, "how long a contender runs before that")
	flag.IntVar(&r.orders, "orders", 500_000, "orders in the topic")
	flag.Parse()
	if *rounds < 1 || flag.NArg() > 0 {
		return errors.New("want at least one round, and no arguments but flags")
	}
	field, err := pick(*only)
	if err != nil {
		return err
	}
	setup := report.Machine()
	if err := r.open(ctx, setup); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Drop(context.WithoutCancel(ctx), r.topic)) }()
	stopProfiles, err := rig.Profile(*cpu, *block, *allocs)
	if err != nil {
		return err
	}
	series, err := r.measure(ctx, field, *rounds)
	if err := errors.Join(err, stopProfiles()); err != nil {
		return err
	}
	if *only != "" {
		return nil
	}
	return report.New("pipeline", "orders/s", setup, series[0], series[1:]...).Write(*out, os.Stdout)
}

// pick returns the contenders named, or all.
func pick(names string) ([]contender, error) {
	all := contenders()
	if names == "" {
		return all, nil
	}
	var field []contender
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no contender %q", name)
		}
		field = append(field, all[at])
	}
	return field, nil
}

// measure runs all contenders round by round. Each round begins with another one.
func (r *bench) measure(ctx context.Context, field []contender, rounds int) ([]report.Series, error) {
	series := make([]report.Series, len(field))
	for round := range rounds {
		for i := range field {
			at := (i + round) % len(field)
			c := field[at]
			debug.FreeOSMemory() // nobody pays for another's garbage
			began, cpu := time.Now(), rig.CPU()
			rate, err := c.run(ctx, r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Printf("round %d  %-16s %8.0f orders/s  own CPU %.2f cores\n", round+1, c.name, rate,
				(rig.CPU()-cpu).Seconds()/time.Since(began).Seconds())
			series[at].Name, series[at].What = c.name, c.what
			series[at].Values = append(series[at].Values, rate)
		}
	}
	return series, nil
}
