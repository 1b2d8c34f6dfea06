package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"
)

const (
	handInsert = `
INSERT INTO orders (route, number, topic, part, off, record_time, key, value,
	state, phase, version, admitted_at, owner, last_attempt, attempts, attempts_total, lookups, life, updated_at,
	outcome, reason, detail, due)
VALUES ('wallet', $1, $2, $3, $4, $5, $6, $7, 1, 1, 1, now(), 'bench', now(), 1, 1, 0, 0, now(), 0, '', '', now() + interval '30 seconds')
ON CONFLICT (route, number) DO NOTHING`
	handFinal = `
UPDATE orders SET version = version + 1, state = 2, phase = 0, owner = NULL, due = NULL, outcome = 1,
	reason = 'CONFIRMED', detail = '200', updated_at = now()
WHERE route = 'wallet' AND number = $1 AND state = 1`
)

// runHandWritten measures the worker a careful author writes in an afternoon: the records of a partition go to a
// goroutine of their own, which keeps their order, writes the order down, calls, writes the outcome down, and marks
// the offset. kafka-go commits marked offsets in the background, which is faster than one commit per order.
func runHandWritten(ctx context.Context, r *bench) (rate float64, err error) {
	d, err := r.Database(ctx, "hand")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	pool, err := newPool(ctx, d.URL, partitions)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{r.Kafka}, Topic: r.topic, GroupID: fmt.Sprintf("%s-hand-%d", r.Tag, time.Now().UnixNano()),
		StartOffset: kafka.FirstOffset, CommitInterval: 500 * time.Millisecond, MaxWait: 500 * time.Millisecond,
	})
	defer func() { err = errors.Join(err, reader.Close()) }()

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var done atomic.Int64
	var workers sync.WaitGroup
	lines := make([]chan kafka.Message, partitions)
	for i := range lines {
		lines[i] = make(chan kafka.Message, 100)
		workers.Go(func() {
			for m := range lines[i] {
				if working.Err() != nil {
					continue // the line is emptied, so that the reading goroutine does not stick
				}
				if err := handOne(context.WithoutCancel(ctx), pool, reader, &m); err != nil {
					stop(err)
				}
				done.Add(1)
			}
		})
	}
	workers.Go(func() {
		defer func() {
			for _, line := range lines {
				close(line)
			}
		}()
		for {
			m, err := reader.FetchMessage(working)
			if err != nil {
				stop(err)
				return
			}
			lines[m.Partition] <- m
		}
	})
	for done.Load() == 0 && working.Err() == nil {
		_ = sleep(working, time.Millisecond) // why it ended is told by pace
	}
	rate, err = r.pace(working, func() (float64, error) { return float64(done.Load()), nil })
	stop(nil)
	workers.Wait()
	return rate, err
}

func handOne(ctx context.Context, pool *pgxpool.Pool, reader *kafka.Reader, m *kafka.Message) error {
	number := string(m.Key)
	if _, err := pool.Exec(ctx, handInsert, number, m.Topic, m.Partition, m.Offset, m.Time, m.Key, m.Value); err != nil {
		return err
	}
	// Here the downstream would be called.
	if _, err := pool.Exec(ctx, handFinal, number); err != nil {
		return err
	}
	return reader.CommitMessages(ctx, *m)
}
