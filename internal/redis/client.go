// Package redis keeps the replay queues in Redis 7 (or what speaks like it). It is the only package that imports the
// driver.
//
// A queue's keys share one hash tag, {prefix:route}, so that a script may touch all of them:
//
//	:ready            LIST    entries ready to be claimed, oldest first
//	:claim:WORKER:N   LIST    the entries of one claim
//	:lease            ZSET    key of a claim → when its lease ends, Unix ms by the server's clock
//	:delayed          ZSET    entry → when it becomes ready
//	:ids              ZSET    id of a queued order → when it was pushed
//	:probe            STRING  what Probe writes
//
// Every move is one script, so it happens or it doesn't. The scripts remove before they add, which keeps taking from and
// finishing in the queue possible on a server that is out of memory; adding is refused there with its first write.
package redis

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

//go:embed scripts/*.lua
var scripts embed.FS

// Config says where Redis is. The zero value of each field but URL is its default.
type Config struct {
	// URL is redis://[[user]:password@]host[:port][/db], or rediss:// for TLS. Required. It is never shown in an error.
	URL string
	// Prefix starts every key, default "spillway". No braces.
	Prefix string

	Dial time.Duration // bound on connecting, default 2 s
	Call time.Duration // bound on one command, default 3 s
	Pool int           // bound on connections, default 16
}

// Client is a pool of connections to one server. It may be used concurrently, and connects when it is first used.
type Client struct {
	db     *redis.Client
	addr   string // of the server, for errors
	prefix string
	script map[string]*redis.Script // by the file's name; read only
}

// Open makes a client without connecting. The error says what is wrong with the config, without the URL.
func Open(cfg Config) (*Client, error) {
	opts, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "spillway"
	}
	if strings.ContainsAny(cfg.Prefix, "{}") {
		return nil, fmt.Errorf("redis prefix %q: want one without braces", cfg.Prefix)
	}
	for _, d := range []*time.Duration{&cfg.Dial, &cfg.Call} {
		if *d < 0 {
			return nil, fmt.Errorf("redis timeout %v: want more than 0", *d)
		}
	}
	if cfg.Pool < 0 || cfg.Pool > 10_000 {
		return nil, fmt.Errorf("redis pool %d: want 1 to 10000", cfg.Pool)
	}
	opts.DialTimeout = orDefault(cfg.Dial, 2*time.Second)
	opts.ReadTimeout = orDefault(cfg.Call, 3*time.Second)
	opts.WriteTimeout = opts.ReadTimeout
	opts.PoolTimeout = opts.ReadTimeout
	opts.PoolSize = orDefault(cfg.Pool, 16)
	opts.ContextTimeoutEnabled = true
	// Whoever calls has a pace for trying again; a second one inside would hide it and hammer a server in trouble.
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.Protocol = 2
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	// The driver would write to standard error, past the log; every error comes back to a caller who can say it better.
	logging.Disable()
	c := &Client{db: redis.NewClient(opts), addr: opts.Addr, prefix: cfg.Prefix, script: make(map[string]*redis.Script)}
	files, err := scripts.ReadDir("scripts")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := scripts.ReadFile("scripts/" + file.Name())
		if err != nil {
			return nil, err
		}
		c.script[strings.TrimSuffix(file.Name(), ".lua")] = redis.NewScript(string(text))
	}
	return c, nil
}

// Ping asks the server for a sign of life. It may answer and still refuse writes: see Queue.Probe.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.db.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s: ping: %w", c.addr, err)
	}
	return nil
}

// Close ends all connections.
func (c *Client) Close() error { return c.db.Close() }

// run runs a script, loading it into the server if it isn't there.
func (c *Client) run(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return c.script[name].Run(ctx, c.db, keys, args...)
}

// each runs a script n times in one round trip. A server that does not know the script is given it and asked again, so the
// script must not mind being run twice.
func (c *Client) each(ctx context.Context, name string, n int, call func(i int) ([]string, []any, error)) ([]*redis.Cmd, error) {
	if n == 0 {
		return nil, nil
	}
	script := c.script[name]
	for loaded := false; ; loaded = true {
		pipe := c.db.Pipeline()
		cmds := make([]*redis.Cmd, n)
		for i := range cmds {
			keys, args, err := call(i)
			if err != nil {
				return nil, err
			}
			cmds[i] = script.EvalSha(ctx, pipe, keys, args...)
		}
		_, err := pipe.Exec(ctx)
		if err == nil || loaded || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return cmds, err
		}
		if err := script.Load(ctx, c.db).Err(); err != nil {
			return nil, err
		}
	}
}

// parseURL reads a URL into options. Errors name the part that is wrong, never its text: a mistyped URL may have the
// password anywhere.
func parseURL(text string) (*redis.Options, error) {
	const want = "want redis://[[user]:password@]host[:port][/db] or rediss:// for TLS"
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("redis url does not parse: " + want)
	}
	host := u.Hostname()
	port := orDefault(u.Port(), "6379")
	number, err := strconv.Atoi(port)
	if _, ipErr := netip.ParseAddr(host); strings.Contains(host, ":") && ipErr != nil {
		err = ipErr
	}
	switch {
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return nil, errors.New("redis url has another scheme: " + want)
	case u.Opaque != "" || host == "" || err != nil || number < 1 || number > 65535:
		return nil, errors.New("redis url has no legal host and port: " + want)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("redis url has options: " + want + ", nothing after it")
	}
	opts := &redis.Options{Addr: net.JoinHostPort(host, port)}
	if path := strings.Trim(u.Path, "/"); path != "" {
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 || db > 1<<20 {
			return nil, errors.New("redis url names no legal database: " + want + ", db a number")
		}
		opts.DB = db
	}
	if u.User != nil {
		opts.Username = u.User.Username()
		opts.Password, _ = u.User.Password()
	}
	if u.Scheme == "rediss" {
		opts.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	return opts, nil
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
