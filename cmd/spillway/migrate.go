package main

import (
	"encoding/json"
	"fmt"
	"time"

	"spillway/internal/postgres"
	"spillway/worker"
)

// migrateCmd looks after the database's schema.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Bring the schema up to date. Several at once wait for each other."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and which are applied. Changes nothing."`
	Down   migrateDownCmd   `cmd:"" help:"Take the newest migration back, with the rows of the tables it made."`
}

// migrateFlags is what the three have in common.
type migrateFlags struct {
	settingsFile

	JSON bool `help:"Print one JSON object."`
}

type (
	migrateUpCmd     struct{ migrateFlags }
	migrateStatusCmd struct{ migrateFlags }
	migrateDownCmd   struct {
		migrateFlags

		Yes bool `required:"" help:"Say that you mean it: data is lost."`
	}
)

// Run implements the command.
func (c *migrateUpCmd) Run(s *surroundings) error { return c.migrate(s, postgres.Up) }

// Run implements the command.
func (c *migrateStatusCmd) Run(s *surroundings) error { return c.migrate(s, postgres.Status) }

// Run implements the command.
func (c *migrateDownCmd) Run(s *surroundings) error { return c.migrate(s, postgres.Down) }

// migrationView is a migration as --json prints it.
type migrationView struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
	Moved     bool      `json:"moved"`
}

func (c *migrateFlags) migrate(s *surroundings, what postgres.Direction) error {
	cfg, err := worker.Load(c.File, s.env)
	if err != nil {
		return err
	}
	list, err := postgres.Migrate(s.ctx, worker.StoreConfig(cfg, nil), what)
	if err != nil {
		return err
	}
	views := make([]migrationView, len(list))
	for i, m := range list {
		views[i] = migrationView(m)
	}
	if c.JSON {
		return json.NewEncoder(s.out).Encode(map[string]any{"migrations": views})
	}
	for _, m := range views {
		state := "pending"
		if m.Applied {
			state = "applied " + m.AppliedAt.UTC().Format(time.RFC3339)
		}
		if m.Moved {
			state += "  (now)"
		}
		if _, err := fmt.Fprintf(s.out, "%05d  %-32s  %s\n", m.Version, m.Name, state); err != nil {
			return err
		}
	}
	return nil
}
