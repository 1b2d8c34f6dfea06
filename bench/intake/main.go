// Command intake measures what reading a topic costs: Spillway's own group member beside franz-go's group consumer and
// kafka-go's group Reader. Each reads the same topics to their end in a process of its own, so that processor time and
// memory are its own; rounds take turns.
//
// The broker's address comes from the environment of scripts/services. Start it through scripts/bench.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/bench/report"
	"spillway/bench/rig"
)

const valueBytes = 200

// headers are what a record carries: a trace, a tenant, a kind.
var headers = []kgo.RecordHeader{
	{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
	{Key: "tenant", Value: []byte("t-0042")},
	{Key: "content-type", Value: []byte("application/json")},
}

// sizes are the numbers of partitions measured.
var sizes = []int32{12, 600}

// options are the command's flags.
type options struct {
	out       string
	rounds    int
	records   int
	idle      time.Duration
	only      string
	contender string // set in a child
	topic     string
	cpu, heap string
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

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.out, "out", "out/intake.json", "file for the results")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each contender reads each topic")
	flag.IntVar(&o.records, "records", 1_000_000, "records in each topic")
	flag.DurationVar(&o.idle, "idle", 15*time.Second, "how long each contender is watched at the end of the log, in the first round")
	flag.StringVar(&o.only, "only", "", "contenders to measure, by name, with commas; nothing is written then")
	flag.StringVar(&o.contender, "contender", "", "be this contender; for the command's own use")
	flag.StringVar(&o.topic, "topic", "", "the topic a contender reads; for the command's own use")
	flag.StringVar(&o.cpu, "cpuprofile", "", "file for a contender's CPU profile of the last round's largest topic")
	flag.StringVar(&o.heap, "memprofile", "", "the same of what it allocated")
	flag.Parse()
	if o.rounds < 1 || o.records < 1 || flag.NArg() > 0 {
		return errors.New("want at least one round and one record, and no arguments but flags")
	}
	if o.contender != "" {
		return child(ctx, o)
	}
	return parent(ctx, o)
}

// reading is what a contender's process says of itself.
type reading struct {
	Seconds     float64 `json:"seconds"` // from the client's start to the last record, joining the group included
	CPU         float64 `json:"cpu"`     // seconds of processor time meanwhile, user and system
	PeakRSS     float64 `json:"peak_rss"`
	Sockets     float64 `json:"sockets"` // once everything was read
	IdleFetches float64 `json:"idle_fetches"`
	IdleCPU     float64 `json:"idle_cpu"`
	First       float64 `json:"first"` // seconds to the first record
}

// parent fills the topics, sends the contenders off, and writes down what they say.
func parent(ctx context.Context, o options) (err error) {
	setup := report.Machine()
	servers := &rig.Servers{Kafka: os.Getenv("SPILLWAY_TEST_KAFKA"), Tag: fmt.Sprintf("bench_%d", os.Getpid())}
	if servers.Kafka == "" {
		return errors.New("no servers in the environment: start it with scripts/bench")
	}
	setup["records"], setup["value_bytes"], setup["headers"] = fmt.Sprint(o.records), fmt.Sprint(valueBytes), fmt.Sprint(len(headers))
	setup["long_poll"] = longPoll.String()
	field, err := pick(o.only)
	if err != nil {
		return err
	}
	for _, n := range sizes {
		topic := topicOf(servers, n)
		defer func() { err = errors.Join(err, servers.Drop(context.WithoutCancel(ctx), topic)) }()
		if err := servers.Topic(ctx, topic, n, o.records, func(i int) *kgo.Record {
			return &kgo.Record{Partition: int32(i) % n, Key: []byte(rig.Number(i)), Value: rig.Value(i, valueBytes), Headers: headers}
		}); err != nil {
			return err
		}
	}
	// The broker's first group waits for its topic of offsets to be made, and its first fetches for its code to be compiled.
	for _, c := range field {
		if _, err := send(ctx, o, c, topicOf(servers, sizes[0]), -1); err != nil {
			return fmt.Errorf("%s, before anything is measured: %w", c.name, err)
		}
	}
	m := measures{}
	for round := range o.rounds {
		for at := range sizes {
			size := sizes[(at+round)%len(sizes)]
			for i := range field {
				c := field[(i+round)%len(field)]
				r, err := send(ctx, o, c, topicOf(servers, size), round)
				if err != nil {
					return fmt.Errorf("%s with %d partitions: %w", c.name, size, err)
				}
				m.add(o, c.name, size, round, r)
			}
		}
	}
	if o.only != "" {
		return nil
	}
	file := report.File{Bench: "intake", Setup: setup, Results: m.results(field)}
	if err := file.Save(o.out); err != nil {
		return err
	}
	return file.List(os.Stdout)
}

func topicOf(s *rig.Servers, partitions int32) string { return fmt.Sprintf("%s_%d", s.Tag, partitions) }

// send runs one contender once. Only the first round watches it at rest.
func send(ctx context.Context, o options, c contender, topic string, round int) (reading, error) {
	self, err := os.Executable()
	if err != nil {
		return reading{}, err
	}
	args := []string{"-contender", c.name, "-topic", topic, "-records", fmt.Sprint(o.records), "-idle", "0s"}
	if round == 0 {
		args[len(args)-1] = o.idle.String()
	}
	if round == o.rounds-1 && strings.HasSuffix(topic, fmt.Sprint(sizes[len(sizes)-1])) {
		args = append(args, "-cpuprofile", o.cpu, "-memprofile", o.heap)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+o.idle)
	defer cancel()
	command := exec.CommandContext(ctx, self, args...)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		return reading{}, err
	}
	var r reading
	return r, json.Unmarshal(text, &r)
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
