package admin

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"spillway/replay"
)

// Backlog counts a replay queue.
type Backlog interface {
	Depths(ctx context.Context) (replay.Depths, error)
}

// Queue names a route's replay queue.
type Queue struct {
	Route    string
	Capacity int // its bound
	Backlog  Backlog
}

// QueueStatus is a replay queue as JSON shows it.
type QueueStatus struct {
	Route         string  `json:"route"`
	Ready         int     `json:"ready"`
	Delayed       int     `json:"delayed"`
	InFlight      int     `json:"in_flight"`
	Total         int     `json:"total"`
	Capacity      int     `json:"capacity"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

// ReplayStatus is all replay queues, or why there is nothing to say of them.
type ReplayStatus struct {
	Redis  string        `json:"redis"` // the address, secrets hidden
	Away   string        `json:"away,omitempty"`
	Queues []QueueStatus `json:"queues"`
}

// CountQueues counts the queues one by one, each within timeout. Redis away ends it at the first: the others stand
// there too. server is the address to show, with its secrets hidden.
func CountQueues(ctx context.Context, server string, queues []Queue, timeout time.Duration) ReplayStatus {
	s := ReplayStatus{Redis: server, Queues: []QueueStatus{}}
	for _, q := range queues {
		d, err := count(ctx, q.Backlog, timeout)
		if err != nil {
			s.Away = err.Error()
			return s
		}
		s.Queues = append(s.Queues, QueueStatus{
			Route: q.Route, Ready: d.Ready, Delayed: d.Delayed, InFlight: d.InFlight, Total: d.Total(),
			Capacity: q.Capacity, OldestSeconds: d.Oldest.Seconds(),
		})
	}
	return s
}

func count(ctx context.Context, b Backlog, timeout time.Duration) (replay.Depths, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return b.Depths(ctx)
}

// WriteTable writes the queues for people.
func (s ReplayStatus) WriteTable(w io.Writer) error {
	if len(s.Queues) > 0 || s.Away == "" {
		t := newTable(w, "ROUTE", "READY", "DELAYED", "IN FLIGHT", "TOTAL", "CAPACITY", "FULL", "OLDEST")
		for _, q := range s.Queues {
			oldest := "-"
			if q.Total > 0 {
				oldest = Age(time.Duration(q.OldestSeconds * float64(time.Second)))
			}
			full := fmt.Sprintf("%.1f%%", 100*float64(q.Total)/float64(max(q.Capacity, 1)))
			t.row(cell(q.Route, 0), strconv.Itoa(q.Ready), strconv.Itoa(q.Delayed), strconv.Itoa(q.InFlight),
				strconv.Itoa(q.Total), strconv.Itoa(q.Capacity), full, oldest)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if s.Away == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, "Redis at %s is away: %s\n"+
		"No order is lost by that: each stands in Postgres (spillway admin orders list --phase REPLAYING).\n",
		Printable(s.Redis), Printable(s.Away))
	return err
}
