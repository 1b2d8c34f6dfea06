package postgres_test

import (
	"testing"

	"spillway/internal/postgres"
	"spillway/internal/storetest"
	"spillway/internal/testkit"
)

// open returns a store on a new database with the newest schema.
func open(t *testing.T, url string) *postgres.Store {
	t.Helper()
	c := postgres.Config{URL: url, MaxConnections: 8}
	if _, err := postgres.Migrate(t.Context(), c, postgres.Up); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Postgres(t))
	storetest.Run(t, func(*testing.T) storetest.Store { return s })
}
