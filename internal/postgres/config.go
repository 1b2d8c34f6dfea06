package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says how to reach the database. The zero value of a field is its default, except URL.
type Config struct {
	// URL is postgres://user:password@host:port/database?parameters, with libpq's parameters. To keep the tables in a
	// schema of their own, add search_path=name.
	URL string
	// MaxConnections bounds the pool: default 8, at most 1000.
	MaxConnections int
	// ConnectTimeout bounds the making of one connection: default 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds one statement, at the server: default 10 s. It also ends a session that idles inside a
	// transaction, which would hold back vacuum.
	StatementTimeout time.Duration
	// Logger hears of statements tried again; nil for none.
	Logger *slog.Logger
}

const (
	defaultConnections      = 8
	maxConnections          = 1000
	defaultConnectTimeout   = 5 * time.Second
	defaultStatementTimeout = 10 * time.Second
)

func (c Config) withDefaults() Config {
	if c.MaxConnections == 0 {
		c.MaxConnections = defaultConnections
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = defaultStatementTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) check() error {
	switch {
	case c.MaxConnections < 0 || c.MaxConnections > maxConnections:
		return fmt.Errorf("postgres connections: %d: want 1 to %d", c.MaxConnections, maxConnections)
	case c.ConnectTimeout < 0:
		return fmt.Errorf("postgres connect timeout: %s: want more than 0s", c.ConnectTimeout)
	case c.StatementTimeout < 0 || (c.StatementTimeout > 0 && c.StatementTimeout < time.Millisecond):
		return fmt.Errorf("postgres statement timeout: %s: want at least 1ms", c.StatementTimeout)
	}
	return nil
}

// poolConfig reads the URL and sets what every session of the pool starts with.
func (c Config) poolConfig() (*pgxpool.Config, error) {
	if !isURL(c.URL) {
		return nil, errURL("")
	}
	p, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		// The driver's own text may hold parts of a malformed URL, and so of the password.
		return nil, errURL(visibleHost(c.URL))
	}
	p.MaxConns = int32(c.MaxConnections) //nolint:gosec // check bounds it
	p.MinConns = 0
	p.ConnConfig.ConnectTimeout = c.ConnectTimeout
	p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	params := p.ConnConfig.RuntimeParams
	for name, value := range sessionDefaults() {
		if _, ok := params[name]; !ok {
			params[name] = value
		}
	}
	millis := strconv.FormatInt(c.StatementTimeout.Milliseconds(), 10)
	params["statement_timeout"] = millis
	params["idle_in_transaction_session_timeout"] = millis
	return p, nil
}

// sessionDefaults are settings of each session, which the URL may overrule.
//
// The plans of prepared statements are kept, and what they were made with is soon wrong: a table that was small, or one in
// which ANALYZE happened to see no order under way. A plan that reads the table, or all that is under way, once for each
// batch and compares each row with each key takes seconds then. A batch of keys is always best looked up one by one, so all
// other ways are closed: the other joins and the reading of whole tables here, and in the statements the index of what is
// under way ("state + 0 = 1") and the reading of the whole primary key in its order ("id = ANY(ARRAY[u.id])", which can't
// be merged).
func sessionDefaults() map[string]string {
	return map[string]string{
		"application_name": "spillway",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
		"enable_seqscan":   "off",
		"jit":              "off",
	}
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

func errURL(host string) error {
	const want = "want postgres://user:password@host:port/database?parameters, with each special character of the password as %XX"
	if host == "" {
		return errors.New("postgres URL can't be read: " + want)
	}
	return fmt.Errorf("postgres URL can't be read (host part %q): %s", host, want)
}

// visibleHost returns the host part of a URL that can't be parsed, for an error message, or nothing where it can't be
// told from the password.
func visibleHost(s string) string {
	_, rest, _ := strings.Cut(s, "://")
	if strings.Count(rest, "@") != 1 || strings.Contains(strings.ToLower(rest), "password") {
		return ""
	}
	before, host, _ := strings.Cut(rest, "@")
	if strings.ContainsAny(before, "/?#") {
		return ""
	}
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	return host
}

// secrets lists the passwords that a URL holds, in each form in which an error could show them.
func secrets(p *pgx.ConnConfig, raw string) []string {
	found := []string{p.Password}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			found = append(found, password, url.QueryEscape(password), url.PathEscape(password))
		}
	}
	var list []string
	for _, s := range found {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}
