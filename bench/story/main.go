// Command story plays the story of an outage and counts what became of the orders: a thousand a second for 70 s against
// a wallet that is healthy, then slow, then answers 503, then applies and never answers, then is healthy again. Nobody may
// lose an order or apply one twice, with the worker killed twice or not.
//
// The worker, the wallet and the servers are processes of their own; what is played is the command that users run.
// Addresses come from the environment of scripts/services. Start it through scripts/bench.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// edition is one way to play the story.
type edition struct {
	suffix string // of its results' names
	waits  waits
	// session is how long the group waits for a killed worker; with the defaults' own 8 s goes a shutdown.grace of 5 s.
	session time.Duration
	kills   []time.Duration // since the story's begin
	rounds  int
}

func run(ctx context.Context) (err error) {
	out := flag.String("out", "out/story.json", "file for the results")
	rounds := flag.Int("rounds", 3, "how often the story is played with short waits, and as often with kills")
	extra := flag.Int("extra", 1, "how often it is played with short waits and the rule spill, and with the defaults, and as often with kills")
	only := flag.String("only", "", "suffix of the one edition to play, . for the one without; nothing is written then")
	logs := flag.String("logs", "", "folder to leave the worker's logs in")
	watch := flag.Bool("watch", false, "print what the wallet sees, each second")
	at := flag.String("kills", "17s,45s", "when the worker is killed: in the slow phase, and while answers never come")
	more := flag.String("route", "", "more settings of the route, YAML; nothing is written then")
	share := flag.Int("share", 1, "play a small form: this part of the rate with this part of the permits; nothing is written then")
	flag.Parse()
	if *rounds < 1 || *extra < 0 || *extra > *rounds || *share < 1 || permits%*share > 0 || flag.NArg() > 0 {
		return fmt.Errorf("want at least one round, at most as many extra ones, a share that divides %d, and no arguments but flags", permits)
	}
	s, err := open(ctx, *logs)
	if err != nil {
		return err
	}
	s.permits, s.rate, s.watch = permits / *share, perSecond / *share, *watch
	defer func() { err = errors.Join(err, s.close()) }()

	kills, err := moments(*at)
	if err != nil {
		return err
	}
	const short, usual = 6 * time.Second, 8 * time.Second // the least that brokers allow by default, and our default
	editions := []edition{
		{suffix: "", waits: shortWaits("hold"), session: short, rounds: *rounds},
		{suffix: "_kills", waits: shortWaits("hold"), session: short, kills: kills, rounds: *rounds},
		{suffix: "_spill", waits: shortWaits("spill"), session: short, rounds: *extra},
		{suffix: "_spill_kills", waits: shortWaits("spill"), session: short, kills: kills, rounds: *extra},
		{suffix: "_defaults", session: usual, rounds: *extra},
		{suffix: "_defaults_kills", session: usual, kills: kills, rounds: *extra},
	}
	for i := range editions {
		if *more != "" {
			editions[i].waits += waits("\n    " + *more)
		}
	}
	tales := make([][]tale, len(editions))
	for round := range *rounds {
		for i, e := range editions {
			if round >= e.rounds || *only != "" && "."+e.suffix != *only && e.suffix != *only {
				continue
			}
			t, err := s.play(ctx, e)
			if err != nil {
				return fmt.Errorf("story%s, round %d: %w", e.suffix, round+1, err)
			}
			fmt.Printf("round %d%-16s %s\n", round+1, e.suffix, t)
			tales[i] = append(tales[i], t)
		}
	}
	if *only != "" || *share != 1 || *more != "" || *at != flag.Lookup("kills").DefValue {
		return nil
	}
	return write(*out, s.setup, editions, tales)
}

// moments reads times in the story, with commas.
func moments(text string) (all []time.Duration, err error) {
	for each := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(each)
		if err != nil || d < 0 || d >= lasts {
			return nil, fmt.Errorf("-kills %q: want times below %v, with commas", text, lasts)
		}
		all = append(all, d)
	}
	return all, nil
}
