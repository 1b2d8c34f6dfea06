package main

import (
	"context"
	"time"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/postgres"
	"spillway/worker"
)

// history reads what became of the breakers in the last 24 hours. What the workers say stands without it, so its
// failure is told beside them and is none of the command's.
func (c *adminFlags) history(ctx context.Context, cfg *config.Config) ([]admin.BreakerHistory, string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	settings := worker.StoreConfig(cfg, nil)
	settings.MaxConnections = adminConnections
	settings.ConnectTimeout = time.Duration(c.Timeout)
	db, err := postgres.Open(ctx, settings)
	if err != nil {
		return []admin.BreakerHistory{}, err.Error()
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return []admin.BreakerHistory{}, err.Error()
	}
	summaries, err := db.BreakerSummary(ctx, admin.HistoryWindow)
	if err != nil {
		return []admin.BreakerHistory{}, err.Error()
	}
	return admin.Histories(summaries), ""
}
