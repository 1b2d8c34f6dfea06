package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"spillway/internal/admin"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/order"
	"spillway/worker"
)

// adminCmd holds what an operator asks and does.
type adminCmd struct {
	Orders      ordersCmd   `cmd:"" help:"Look at orders."`
	DeadLetters lettersCmd  `cmd:"" help:"Look at dead letters, send them back or give them up."`
	Replay      replayCmd   `cmd:"" help:"Look at the replay queues."`
	Breakers    breakersCmd `cmd:"" help:"Look at breakers, force them open or closed."`
}

// Help is shown by spillway admin --help.
func (*adminCmd) Help() string {
	return `What an operator asks and does, beside a running worker or without one. Only "dead-letters requeue", "dead-letters
discard" and the orders to breakers change anything. Each command takes the worker's settings file and says with --help
what it needs of it: PostgreSQL for orders and dead letters, Redis for "replay status" and breakers, the workers' HTTP
address for "breakers list".

Tables are for people; --json prints one line with one JSON object, whose field names stay, for scripts. Text that others
wrote is shown with its control characters escaped (\x1b), in both forms. Times are UTC.

Exit codes: 0 done, 1 if anything asked for was not done, not found or could not be reached, 2 for mistakes on the command
line or in the settings.`
}

// adminFlags is what every admin command has.
type adminFlags struct {
	settingsFile

	JSON    bool   `help:"Print one JSON object on one line."`
	Timeout length `default:"10s" placeholder:"TIME" help:"Longest that any one call may take: 10s if not given."`
}

// length is a duration on the command line: more than nothing, with a unit.
type length time.Duration

// UnmarshalText is called by kong.
func (l *length) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: want a duration with its unit, such as 90s, 15m or 24h", text)
	}
	*l = length(d)
	return nil
}

// pageSize is how many rows a listing may have.
type pageSize int

// UnmarshalText is called by kong.
func (p *pageSize) UnmarshalText(text []byte) error {
	n, err := wholeNumber(string(text), desk.MaxPage)
	*p = pageSize(n)
	return err
}

// handful is how many dead letters one command may resolve.
type handful int

// UnmarshalText is called by kong.
func (h *handful) UnmarshalText(text []byte) error {
	n, err := wholeNumber(string(text), admin.MaxResolve)
	*h = handful(n)
	return err
}

// rowID is the id of a row.
type rowID int64

// UnmarshalText is called by kong.
func (r *rowID) UnmarshalText(text []byte) error {
	n, err := wholeNumber(string(text), 1<<62)
	*r = rowID(n)
	return err
}

func wholeNumber(text string, highest int64) (int64, error) {
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' || n > highest {
			n = 0
			break
		}
		n = n*10 + int64(c-'0')
	}
	if n < 1 || n > highest {
		if highest > 1<<40 {
			return 0, fmt.Errorf("%q: want an id as the listing shows it", text)
		}
		return 0, fmt.Errorf("%q: want 1 to %d", text, highest)
	}
	return n, nil
}

// state is an order's state on the command line, in any case of letters.
type state order.State

// UnmarshalText is called by kong.
func (s *state) UnmarshalText(text []byte) error {
	parsed, err := order.ParseState(strings.ToUpper(string(text)))
	*s = state(parsed)
	return err
}

// phase is a PROCESSING order's phase on the command line.
type phase order.Phase

// UnmarshalText is called by kong.
func (p *phase) UnmarshalText(text []byte) error {
	for _, known := range order.Phases() {
		if strings.EqualFold(known.String(), string(text)) {
			*p = phase(known)
			return nil
		}
	}
	return fmt.Errorf("phase %q: want IN_FLIGHT, REPLAYING or UNKNOWN", text)
}

// reason is a dead letter's reason on the command line.
type reason order.Reason

// UnmarshalText is called by kong.
func (r *reason) UnmarshalText(text []byte) error {
	parsed := order.Reason(strings.ToUpper(string(text)))
	if !slices.Contains(order.Reasons(), parsed) {
		return fmt.Errorf("reason %q: want one of %v", text, order.Reasons())
	}
	*r = reason(parsed)
	return nil
}

