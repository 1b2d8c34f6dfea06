// Package rig is what the benchmarks with servers stand on: the servers themselves, topics full of orders, and
// databases that begin alike. Addresses come from the environment of scripts/services.
package rig

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

	"spillway/internal/postgres"
)

// Servers are the broker, the Redis and the Postgres of one run.
type Servers struct {
	Kafka string // host:port
	Redis string // URL
	Tag   string // of this run: begins the names of what it makes

	admin *Database // where databases are made
}

// Open finds the servers and refuses a Postgres that does not flush its commits. What must be known of them to judge
// the figures goes into setup.
func Open(ctx context.Context, setup map[string]string) (*Servers, error) {
	s := &Servers{
		Kafka: os.Getenv("SPILLWAY_TEST_KAFKA"), Redis: os.Getenv("SPILLWAY_TEST_REDIS"),
		Tag: fmt.Sprintf("bench_%d", os.Getpid()),
	}
	dsn := os.Getenv("SPILLWAY_TEST_POSTGRES")
	if s.Kafka == "" || s.Redis == "" || dsn == "" {
		return nil, errors.New("no servers in the environment: start it with scripts/bench")
	}
	s.admin = &Database{URL: dsn}
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes", "server_version", "shared_buffers", "max_wal_size"} {
		value, err := s.admin.Text(ctx, "SHOW "+setting)
		if err != nil {
			return nil, err
		}
		setup["postgres_"+setting] = value
	}
	for _, must := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if setup["postgres_"+must] != "on" {
			return nil, fmt.Errorf("the server runs with %s=%s: a commit that is not flushed is no measure", must, setup["postgres_"+must])
		}
	}
	return s, nil
}

// Topic makes a topic and fills it with n records. Each says its partition.
func (s *Servers) Topic(ctx context.Context, name string, partitions int32, n int, record func(i int) *kgo.Record) error {
	began := time.Now()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(100_000), kgo.DefaultProduceTopic(name))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		return fmt.Errorf("make the topic: %w", err)
	}
	var failure error // written by the client's one callback goroutine, read after Flush
	for i := range n {
		client.Produce(ctx, record(i), func(_ *kgo.Record, err error) {
			if err != nil {
				failure = err
			}
		})
	}
	if err := errors.Join(client.Flush(ctx), failure); err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	fmt.Printf("%d orders in %d partitions, produced in %.1f s\n", n, partitions, time.Since(began).Seconds())
	return nil
}

// Drop deletes topics.
func (s *Servers) Drop(ctx context.Context, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka))
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopics(ctx, topics...)
	return err
}

// Number is the business number of the ith order.
func Number(i int) string { return fmt.Sprintf("T-%09d", i) }

// Value is what the ith order says, size bytes long; 70 at the least.
func Value(i, size int) []byte {
	v := fmt.Appendf(make([]byte, 0, size), `{"order_no":"T-%09d","amount":1250,"currency":"CNY","note":"`, i)
	for len(v) < size-2 {
		v = append(v, "the quick brown fox jumps over the lazy dog "[len(v)%44])
	}
	return append(v, `"}`...)
}

// Database is one Postgres database.
type Database struct {
	URL string

	end func(ctx context.Context) error
}

// Empty makes an empty database. Everybody begins right after a checkpoint, so that full-page images fall to all
// alike.
func (s *Servers) Empty(ctx context.Context, name string) (*Database, error) {
	name = s.Tag + "_" + name
	address, err := url.Parse(s.admin.URL)
	if err != nil {
		return nil, err
	}
	address.Path = "/" + name
	if err := s.admin.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)", "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return nil, err
	}
	return &Database{URL: address.String(), end: func(ctx context.Context) error {
		return s.admin.exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}}, nil
}

// Database makes a database with Spillway's tables in it.
func (s *Servers) Database(ctx context.Context, name string) (*Database, error) {
	d, err := s.Empty(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := postgres.Migrate(ctx, postgres.Config{URL: d.URL}, postgres.Up); err != nil {
		return nil, errors.Join(err, d.End(ctx))
	}
	return d, nil
}

// End drops the database, with whatever is still connected to it.
func (d *Database) End(ctx context.Context) error { return d.end(ctx) }

// Text asks for one value.
func (d *Database) Text(ctx context.Context, query string, args ...any) (answer string, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error { return c.QueryRow(ctx, query, args...).Scan(&answer) })
	return answer, err
}

// Count asks for one number.
func (d *Database) Count(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error { return c.QueryRow(ctx, query, args...).Scan(&n) })
	return n, err
}

// Texts asks for one column.
func (d *Database) Texts(ctx context.Context, query string, args ...any) (all []string, err error) {
	err = d.with(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return all, err
}

func (d *Database) exec(ctx context.Context, statements ...string) error {
	return d.with(ctx, func(c *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := c.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

func (d *Database) with(ctx context.Context, f func(c *pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, d.URL)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

// Sleep waits, and says why it was cut short.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
