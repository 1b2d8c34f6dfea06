package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	ceilingConnections = 4

	// Nothing is done that an order does not need: no other column is sent, no answer is read but the ids.
	ceilingInsert = `
INSERT INTO orders (route, number, topic, part, off, record_time, key, value,
	state, phase, version, admitted_at, owner, last_attempt, attempts, attempts_total, lookups, life, updated_at,
	outcome, reason, detail, due)
SELECT 'wallet', u.number, 'orders.in', u.part, u.off, now(), u.key, u.value,
	1, 1, 1, now(), 'bench', now(), 1, 1, 0, 0, now(), 0, '', '', now() + interval '30 seconds'
FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[]) AS u(number, part, off, key, value)
ON CONFLICT DO NOTHING RETURNING id`
	ceilingFinal = `
UPDATE orders o SET version = 2, state = 2, phase = 0, owner = NULL, due = NULL, outcome = 1,
	reason = 'CONFIRMED', detail = '200', updated_at = now()
FROM unnest($1::bigint[]) AS u(id) WHERE o.id = u.id AND o.version = 1 AND o.state = 1`
)

// runCeiling measures what Postgres takes at best of the two statements an order needs.
func runCeiling(ctx context.Context, r *bench) (rate float64, err error) {
	d, err := r.Database(ctx, "ceiling")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.End(ctx)) }()
	pool, err := newPool(ctx, d.URL, ceilingConnections)
	if err != nil {
		return 0, err
	}
	defer pool.Close()

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var done atomic.Int64
	var workers sync.WaitGroup
	for c := range ceilingConnections {
		workers.Go(func() {
			// Each connection has numbers of its own, so that they do not meet in one page of the index.
			for n := c * 100_000; working.Err() == nil; n++ {
				// A statement is not cut off in the middle: that would end its connection.
				if err := ceilingBatch(context.WithoutCancel(ctx), pool, n); err != nil {
					stop(err)
					return
				}
				done.Add(batch)
			}
		})
	}
	rate, err = r.pace(working, func() (float64, error) { return float64(done.Load()), nil })
	stop(nil)
	workers.Wait()
	return rate, err
}

// ceilingBatch brings one batch of orders to its end.
func ceilingBatch(ctx context.Context, pool *pgxpool.Pool, n int) error {
	numbers, parts, offsets := make([]string, batch), make([]int32, batch), make([]int64, batch)
	keys, values := make(pgtype.FlatArray[[]byte], batch), make(pgtype.FlatArray[[]byte], batch)
	for i := range batch {
		at := n*batch + i
		numbers[i], parts[i], offsets[i] = number(at), int32(at%partitions), int64(at/partitions)
		keys[i], values[i] = []byte(numbers[i]), value(at)
	}
	rows, err := pool.Query(ctx, ceilingInsert, numbers, parts, offsets, keys, values)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, ceilingFinal, ids)
	return err
}

// newPool opens all its connections at once.
func newPool(ctx context.Context, url string, connections int32) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns, c.MinConns = connections, connections
	c.MaxConnIdleTime = time.Hour
	// As Spillway's own pool: the rows are found by key whatever an empty table's statistics say.
	c.ConnConfig.RuntimeParams["enable_hashjoin"] = "off"
	c.ConnConfig.RuntimeParams["enable_mergejoin"] = "off"
	return pgxpool.NewWithConfig(ctx, c)
}
