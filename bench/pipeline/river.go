package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverConnections = 10
	riverWorkers     = 1000
	riverCooldown    = 5 * time.Millisecond
	riverBacklog     = 5000 // orders inserted and not worked: more would let the inserts win over the work
)

// riverOrder is an order as River's job.
type riverOrder struct {
	Number string `json:"number"`
	Value  []byte `json:"value"`
}

// Kind implements river.JobArgs.
func (riverOrder) Kind() string { return "order" }

type riverWorker struct {
	river.WorkerDefaults[riverOrder]

	done *atomic.Int64
}

// Work implements river.Worker.
func (w *riverWorker) Work(context.Context, *river.Job[riverOrder]) error {
	w.done.Add(1)
	return nil
}

// runRiver measures River as it does the same for an order: written down before, called, written down after. Orders
// are inserted in its fastest way, just as fast as they are worked.
func runRiver(ctx context.Context, r *bench) (rate float64, err error) {
	d, err := r.Empty(ctx, "river")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	pool, err := newRiverPool(ctx, d.URL)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var done atomic.Int64
	client, err := newRiver(ctx, pool, &done)
	if err != nil {
		return 0, err
	}
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var feeder sync.WaitGroup
	feeder.Go(func() {
		for inserted := 0; working.Err() == nil; {
			if inserted-int(done.Load()) > riverBacklog-batch {
				_ = sleep(working, time.Millisecond) // the loop looks whether it ended
				continue
			}
			if err := riverInsert(context.WithoutCancel(ctx), client, inserted); err != nil {
				stop(err)
				return
			}
			inserted += batch
		}
	})
	rate, err = r.pace(working, func() (float64, error) { return float64(done.Load()), nil })
	stop(nil)
	feeder.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return rate, errors.Join(err, client.Stop(ending))
}

// newRiverPool is a pool as River's own documentation makes it: nothing about it is changed but its size.
func newRiverPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = riverConnections
	return pgxpool.NewWithConfig(ctx, c)
}

func newRiver(ctx context.Context, pool *pgxpool.Pool, done *atomic.Int64) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("make the tables of river: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{done: done})
	return river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:       workers,
		FetchCooldown: riverCooldown,
		Logger:        quiet,
	})
}

func riverInsert(ctx context.Context, client *river.Client[pgx.Tx], from int) error {
	params := make([]river.InsertManyParams, batch)
	for i := range params {
		params[i].Args = riverOrder{Number: number(from + i), Value: value(from + i)}
	}
	_, err := client.InsertManyFast(ctx, params)
	return err
}
