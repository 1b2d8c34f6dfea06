package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/redis"
)

// forcePatience is how long a command waits for the workers to take an order. They do within a second.
const forcePatience = 2 * time.Second

// breakerName names a breaker on the command line.
type breakerName breaker.Key

// UnmarshalText is called by kong.
func (b *breakerName) UnmarshalText(text []byte) error {
	route, endpoint, ok := strings.Cut(string(text), "/")
	if !ok || route == "" || endpoint != "submit" && endpoint != "lookup" {
		return fmt.Errorf("%q: want ROUTE/submit or ROUTE/lookup", text)
	}
	*b = breakerName{Service: route, Endpoint: endpoint}
	return nil
}

// forceTime is how long a force lasts on the command line.
type forceTime time.Duration

// UnmarshalText is called by kong.
func (f *forceTime) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d < admin.MinForce || d > admin.MaxForce {
		return fmt.Errorf("%q: want a duration with its unit, 1s to 720h, such as 90s, 15m or 24h", text)
	}
	*f = forceTime(d)
	return nil
}

// breakerFlags is what the commands on one shared breaker have in common.
type breakerFlags struct {
	adminFlags

	Breaker breakerName `arg:"" placeholder:"ROUTE/ENDPOINT" help:"The breaker: a route of the settings, then /submit or /lookup."`
}

// withShared runs f with the record that the workers share, if they share this breaker's.
func (c *breakerFlags) withShared(s *surroundings, f func(ctx context.Context, store fleet.Store) error) error {
	cfg, ctx, stop, err := c.load(s)
	if err != nil {
		return err
	}
	defer stop()
	r := findRoute(cfg, c.Breaker.Service)
	if r == nil {
		return usage("the settings have no route %q; they have: %s", admin.Printable(c.Breaker.Service), strings.Join(routeNames(cfg), ", "))
	}
	if r.Breaker.Scope == config.ScopeWorker {
		return &exitError{code: exitFailure, text: fmt.Sprintf("refused: route %s has breaker.scope worker, so each worker knows its "+
			"own calls only and none would hear of it; \"admin breakers list\" asks the workers themselves", r.Name)}
	}
	timeout := time.Duration(c.Timeout)
	client, err := redis.Open(redis.Config{URL: cfg.Redis.URL.Reveal(), Prefix: cfg.Redis.Prefix, Dial: timeout, Call: timeout})
	if err != nil {
		return shown(err)
	}
	defer func() { _ = client.Close() }() // nothing is under way
	if err := f(ctx, client.Breakers()); err != nil {
		return shown(fmt.Errorf("Redis at %s: %w", address(cfg.Redis.URL), err)) //nolint:staticcheck // a name
	}
	return nil
}

func findRoute(cfg *config.Config, name string) *config.Route {
	for i := range cfg.Routes {
		if cfg.Routes[i].Name == name {
			return &cfg.Routes[i]
		}
	}
	return nil
}

// breakersShowCmd is spillway admin breakers show.
type breakersShowCmd struct {
	breakerFlags
}

// Help is shown by spillway admin breakers show --help.
func (*breakersShowCmd) Help() string {
	return `Reads the record that the workers share in Redis: the state, the rule behind the latest move and what it saw, a force with
its end, what each worker stated last, and the latest orders with their operator and reason. Workers need not run. A worker
whose state is "its own" has opened by its own evidence, for itself alone.

  spillway admin breakers show wallet/submit

Exit codes: 0 done, 1 if Redis is away or the route does not share its breakers, 2 for mistakes on the command line or in
the settings.`
}

// Run implements the command.
func (c *breakersShowCmd) Run(s *surroundings) error {
	return c.withShared(s, func(ctx context.Context, store fleet.Store) error {
		f, err := admin.ShowFleetBreaker(ctx, store, breaker.Key(c.Breaker), time.Now())
		if err != nil {
			return err
		}
		if c.JSON {
			return admin.WriteJSON(s.out, f)
		}
		return f.Write(s.out, time.Now())
	})
}

// orderFlags is what the commands that give an order have in common.
type orderFlags struct {
	breakerFlags

	Reason string `required:"" placeholder:"TEXT" help:"Why, for those who look later: 1 to 200 bytes."`
	By     string `placeholder:"OPERATOR" help:"Who orders it, for those who look later: the user of the operating system if not given."`
}

// expiryFlag is on every order but a release: a force that nobody ends must end by itself.
type expiryFlag struct {
	For forceTime `required:"" placeholder:"TIME" help:"How long it lasts, 1s to 720h: 15m, 24h."`
}

