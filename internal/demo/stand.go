package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9" //nolint:depguard // the demo sweeps its keys out of a real server; no worker may
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/embed"
	"spillway/internal/postgres" // brings the database/sql driver "pgx" too
)

// sqlDriver is the name under which package postgres's driver is known to database/sql. The demo asks the database by
// itself, past the store that the worker writes through.
const sqlDriver = "pgx"

// cleanTimeout bounds the cleaning up after the story.
const cleanTimeout = 10 * time.Second

// stand is what the story stands on: three servers, and the names that are the demo's own on them.
type stand struct {
	name  string // of the database's schema and the start of the keys; the topic and the group are named after it
	topic string
	group string

	brokers     []string
	redisURL    string
	postgresURL string // leads into the schema

	says []string // what each server is, for people

	kafka   *kgo.Client
	admin   *kadm.Client
	server  *embed.Postgres // nil where Postgres is somebody else's
	db      *sql.DB
	closers []func(ctx context.Context) error // run last to first
}

// newStand brings up, or connects to, what the story needs. Close it also after an error.
func newStand(ctx context.Context, cfg Config) (*stand, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	name := "spillway_demo_" + hex.EncodeToString(id[:])
	s := &stand{name: name, topic: strings.ReplaceAll(name, "_", "-"), group: strings.ReplaceAll(name, "_", "-")}
	for _, open := range []func(context.Context, Config) error{s.openPostgres, s.openKafka, s.openRedis} {
		if err := open(ctx, cfg); err != nil {
			return s, err
		}
	}
	return s, nil
}

// close takes back everything, in the reverse order. It goes on after what went wrong, and after ctx has ended.
func (s *stand) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	var failed error
	for len(s.closers) > 0 {
		last := s.closers[len(s.closers)-1]
		s.closers = s.closers[:len(s.closers)-1]
		failed = errors.Join(failed, last(ctx))
	}
	return failed
}

func (s *stand) onClose(f func(ctx context.Context) error) { s.closers = append(s.closers, f) }

func (s *stand) openKafka(ctx context.Context, cfg Config) error {
	configs := map[string]*string{}
	if len(cfg.Kafka) > 0 {
		s.brokers = cfg.Kafka
		s.says = append(s.says, "Kafka: "+strings.Join(cfg.Kafka, ","))
	} else {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1),
			kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "1000"}))
		if err != nil {
			return fmt.Errorf("in-memory Kafka: %w", err)
		}
		s.onClose(func(context.Context) error { cluster.Close(); return nil })
		s.brokers = cluster.ListenAddrs()
		s.says = append(s.says, "Kafka: a stand-in in this process (kfake)")
		// What is kept in memory is bounded; it is many times the backlog that the longest story builds up.
		for name, value := range map[string]string{"retention.bytes": "8388608", "segment.bytes": "1048576"} {
			configs[name] = &value
		}
	}
	var err error
	if s.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.brokers...)); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	s.onClose(func(context.Context) error { s.kafka.Close(); return nil })
	s.admin = kadm.NewClient(s.kafka)
	asking, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := s.admin.CreateTopic(asking, partitions, -1, configs, s.topic); err != nil {
		return fmt.Errorf("kafka at %s: create topic %s: %w", strings.Join(s.brokers, ","), s.topic, err)
	}
	if len(cfg.Kafka) > 0 {
		s.onClose(s.dropKafka)
	}
	return nil
}

// dropKafka removes the topic and the group from a real cluster.
func (s *stand) dropKafka(ctx context.Context) error {
	var failed error
	if r, err := s.admin.DeleteTopic(ctx, s.topic); errors.Join(err, r.Err) != nil {
		failed = fmt.Errorf("kafka: delete topic %s: %w", s.topic, errors.Join(err, r.Err))
	}
	// A group that never came to be has nothing to delete.
	if r, err := s.admin.DeleteGroup(ctx, s.group); err != nil || r.Err != nil && !strings.Contains(r.Err.Error(), "GROUP_ID_NOT_FOUND") {
		failed = errors.Join(failed, fmt.Errorf("kafka: delete group %s: %w", s.group, errors.Join(err, r.Err)))
	}
	return failed
}

func (s *stand) openRedis(_ context.Context, cfg Config) error {
	if cfg.RedisURL != "" {
		opts, err := redis.ParseURL(cfg.RedisURL)
		if err != nil {
			return errors.New("redis: the address is not a URL such as redis://127.0.0.1:6379/0") // err may quote a password
		}
		s.redisURL = cfg.RedisURL
		s.says = append(s.says, "Redis: "+opts.Addr)
		s.onClose(func(ctx context.Context) error { return dropKeys(ctx, opts, s.name) })
		return nil
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire by the clock, as in a real one
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("in-memory Redis: %w", err)
	}
	s.onClose(func(context.Context) error { m.Close(); return nil })
	s.redisURL = "redis://" + m.Addr() + "/0"
	s.says = append(s.says, "Redis: a stand-in in this process (miniredis)")
	return nil
}

// dropKeys removes the demo's keys from a real server.
func dropKeys(ctx context.Context, opts *redis.Options, prefix string) error {
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }() // nothing is under way
	keys := client.Scan(ctx, 0, "{"+prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("redis: remove keys of %s: %w", prefix, err)
		}
	}
	if err := keys.Err(); err != nil {
		return fmt.Errorf("redis: look for keys of %s: %w", prefix, err)
	}
	return nil
}

func (s *stand) openPostgres(ctx context.Context, cfg Config) error {
	base := cfg.PostgresURL
	if base == "" {
		server, err := embed.Start(ctx, embed.Config{Say: cfg.Out})
		if err != nil {
			return err
		}
		s.server = server
		s.onClose(func(context.Context) error { return server.Close() })
		base = server.DSN()
		s.says = append(s.says, "PostgreSQL: a real one, started for the demo")
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("postgres: the address is not a URL such as postgres://user@127.0.0.1:5432/database") // err may quote a password
	}
	if s.server == nil {
		s.says = append(s.says, "PostgreSQL: "+u.Host)
	}
	query := u.Query()
	query.Set("search_path", s.name)
	u.RawQuery = query.Encode()
	s.postgresURL = u.String()
	if s.db, err = sql.Open(sqlDriver, s.postgresURL); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.db.SetMaxOpenConns(2)
	s.onClose(func(context.Context) error { return s.db.Close() })
	if _, err := s.db.ExecContext(ctx, `CREATE SCHEMA "`+s.name+`"`); err != nil {
		return fmt.Errorf("postgres: create a schema of the demo's own: %w", err)
	}
	if s.server == nil {
		s.onClose(func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, `DROP SCHEMA IF EXISTS "`+s.name+`" CASCADE`)
			if err != nil {
				err = fmt.Errorf("postgres: drop schema %s: %w", s.name, err)
			}
			return err
		})
	}
	_, err = postgres.Migrate(ctx, postgres.Config{URL: s.postgresURL, Logger: slog.New(slog.DiscardHandler)}, postgres.Up)
	return err
}

// gone is closed when the demo's own Postgres has ended by itself; it never is where Postgres is somebody else's.
func (s *stand) gone() <-chan struct{} {
	if s.server == nil {
		return nil
	}
	return s.server.Done()
}
