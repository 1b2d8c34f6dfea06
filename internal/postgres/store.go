package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MaxBatch bounds the rows of one call. The gain ends at about 500.
const MaxBatch = 5000

// Store is the record of orders in a PostgreSQL database.
type Store struct {
	pool     *pgxpool.Pool
	log      *slog.Logger
	secrets  []string
	patience time.Duration // bounds one call: the server's own timeout, and the way there
}

// Open checks the config and prepares a pool. It connects to nothing yet: see [Store.Ping].
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	p, err := c.poolConfig()
	if err != nil {
		return nil, err
	}
	return connect(ctx, c, p)
}

// connect makes the pool of a config that was checked.
func connect(ctx context.Context, c Config, p *pgxpool.Config) (*Store, error) {
	s := &Store{
		log: c.Logger, secrets: secrets(p.ConnConfig, c.URL),
		patience: c.StatementTimeout + 2*c.ConnectTimeout,
	}
	pool, err := pgxpool.NewWithConfig(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("make a pool of connections: %w", s.clean(err))
	}
	s.pool = pool
	return s, nil
}

// Close ends all connections. It waits for calls under way.
func (s *Store) Close() { s.pool.Close() }

// Ping connects, if need be, and asks for an answer.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping postgres: %w", s.clean(err))
	}
	return nil
}

// tries bounds how often a statement that lost a deadlock is run.
const tries = 4

// do runs f, and again where the server undid it as a whole because of other sessions. f must be safe to repeat then,
// and start from scratch. A broken connection is reported at once: whether the statement took effect is unknown, and
// the caller must be one that may say the same thing twice.
func (s *Store) do(ctx context.Context, what string, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for try := 1; ; try++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if try == tries || !undone(err) {
			return fmt.Errorf("%s: %w", what, s.clean(err))
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "statement tried again", slog.String("what", what), slog.Int("try", try),
			slog.String("error", s.clean(err).Error()))
		if !wait(ctx, time.Duration(try*try)*5*time.Millisecond) {
			return fmt.Errorf("%s: %w", what, s.clean(err))
		}
	}
}

// each runs a query and calls f for each row, whose columns were read into targets.
func (s *Store) each(ctx context.Context, query string, args, targets []any, f func() error) error {
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// undone reports whether the server rolled a statement back for the sake of another session: a deadlock or a
// serialization failure.
func undone(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001")
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// clean keeps the password out of an error. The drivers' own errors do not show it; this is for what they may quote.
func (s *Store) clean(err error) error {
	text := err.Error()
	shown := text
	for _, secret := range s.secrets {
		shown = strings.ReplaceAll(shown, secret, "xxxxx")
	}
	if shown == text {
		return err
	}
	return &maskedError{text: shown, err: err}
}

// maskedError is an error whose text showed a secret. What kind of error it is can still be asked.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