// give gives the order and prints what became of it.
func (c *orderFlags) give(s *surroundings, force breaker.Force, lasts time.Duration) error {
	if n := len(c.Reason); n == 0 || n > admin.MaxWhy {
		return usage("--reason has %d bytes: want 1 to %d", n, admin.MaxWhy)
	}
	by := desk.Sign{Operator: c.By}
	if by.Operator == "" {
		u, err := user.Current()
		if err != nil {
			return usage("--by is needed: the operating system does not say who you are")
		}
		by.Operator = u.Username
	}
	if err := by.Check(); err != nil {
		return usage("--by: %v", err)
	}
	return c.withShared(s, func(ctx context.Context, store fleet.Store) error {
		order := fleet.Order{Key: breaker.Key(c.Breaker), Force: force, For: lasts, Operator: by.Operator, Reason: c.Reason}
		answer, err := admin.GiveOrder(ctx, store, order, forcePatience)
		switch {
		case errors.Is(err, fleet.ErrNotForced):
			return &exitError{code: exitFailure, text: fmt.Sprintf("breaker %s is not forced: nothing to release", order.Key)}
		case errors.Is(err, admin.ErrUnconfirmed):
			return fmt.Errorf("%w; \"admin breakers show %s\" tells, and asking again is harmless", err, order.Key)
		case err != nil:
			return fmt.Errorf("nothing was done: %w", err)
		case c.JSON:
			return admin.WriteJSON(s.out, answer)
		}
		return answer.Write(s.out, time.Now())
	})
}

// orderHelp is how every order works.
const orderHelp = `

The order goes into the record that the workers share in Redis. Running workers take it within a second, and the command
waits up to two for them and says how many have; those that start later find it, also after a restart of all. It replaces an
order before it. Who gave it, when and why is kept with the last hundred; "admin breakers show" tells.

`

// orderCodes are the exit codes of every order.
const orderCodes = `
Exit codes: 0 ordered, also while no worker runs; 1 if Redis is away, which leaves everything as it was unless the answer
says otherwise, if the route does not share its breakers, or for a release of what is not forced; 2 for mistakes on the
command line or in the settings.`

// forceOpenCmd is spillway admin breakers force-open.
type forceOpenCmd struct {
	orderFlags
	expiryFlag
}

// Help is shown by spillway admin breakers force-open --help.
func (*forceOpenCmd) Help() string {
	return `Every worker refuses every call until the force ends or is released, whatever the mode; orders wait. Then calls are let in
carefully: first probes, then the ramp.` + orderHelp + `  spillway admin breakers force-open wallet/submit --for 30m --reason "the wallet moves to another site"
` + orderCodes
}

// Run implements the command.
func (c *forceOpenCmd) Run(s *surroundings) error {
	return c.give(s, breaker.ForceOpen, time.Duration(c.For))
}

// forceCloseCmd is spillway admin breakers force-close.
type forceCloseCmd struct {
	orderFlags
	expiryFlag
}

// Help is shown by spillway admin breakers force-close --help.
func (*forceCloseCmd) Help() string {
	return `Every worker admits every call until the force ends or is released, whatever the results say. Then the breaker is closed and
has forgotten what it saw.` + orderHelp + `  spillway admin breakers force-close wallet/submit --for 10m --reason "it fails on test numbers only"
` + orderCodes
}

// Run implements the command.
func (c *forceCloseCmd) Run(s *surroundings) error {
	return c.give(s, breaker.ForceClosed, time.Duration(c.For))
}

// observeCmd is spillway admin breakers observe.
type observeCmd struct {
	orderFlags
	expiryFlag
}

// Help is shown by spillway admin breakers observe --help.
func (*observeCmd) Help() string {
	return `The breaker goes on counting and moving in every worker, but refuses and announces nothing until the force ends or is
released; then it acts on the state it has. Ends a force open or closed.` + orderHelp + `  spillway admin breakers observe wallet/submit --for 24h --reason "new thresholds, to be watched for a day"
` + orderCodes
}

// Run implements the command.
func (c *observeCmd) Run(s *surroundings) error {
	return c.give(s, breaker.ForceObserve, time.Duration(c.For))
}

// releaseCmd is spillway admin breakers release.
type releaseCmd struct {
	orderFlags
}

// Help is shown by spillway admin breakers release --help.
func (*releaseCmd) Help() string {
	return `Ends a force-open, force-close or observe before its time: after forced open, calls are let in carefully; after forced closed,
the breaker is closed; after observe, it acts on the state it has.` + orderHelp + `  spillway admin breakers release wallet/submit --reason "the wallet has moved"
` + orderCodes
}

// Run implements the command.
func (c *releaseCmd) Run(s *surroundings) error { return c.give(s, breaker.ForceNone, 0) }
