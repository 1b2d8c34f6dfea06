package main

import (
	"time"

	"spillway/internal/admin"
	"spillway/internal/redis"
)

// replayCmd looks at the replay queues.
type replayCmd struct {
	Status replayStatusCmd `cmd:"" help:"Count each route's replay queue."`
}

// replayStatusCmd is spillway admin replay status.
type replayStatusCmd struct {
	adminFlags
}

// Help is shown by spillway admin replay status --help.
func (*replayStatusCmd) Help() string {
	return `Reads Redis. READY orders may be taken at once, DELAYED ones when their wait is over, IN FLIGHT ones are in a worker's
hands; together they may fill CAPACITY, and a full queue means that intake holds. OLDEST is how long the oldest order has
been queued.

Exit codes: 0 done, 1 if Redis is away, 2 for mistakes on the command line or in the settings.`
}

// Run implements the command.
func (c *replayStatusCmd) Run(s *surroundings) error {
	cfg, ctx, stop, err := c.load(s)
	if err != nil {
		return err
	}
	defer stop()
	timeout := time.Duration(c.Timeout)
	client, err := redis.Open(redis.Config{URL: cfg.Redis.URL.Reveal(), Prefix: cfg.Redis.Prefix, Dial: timeout, Call: timeout})
	if err != nil {
		return shown(err)
	}
	defer func() { _ = client.Close() }() // nothing is under way
	queues := make([]admin.Queue, len(cfg.Routes))
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		queues[i] = admin.Queue{Route: r.Name, Capacity: r.Replay.Capacity, Backlog: client.Queue(r.Name, r.Replay.Capacity)}
	}
	status := admin.CountQueues(ctx, address(cfg.Redis.URL), queues, timeout)
	if c.JSON {
		err = admin.WriteJSON(s.out, status)
	} else {
		err = status.WriteTable(s.out)
	}
	if err == nil && status.Away != "" {
		return &exitError{code: exitFailure, text: "Redis is away"}
	}
	return err
}
