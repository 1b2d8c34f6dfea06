package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"spillway/internal/admin"
)

// breakersCmd looks at breakers and forces them.
type breakersCmd struct {
	List       breakersListCmd `cmd:"" help:"List the breakers of workers."`
	Show       breakersShowCmd `cmd:"" help:"Show one breaker as all workers share it, and who ordered what."`
	ForceOpen  forceOpenCmd    `cmd:"" help:"Refuse every call, in all workers, for a time."`
	ForceClose forceCloseCmd   `cmd:"" help:"Admit every call, in all workers, for a time."`
	Observe    observeCmd      `cmd:"" help:"Count and refuse nothing, in all workers, for a time."`
	Release    releaseCmd      `cmd:"" help:"End a force before its time."`
}

// breakersListCmd is spillway admin breakers list.
type breakersListCmd struct {
	adminFlags

	Worker []string `placeholder:"URL" sep:"none" help:"A worker to ask, as http://host:port; may be given up to 64 times. http.listen of the settings if not given."`
}

// Help is shown by spillway admin breakers list --help.
func (*breakersListCmd) Help() string {
	return `Asks workers over HTTP, at the address that serves their metrics. Each worker has breakers of its own, one for the submits
and one for the lookups of each route: name every worker to see them all. Unless a route has breaker.scope worker, they
follow one record: see "breakers show".

FAILURES and SLOW are bad results of all in the rule's window; STREAK is failures in a row; SHARE is the part of the calls
that is admitted: 100% closed, 0% open, in between while it ramps. OPENED and REFUSED count since the worker's start. An
open breaker is no failure of this command.

LAST 24H comes from PostgreSQL and is about all workers: the openings of each breaker, how many workers had them, the time in
which at least one was open, and the rule behind the latest opening. Without PostgreSQL the rest is shown all the same.

  spillway admin breakers list --worker http://10.0.0.7:9464 --worker http://10.0.0.8:9464

Exit codes: 0 done, 1 if any worker did not answer, 2 for mistakes on the command line or in the settings.`
}

// Run implements the command.
func (c *breakersListCmd) Run(s *surroundings) error {
	if len(c.Worker) > admin.MaxWorkers {
		return usage("--worker: %d of them: want at most %d", len(c.Worker), admin.MaxWorkers)
	}
	for _, w := range c.Worker {
		if err := admin.CheckWorker(w); err != nil {
			return usage("--worker: %v", err)
		}
	}
	cfg, ctx, stop, err := c.load(s)
	if err != nil {
		return err
	}
	defer stop()
	workers := c.Worker
	if len(workers) == 0 {
		own, err := ownWorker(cfg.HTTP.Listen)
		if err != nil {
			return err
		}
		workers = []string{own}
	}
	var fleet admin.FleetBreakers
	var asking sync.WaitGroup
	asking.Go(func() { fleet = admin.AskBreakers(ctx, workers, time.Duration(c.Timeout)) })
	history, historyError := c.history(ctx, cfg)
	asking.Wait()
	fleet.History, fleet.HistoryError = history, historyError
	if c.JSON {
		err = admin.WriteJSON(s.out, fleet)
	} else {
		err = fleet.WriteTable(s.out, time.Now())
	}
	if n := fleet.Missing(); err == nil && n > 0 {
		return &exitError{code: exitFailure, text: fmt.Sprintf("%d of %d workers did not answer", n, len(workers))}
	}
	return err
}

// ownWorker is the worker that these settings start on this machine.
func ownWorker(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return "", usage("http.listen is %s, which does not say where the worker is: want --worker http://host:port", listen)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}