// letterStatus is where a dead letter stands on the command line.
type letterStatus desk.LetterStatus

// UnmarshalText is called by kong.
func (l *letterStatus) UnmarshalText(text []byte) error {
	if strings.EqualFold(string(text), "all") {
		*l = 0
		return nil
	}
	parsed, err := desk.ParseLetterStatus(strings.ToLower(string(text)))
	if err != nil {
		return fmt.Errorf("status %q: want waiting, requeued, discarded or all", text)
	}
	*l = letterStatus(parsed)
	return nil
}

// usage says what is wrong with the command line.
func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, text: fmt.Sprintf(format, args...)}
}

// load reads the settings and begins a context that ends when a person interrupts.
func (c *adminFlags) load(s *surroundings) (*config.Config, context.Context, context.CancelFunc, error) {
	cfg, err := worker.Load(c.File, s.env)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(s.ctx, os.Interrupt, syscall.SIGTERM)
	return cfg, ctx, stop, nil
}

// adminConnections is how many connections to PostgreSQL an admin command may hold.
const adminConnections = 2

// withStore runs f with the record of orders, once its schema is seen to be this version's. Errors come out fit for a
// terminal: they may quote what others wrote.
func (c *adminFlags) withStore(s *surroundings, f func(ctx context.Context, cfg *config.Config, st *store) error) error {
	cfg, ctx, stop, err := c.load(s)
	if err != nil {
		return err
	}
	defer stop()
	settings := worker.StoreConfig(cfg, nil)
	settings.MaxConnections = adminConnections
	settings.ConnectTimeout = time.Duration(c.Timeout)
	settings.StatementTimeout = min(settings.StatementTimeout, max(time.Duration(c.Timeout), time.Millisecond))
	db, err := postgres.Open(ctx, settings)
	if err != nil {
		return shown(err)
	}
	defer db.Close()
	st := &store{db: db, timeout: time.Duration(c.Timeout)}
	if err := st.check(ctx); err != nil {
		return shown(err)
	}
	return shown(f(ctx, cfg, st))
}

// shown makes an error fit for a terminal.
func shown(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &exitError{code: exitFailure, text: admin.Printable(err.Error())}
}

// store bounds each call to the record of orders.
type store struct {
	db      *postgres.Store
	timeout time.Duration
}

func (s *store) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.CheckSchema(ctx)
}

// ListOrders implements admin.Orders.
func (s *store) ListOrders(ctx context.Context, f desk.OrderFilter) ([]order.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.ListOrders(ctx, f)
}

// ShowOrder implements admin.Orders.
func (s *store) ShowOrder(ctx context.Context, route, number string) (desk.OrderView, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.ShowOrder(ctx, route, number)
}

// ListDeadLetters implements admin.Letters.
func (s *store) ListDeadLetters(ctx context.Context, f desk.LetterFilter) ([]desk.Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.ListDeadLetters(ctx, f)
}

// ShowDeadLetter implements admin.Letters.
func (s *store) ShowDeadLetter(ctx context.Context, id int64) (desk.Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.ShowDeadLetter(ctx, id)
}

// Requeue implements admin.Letters.
func (s *store) Requeue(ctx context.Context, by desk.Sign, rs []desk.Requeue) ([]desk.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.Requeue(ctx, by, rs)
}

// Discard implements admin.Letters.
func (s *store) Discard(ctx context.Context, by desk.Sign, ids []int64) ([]desk.Resolved, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.db.Discard(ctx, by, ids)
}

// hintRoute tells of a route that the settings do not have: a listing of it is empty, or of what once was.
func hintRoute(s *surroundings, cfg *config.Config, route string) {
	if route == "" {
		return
	}
	names := routeNames(cfg)
	if !slices.Contains(names, route) {
		s.complain("spillway: note: the settings have no route %q; they have: %s\n", route, strings.Join(names, ", "))
	}
}

func routeNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Routes))
	for i := range cfg.Routes {
		names[i] = cfg.Routes[i].Name
	}
	return names
}

// address is where a server stands, without anything that may be secret.
func address(u config.URL) string {
	parsed, err := url.Parse(u.Reveal())
	if err != nil || parsed.Host == "" {
		return u.String()
	}
	return parsed.Host
}
