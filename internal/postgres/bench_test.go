package postgres_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/order"
)

const (
	benchBatch = 500
	benchValue = 200 // bytes
)

// BenchmarkPlainWay is what an order costs that goes the plain way: admitted and settled in batches of 500, beside the
// same two statements sent by hand with columns made ready before. The share of the second is the store's own cost.
//
//	go test -run '^$' -bench PlainWay -benchtime 100x ./internal/postgres
func BenchmarkPlainWay(b *testing.B) {
	for _, workers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("store/workers=%d", workers), func(b *testing.B) { benchStore(b, workers) })
		b.Run(fmt.Sprintf("ceiling/workers=%d", workers), func(b *testing.B) { benchCeiling(b, workers) })
	}
}

// benchURL is a new database, so that no run grows another's tables.
func benchURL(b *testing.B) string {
	b.Helper()
	if os.Getenv("SPILLWAY_TEST_POSTGRES") == "" {
		b.Skip("SPILLWAY_TEST_POSTGRES is not set")
	}
	url := testkit.Postgres(b)
	if _, err := postgres.Migrate(b.Context(), postgres.Config{URL: url}, postgres.Up); err != nil {
		b.Fatal(err)
	}
	return url
}

// spread runs f b.N times among workers.
func spread(b *testing.B, workers int, f func(batch int64) error) {
	b.Helper()
	jobs := make(chan int64)
	var wait sync.WaitGroup
	var failure atomic.Value
	for range workers {
		wait.Go(func() {
			for batch := range jobs {
				if err := f(batch); err != nil {
					failure.Store(err)
				}
			}
		})
	}
	started := time.Now()
	var batches int64
	for b.Loop() {
		jobs <- batches
		batches++
	}
	close(jobs)
	wait.Wait()
	if err, ok := failure.Load().(error); ok {
		b.Fatal(err)
	}
	b.ReportMetric(float64(batches*benchBatch)/time.Since(started).Seconds(), "orders/s")
}

func benchStore(b *testing.B, workers int) {
	b.Helper()
	s, err := postgres.Open(b.Context(), postgres.Config{URL: benchURL(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := make([]byte, benchValue)
	spread(b, workers, func(batch int64) error {
		as := make([]order.Admission, benchBatch)
		for i := range as {
			number := fmt.Sprintf("T-%d-%d", batch, i)
			as[i] = order.Admission{Number: number, Message: order.Message{
				Topic: "orders.in", Partition: int32(i % 12), Offset: batch*benchBatch + int64(i),
				Key: []byte(number), Value: value, Time: time.Now(),
			}}
		}
		admitted, err := s.Admit(b.Context(), "pay", "worker-1", time.Minute, as)
		if err != nil {
			return err
		}
		ss := make([]order.Settlement, len(admitted))
		for i := range admitted {
			ss[i] = admitted[i].Order.Settle(order.Transition{
				State: order.Succeeded, Attempts: 1, AttemptsTotal: 1,
				Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Detail: "200",
			})
		}
		_, err = s.Settle(b.Context(), "worker-1", ss)
		return err
	})
}

const (
	ceilingInsert = `INSERT INTO orders (route, number, topic, part, off, record_time, key, value,
	state, phase, version, admitted_at, owner, last_attempt, attempts, attempts_total, lookups, life, updated_at,
	outcome, reason, detail, due)
	SELECT 'pay', u.number, 'orders.in', u.part, u.off, now(), u.key, u.value,
	1, 1, 1, now(), 'worker-1', now(), 1, 1, 0, 0, now(), 0, '', '', now() + interval '1 minute'
	FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[]) AS u(number, part, off, key, value)
	ON CONFLICT DO NOTHING RETURNING id`
	ceilingUpdate = `UPDATE orders o SET version = 2, state = 2, phase = 0, owner = NULL, due = NULL, outcome = 1,
	reason = 'CONFIRMED', detail = '200', updated_at = now()
	FROM unnest($1::bigint[]) AS u(id) WHERE o.id = u.id AND o.version = 1 AND o.state = 1`
)

func benchCeiling(b *testing.B, workers int) {
	b.Helper()
	c, err := pgxpool.ParseConfig(benchURL(b))
	if err != nil {
		b.Fatal(err)
	}
	c.MaxConns = 8
	c.ConnConfig.RuntimeParams["enable_hashjoin"] = "off"
	c.ConnConfig.RuntimeParams["enable_mergejoin"] = "off"
	pool, err := pgxpool.NewWithConfig(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	values := make(pgtype.FlatArray[[]byte], benchBatch)
	parts, offsets := make([]int32, benchBatch), make([]int64, benchBatch)
	for i := range values {
		values[i] = make([]byte, benchValue)
		parts[i] = int32(i % 12)
	}
	spread(b, workers, func(batch int64) error {
		numbers, keys := make([]string, benchBatch), make(pgtype.FlatArray[[]byte], benchBatch)
		for i := range numbers {
			numbers[i] = fmt.Sprintf("T-%d-%03d", batch, i)
			keys[i] = []byte(numbers[i])
		}
		rows, err := pool.Query(b.Context(), ceilingInsert, numbers, parts, offsets, keys, values)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		_, err = pool.Exec(b.Context(), ceilingUpdate, ids)
		return err
	})
}
