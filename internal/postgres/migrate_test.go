package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"spillway/internal/postgres"
	"spillway/internal/testkit"
)

// exec runs SQL by hand.
func exec(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestMigrationsGoUpAndDownAgain(t *testing.T) {
	t.Parallel()
	c := postgres.Config{URL: testkit.Postgres(t)}
	step := func(d postgres.Direction) (applied, moved int, all []postgres.Migration) {
		t.Helper()
		all, err := postgres.Migrate(t.Context(), c, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.Applied != !m.AppliedAt.IsZero() {
				t.Errorf("%+v", m)
			}
			if m.Applied {
				applied++
			}
			if m.Moved {
				moved++
			}
		}
		return applied, moved, all
	}
	applied, moved, all := step(postgres.Status)
	n := len(all)
	if applied != 0 || moved != 0 || n == 0 {
		t.Fatalf("new database: %d of %d applied, %d moved", applied, n, moved)
	}
	for range 2 { // all the way down, and up again
		if applied, moved, _ = step(postgres.Up); applied != n || moved != n {
			t.Errorf("up: %d of %d applied, %d moved", applied, n, moved)
		}
		if applied, moved, _ = step(postgres.Up); applied != n || moved != 0 {
			t.Errorf("up again: %d of %d applied, %d moved", applied, n, moved)
		}
		for left := n - 1; left >= 0; left-- {
			if applied, moved, _ = step(postgres.Down); applied != left || moved != 1 {
				t.Errorf("down: %d applied, %d moved, want %d and 1", applied, moved, left)
			}
		}
		if applied, moved, _ = step(postgres.Down); applied != 0 || moved != 0 {
			t.Errorf("down at the bottom: %d applied, %d moved", applied, moved)
		}
	}
}

func TestWorkersThatMigrateAtOnceWaitForEachOther(t *testing.T) {
	t.Parallel()
	c := postgres.Config{URL: testkit.Postgres(t)}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := postgres.Migrate(t.Context(), c, postgres.Up); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAWrongSchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	c := postgres.Config{URL: url}
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check := func(step, want string) {
		t.Helper()
		err := s.CheckSchema(t.Context())
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", step, err)
			}
			return
		}
		if !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", step, err, want)
		}
	}
	check("empty database", "run `spillway migrate up`")
	if _, err := postgres.Migrate(t.Context(), c, postgres.Up); err != nil {
		t.Fatal(err)
	}
	check("newest", "")
	if _, err := postgres.Migrate(t.Context(), c, postgres.Down); err != nil {
		t.Fatal(err)
	}
	check("one too old", "run `spillway migrate up`")
	if _, err := postgres.Migrate(t.Context(), c, postgres.Up); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "INSERT INTO spillway_schema (version_id, is_applied) VALUES (9999, true)")
	check("newer than the binary", "run a newer spillway")
}

func TestAPasswordThatIsAWordOfTheErrorHidesNothingElse(t *testing.T) {
	t.Parallel()
	url := strings.Replace(testkit.Postgres(t), "spillway@", "spillway:spillway@", 1)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.CheckSchema(t.Context()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("%v, want the wrong schema", err)
	}
}

func TestTablesMayHaveASchemaOfTheirOwn(t *testing.T) {
	t.Parallel()
	url := testkit.Postgres(t)
	exec(t, url, "CREATE TABLE orders (somebody_elses int)")
	exec(t, url, "CREATE SCHEMA spillway")
	s := open(t, url+"&search_path=spillway")
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Tally(t.Context(), "pay"); err != nil {
		t.Error(err)
	}
}
