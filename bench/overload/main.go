// Command overload measures what becomes of a worker that is offered five times what its downstream can take, with a
// million orders waiting already: what still gets through, how many calls are in flight, how much memory it takes,
// whether it stays in its group, what one failing call in a hundred costs, and what a SIGKILL with a thousand calls in
// flight makes it call again.
//
// The worker is the command as its users have it and a process of its own; so is the downstream. Start it through
// scripts/bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"spillway/bench/report"
	"spillway/bench/rig"
)

const (
	partitions = 12
	valueBytes = 200
	permits    = 50
	latency    = 10 * time.Millisecond
	timeout    = time.Second // a machine that is busy with other things must not look like an ill service
	overload   = 5           // times the capacity
)

// bench is one run.
type bench struct {
	*rig.Servers

	dir     string    // for what a run writes
	command string    // path
	log     io.Writer // takes what the workers print
	stub    *downstream

	backlog              int
	calm, window, faults time.Duration // of the phases
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if os.Getenv(stubEnv) != "" {
		err = runStub(ctx)
	} else {
		err = run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	b := &bench{}
	out := flag.String("out", "out/overload.json", "file for the results")
	logs := flag.String("log", "", "file for what the workers print")
	only := flag.String("only", "", "load or kill: that part alone; nothing is written then")
	flag.IntVar(&b.backlog, "backlog", 1_000_000, "orders that wait when the overload begins")
	flag.DurationVar(&b.calm, "calm", 30*time.Second, "how long the calm phase is measured")
	flag.DurationVar(&b.window, "window", 60*time.Second, "how long the overload is measured")
	flag.DurationVar(&b.faults, "faults", 20*time.Second, "how long each rate with and without failing calls is measured")
	flag.Parse()
	if flag.NArg() > 0 || b.backlog < 0 || min(b.calm, b.window, b.faults) < time.Second {
		return errors.New("want phases of a second or more, and no arguments but flags")
	}
	b.log = io.Discard
	if *logs != "" {
		f, err := os.Create(*logs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		b.log = f
	}
	setup := report.Machine()
	if b.Servers, err = rig.Open(ctx, setup); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "spillway-overload-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.command, err = build(ctx, b.dir); err != nil {
		return err
	}
	var results []report.Result
	for _, part := range []struct {
		name string
		run  func(ctx context.Context, setup map[string]string) ([]report.Result, error)
	}{{"load", b.load}, {"kill", b.kill}} {
		if *only != "" && *only != part.name {
			continue
		}
		got, err := b.with(ctx, setup, part.run)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		results = append(results, got...)
	}
	f := report.File{Bench: "overload", Setup: setup, Results: results}
	if *only == "" {
		if err := f.Save(*out); err != nil {
			return err
		}
	}
	return f.List(os.Stdout)
}

// with runs a part with a downstream of its own, which remembers nothing of the other's orders.
func (b *bench) with(ctx context.Context, setup map[string]string,
	part func(ctx context.Context, setup map[string]string) ([]report.Result, error),
) (results []report.Result, err error) {
	if b.stub, err = startStub(); err != nil {
		return nil, err
	}
	defer b.stub.kill()
	return part(ctx, setup)
}

// settings are the defaults, but for what a part needs.
const settings = `
kafka: {brokers: ["%s"]}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
routes:
  - name: overload
    topic: %s
    group: %s
%s
    downstream:
      url: %s
      timeout: %v
      submit: {path: /orders}
      lookup: {path: "/orders/{number}"}
`

// work starts the worker on a topic and a database; more are settings of the route.
func (b *bench) work(ctx context.Context, topic string, d *rig.Database, timeout time.Duration, more string) (*worker, error) {
	// It stays while the worker runs, which looks whether it changes.
	path := filepath.Join(b.dir, topic+".yaml")
	text := fmt.Sprintf(settings, b.Kafka, b.Redis, topic, d.URL, topic, topic, more, b.stub.url, timeout)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := start("worker", b.log, exec.Command(b.command, "worker", "-c", path))
	if err != nil {
		return nil, err
	}
	w := &worker{program: p}
	if w.metrics, err = p.address(ctx); err != nil {
		p.kill()
		return nil, err
	}
	return w, nil
}

// worker is the command at work.
type worker struct {
	*program

	metrics string // address
}
