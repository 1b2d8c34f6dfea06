package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 12
	valueBytes = 200
	batch      = 500 // rows in one statement, of everybody who sends batches
)

// open finds the servers, refuses a Postgres that does not flush, and fills the topic.
func (r *rig) open(ctx context.Context, setup map[string]string) error {
	r.kafka, r.redis = os.Getenv("SPILLWAY_TEST_KAFKA"), os.Getenv("SPILLWAY_TEST_REDIS")
	dsn := os.Getenv("SPILLWAY_TEST_POSTGRES")
	if r.kafka == "" || r.redis == "" || dsn == "" {
		return errors.New("no servers in the environment: start it with scripts/bench")
	}
	r.admin = &database{url: dsn}
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes", "server_version", "shared_buffers", "max_wal_size"} {
		value, err := r.admin.text(ctx, "SHOW "+setting)
		if err != nil {
			return err
		}
		setup["postgres_"+setting] = value
	}
	for _, must := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if setup["postgres_"+must] != "on" {
			return fmt.Errorf("the server runs with %s=%s: a commit that is not flushed is no measure", must, setup["postgres_"+must])
		}
	}
	setup["value_bytes"], setup["partitions"] = fmt.Sprint(valueBytes), fmt.Sprint(partitions)
	setup["window"] = r.window.String()
	r.topic = r.tag
	began := time.Now()
	if err := r.fill(ctx); err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	fmt.Printf("%d orders in %d partitions, produced in %.1f s; postgres %s, fsync %s\n", r.orders, partitions,
		time.Since(began).Seconds(), setup["postgres_server_version"], setup["postgres_fsync"])
	return nil
}

// close deletes the topic.
func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, r.topic)
	return err
}

// number is the business number of the nth order.
func number(n int) string { return fmt.Sprintf("T-%09d", n) }

// value is what an order says, valueBytes long.
func value(n int) []byte {
	v := fmt.Appendf(make([]byte, 0, valueBytes), `{"order_no":"T-%09d","amount":1250,"currency":"CNY","note":"`, n)
	for len(v) < valueBytes-2 {
		v = append(v, "the quick brown fox jumps over the lazy dog "[len(v)%44])
	}
	return append(v, `"}`...)
}

// fill makes the topic, its orders dealt over the partitions in turn.
func (r *rig) fill(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(100_000), kgo.DefaultProduceTopic(r.topic))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, r.topic); err != nil {
		return err
	}
	var failure error // written by the client's one callback goroutine, read after Flush
	for n := range r.orders {
		record := &kgo.Record{Partition: int32(n % partitions), Key: []byte(number(n)), Value: value(n)}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failure = err
			}
		})
	}
	return errors.Join(client.Flush(ctx), failure)
}

// database is one Postgres database.
type database struct {
	url string
	end func(ctx context.Context) error
}

// newDatabase makes an empty database. Everybody begins right after a checkpoint, so that full-page images fall to all
// alike.
func (r *rig) newDatabase(ctx context.Context, name string) (*database, error) {
	name = r.tag + "_" + name
	address, err := url.Parse(r.admin.url)
	if err != nil {
		return nil, err
	}
	address.Path = "/" + name
	if err := r.admin.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)", "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return nil, err
	}
	return &database{url: address.String(), end: func(ctx context.Context) error {
		return r.admin.exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}}, nil
}

func (d *database) exec(ctx context.Context, statements ...string) error {
	return d.with(ctx, func(c *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := c.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

func (d *database) text(ctx context.Context, query string) (answer string, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error { return c.QueryRow(ctx, query).Scan(&answer) })
	return answer, err
}

func (d *database) with(ctx context.Context, f func(c *pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

// pace measures a count that grows meanwhile: what came in the window that follows the warm-up.
func (r *rig) pace(ctx context.Context, count func() (float64, error)) (float64, error) {
	if err := sleep(ctx, r.warm); err != nil {
		return 0, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := sleep(ctx, r.window); err != nil {
		return 0, err
	}
	after, err := count()
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	if after == before {
		return 0, errors.New("nothing moved in the whole window")
	}
	return (after - before) / took.Seconds(), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
