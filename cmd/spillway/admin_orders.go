package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/order"
)

// ordersCmd looks at orders.
type ordersCmd struct {
	List ordersListCmd `cmd:"" help:"List orders, the newest first."`
	Show ordersShowCmd `cmd:"" help:"Show one order: its row, its record and its whole history."`
}

// ordersListCmd is spillway admin orders list.
type ordersListCmd struct {
	adminFlags

	Route     string   `placeholder:"NAME" help:"Only of this route."`
	State     state    `placeholder:"STATE" help:"Only PROCESSING, SUCCEEDED, FAILED, DEAD or DISCARDED."`
	Phase     phase    `placeholder:"PHASE" help:"Only PROCESSING orders that are IN_FLIGHT, REPLAYING or UNKNOWN."`
	Prefix    string   `placeholder:"TEXT" help:"Only business numbers that start with this."`
	OlderThan length   `placeholder:"TIME" help:"Only orders admitted at least this long ago: 15m, 24h."`
	Limit     pageSize `default:"100" placeholder:"N" help:"Most rows to list, 1 to 1000: 100 if not given."`
	Before    rowID    `placeholder:"ID" help:"Only orders with a smaller id: what the page before ended with."`
}

// Help is shown by spillway admin orders list --help.
func (*ordersListCmd) Help() string {
	return `Reads PostgreSQL. A filter that few of many orders pass is slow, and ends with the timeout: name a route together with a
state, a phase or a prefix then.

ATTEMPTS counts all attempts of this life, LIFE how often a person sent the order back, AGE the time since admission, and
DUE IN when somebody may act on a PROCESSING order next.

  spillway admin orders list --route wallet --state PROCESSING --older-than 10m
  spillway admin orders list --route wallet --phase UNKNOWN --json

Exit codes: 0 done, also if nothing passes the filter; 1 if the orders could not be read; 2 for mistakes on the command
line or in the settings.`
}

// Run implements the command.
func (c *ordersListCmd) Run(s *surroundings) error {
	if c.Phase != 0 && c.State != 0 && order.State(c.State) != order.Processing {
		return usage("--phase: only PROCESSING orders have a phase: want --state PROCESSING or none")
	}
	return c.withStore(s, func(ctx context.Context, cfg *config.Config, st *store) error {
		list, err := admin.ListOrders(ctx, st, desk.OrderFilter{
			Route: c.Route, State: order.State(c.State), Phase: order.Phase(c.Phase), Prefix: c.Prefix,
			OlderThan: time.Duration(c.OlderThan), Before: int64(c.Before), Limit: int(c.Limit),
		})
		if err != nil {
			return err
		}
		hintRoute(s, cfg, c.Route)
		if c.JSON {
			return admin.WriteJSON(s.out, list)
		}
		return list.WriteTable(s.out, time.Now())
	})
}

// ordersShowCmd is spillway admin orders show.
type ordersShowCmd struct {
	adminFlags

	Number string `arg:"" help:"Business number."`
	Route  string `placeholder:"NAME" help:"Route of the order; may be left out where the settings have one route."`
}

// Help is shown by spillway admin orders show --help.
func (*ordersShowCmd) Help() string {
	return `Reads PostgreSQL. A long value is cut, with a note; --json has every byte, in base64. The history begins with the
admission and holds at most the newest 500 entries after that.

Exit codes: 0 done, 1 if there is no such order or it could not be read, 2 for mistakes on the command line or in the
settings.`
}

// Run implements the command.
func (c *ordersShowCmd) Run(s *surroundings) error {
	return c.withStore(s, func(ctx context.Context, cfg *config.Config, st *store) error {
		route := c.Route
		if names := routeNames(cfg); route == "" {
			if len(names) != 1 {
				return usage("--route is needed: want one of %s", strings.Join(names, ", "))
			}
			route = names[0]
		}
		view, err := admin.ShowOrder(ctx, st, route, c.Number)
		if errors.Is(err, desk.ErrNotFound) {
			hintRoute(s, cfg, route)
		}
		if err != nil {
			return err
		}
		if c.JSON {
			return admin.WriteJSON(s.out, view)
		}
		return view.Write(s.out, time.Now())
	})
}
