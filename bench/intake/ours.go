package main

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/consumer"
	"spillway/internal/kafka"
)

func startOurs(ctx context.Context, to target, t *tally) (client, error) {
	registry := prometheus.NewRegistry()
	group, err := kafka.New(kafka.Config{
		Brokers: []string{to.broker}, Topic: to.topic, Group: to.group, MaxWait: longPoll, Registerer: registry,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return client{}, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- group.Run(ctx, func(ctx context.Context, s consumer.Session) error {
			return s.Fetch(ctx, newFeed(s.Assigned(), t))
		})
	}()
	return client{ended, func() float64 { return counter(registry, "spillway_kafka_fetches_total") }}, nil
}

// What the feed grants: a worker's ceiling and largest grant by default (routes[].prefetch in docs/settings.md), and
// little to a partition that was read to its end, so that there is room to listen to all of them.
const (
	grantBytes = 1 << 20
	idleBytes  = 32 << 10
	allBytes   = 64 << 20 // of all grants that are out; a fetch may bring twice its grant
)

// feed counts what comes and lets go of it.
type feed struct {
	mu    sync.Mutex // guards what follows, and the tally
	tally *tally
	parts map[int32]*part
	out   int64 // bytes granted and not come back
}

// part is where a partition stands.
type part struct {
	next, end int64
	granted   int32
}

func newFeed(positions []consumer.Position, t *tally) *feed {
	f := &feed{tally: t, parts: make(map[int32]*part, len(positions))}
	for _, p := range positions {
		f.parts[p.Partition] = &part{next: p.Offset, end: -1}
	}
	return f
}

// Plan implements consumer.Feed.
func (f *feed) Plan(candidates []int32, grants []consumer.Grant) []consumer.Grant {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range candidates {
		p, bytes := f.parts[id], int32(grantBytes)
		if p.next == p.end {
			bytes = idleBytes
		}
		if p.granted > 0 || f.out+2*int64(bytes) > allBytes {
			continue
		}
		p.granted = bytes
		f.out += 2 * int64(bytes)
		grants = append(grants, consumer.Grant{Partition: id, Offset: p.next, Bytes: bytes})
	}
	return grants
}

// Wait implements consumer.Feed. Whatever Plan waits for, the caller itself brings.
func (f *feed) Wait(ctx context.Context) { <-ctx.Done() }

// Deliver implements consumer.Feed.
func (f *feed) Deliver(b consumer.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[b.Partition]
	p.next, p.end = b.Next, b.HighWater
	f.back(p)
	for i := range b.Messages {
		m := &b.Messages[i]
		bytes := len(m.Key) + len(m.Value)
		for j := range m.Headers {
			bytes += len(m.Headers[j].Key) + len(m.Headers[j].Value)
		}
		f.tally.add(bytes, len(m.Headers))
	}
}

// Release implements consumer.Feed.
func (f *feed) Release(g consumer.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back(f.parts[g.Partition])
}

// back gives a grant back.
func (f *feed) back(p *part) {
	f.out -= 2 * int64(p.granted)
	p.granted = 0
}

// Lost implements consumer.Feed. What is lost is missing in the tally, and found there.
func (f *feed) Lost(g consumer.Gap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts[g.Partition].next = g.To
}

// counter reads a counter.
func counter(registry *prometheus.Registry, name string) float64 {
	families, err := registry.Gather()
	if err != nil {
		return 0
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
