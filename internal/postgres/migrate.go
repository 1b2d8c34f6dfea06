package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"spillway/migrations"
)

// versionTable is where the database keeps the numbers of the migrations it has. It has a name of its own, so that a
// database that is migrated by goose for its own sake keeps its numbers apart.
const versionTable = "spillway_schema"

// The advisory lock that one migration at a time holds, how often a second one asks for it, and how many times.
const (
	migrationLock      = 5_711_946_023
	migrationLockPause = 1 // seconds
	migrationLockTries = 120
)

// Direction is what to do with the schema.
type Direction int

const (
	// Status changes nothing.
	Status Direction = iota
	// Up applies all that is missing.
	Up
	// Down undoes the newest migration, with the rows of the tables it made.
	Down
)

func (d Direction) String() string {
	switch d {
	case Status:
		return "status"
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return fmt.Sprintf("Direction(%d)", int(d))
}

// Migration is one numbered step of the schema, and whether the database has it.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time // zero where it is not applied
	Moved     bool      // whether this call applied or undid it
}

// Migrate changes the schema, or tells how it stands, and returns all migrations that this binary knows. Callers at the
// same time wait for each other, two minutes at most. Migrations have no statement timeout; end ctx to give up.
func Migrate(ctx context.Context, c Config, d Direction) ([]Migration, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	p, err := c.poolConfig()
	if err != nil {
		return nil, err
	}
	p.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	s := &Store{log: c.Logger, secrets: secrets(p.ConnConfig, c.URL)}
	db := stdlib.OpenDB(*p.ConnConfig)
	list, err := migrate(ctx, db, d)
	if closed := db.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("migrate %s: %w", d, s.clean(err))
	}
	return list, nil
}

func migrate(ctx context.Context, db *sql.DB, d Direction) ([]Migration, error) {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(migrationLock), lock.WithLockTimeout(migrationLockPause, migrationLockTries))
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, err
	}
	moved := map[int64]bool{}
	switch d {
	case Status:
	case Up:
		results, err := p.Up(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			moved[r.Source.Version] = true
		}
	case Down:
		result, err := p.Down(ctx)
		if err != nil && !errors.Is(err, goose.ErrNoNextVersion) {
			return nil, err
		}
		if result != nil {
			moved[result.Source.Version] = true
		}
	}
	states, err := p.Status(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Migration, len(states))
	for i, m := range states {
		list[i] = Migration{
			Version: m.Source.Version, Name: m.Source.Path, Applied: m.State == goose.StateApplied,
			AppliedAt: m.AppliedAt, Moved: moved[m.Source.Version],
		}
	}
	return list, nil
}

// ErrSchema says that the database's schema is not the one this binary was built for.
var ErrSchema = errors.New("wrong schema")

// CheckSchema compares the schema with the one that this binary was built for. Its error says what to do.
func (s *Store) CheckSchema(ctx context.Context) error {
	want, err := newestMigration(migrations.FS)
	if err != nil {
		return err
	}
	var have int64
	err = s.do(ctx, "read the schema's version", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+versionTable+` WHERE is_applied`).Scan(&have)
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42P01" { // no such table
		err = nil
	}
	switch {
	case err != nil:
		return err
	case have == 0:
		return fmt.Errorf("%w: the database has no Spillway tables: run `spillway migrate up`", ErrSchema)
	case have < want:
		return fmt.Errorf("%w: the database is at version %d, this binary needs %d: run `spillway migrate up`", ErrSchema, have, want)
	case have > want:
		return fmt.Errorf("%w: the database is at version %d, newer than this binary knows (%d): run a newer spillway", ErrSchema, have, want)
	}
	return nil
}

// newestMigration is the largest number among the names of the files, which start with it.
func newestMigration(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("migration %s: its name starts with no number", name)
		}
		newest = max(newest, n)
	}
	return newest, nil
}
