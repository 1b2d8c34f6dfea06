package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// longPoll is how long the broker may hold a fetch that finds nothing. All contenders ask for the same.
const longPoll = 500 * time.Millisecond

// target is what a contender reads.
type target struct{ broker, topic, group string }

// client is a contender that reads.
type client struct {
	ended   <-chan error   // it has ended, nil if it was told to
	fetches func() float64 // requests sent so far
}

// contender is one way to read a topic as a member of a group. start begins to read and returns; it ends with ctx.
// Nobody commits.
type contender struct {
	name  string
	what  string
	start func(ctx context.Context, to target, t *tally) (client, error)
}

// contenders is ours, then the references.
func contenders() []contender {
	return []contender{
		{"spillway", "internal/kafka's Group with a feed that grants a partition 1 MiB at a time, 64 MiB in all", startOurs},
		{"franz_go", "franz-go's group consumer with its default sizes; every record of every poll is looked at", startFranz},
		{"reader", "kafka-go's Reader with a group and a queue of 10,000; it does not check batches against their CRC", startReader},
	}
}

// counting counts fetch requests as they are written.
type counting struct{ atomic.Int64 }

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (c *counting) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	const fetch = 1
	if key == fetch {
		c.Add(1)
	}
}

func startFranz(ctx context.Context, to target, t *tally) (client, error) {
	requests := &counting{}
	c, err := kgo.NewClient(kgo.SeedBrokers(to.broker), kgo.ConsumerGroup(to.group), kgo.ConsumeTopics(to.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(longPoll), kgo.WithHooks(requests))
	if err != nil {
		return client{}, err
	}
	ended := make(chan error, 1)
	go func() {
		defer c.Close()
		for ctx.Err() == nil {
			fetches := c.PollFetches(ctx)
			if err := fetches.Err0(); err != nil && !errors.Is(err, context.Canceled) {
				ended <- err
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				bytes := len(r.Key) + len(r.Value)
				for i := range r.Headers {
					bytes += len(r.Headers[i].Key) + len(r.Headers[i].Value)
				}
				t.add(bytes, len(r.Headers))
			})
		}
		ended <- nil
	}()
	return client{ended, func() float64 { return float64(requests.Load()) }}, nil
}

func startReader(ctx context.Context, to target, t *tally) (client, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{to.broker}, Topic: to.topic, GroupID: to.group, StartOffset: kafka.FirstOffset,
		QueueCapacity: 10_000, MaxWait: longPoll, CommitInterval: time.Second,
	})
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			m, err := reader.FetchMessage(ctx)
			if err != nil {
				if ctx.Err() == nil {
					ended <- errors.Join(err, reader.Close())
					return
				}
				break
			}
			bytes := len(m.Key) + len(m.Value)
			for i := range m.Headers {
				bytes += len(m.Headers[i].Key) + len(m.Headers[i].Value)
			}
			t.add(bytes, len(m.Headers))
		}
		ended <- reader.Close()
	}()
	var total atomic.Int64
	return client{ended, func() float64 { return float64(total.Add(reader.Stats().Fetches)) }}, nil // Stats begins anew each time
}
