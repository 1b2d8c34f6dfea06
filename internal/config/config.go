package config

import (
	"log/slog"
	"slices"
	"time"
)

// Config is everything a worker can be told. It is made by [Load] or [Parse], which leave every field set and checked.
type Config struct {
	Kafka    Kafka    `yaml:"kafka" help:"Where the topics are."`
	Redis    Redis    `yaml:"redis" help:"The replay queues. Losing all of it loses no order."`
	Postgres Postgres `yaml:"postgres" help:"The record of every order."`
	HTTP     HTTP     `yaml:"http" help:"Metrics, health and readiness."`
	Log      Log      `yaml:"log" help:"Logs, on standard error."`
	Shutdown Shutdown `yaml:"shutdown" help:"How a worker stops."`
	Reload   Reload   `yaml:"reload" help:"How a running worker takes new settings. On SIGHUP it does so at once."`
	Alerts   Alerts   `yaml:"alerts" help:"Who is told of the moves of breakers, beside logs, metrics and the record."`
	Routes   []Route  `yaml:"routes" need:"true" help:"One topic to one downstream each."`
}

// Clone returns a config of its own: changing a field of one, or of one of its routes, leaves the other as it is. Lists and
// mappings within routes are shared and must not be changed.
func (c *Config) Clone() *Config {
	clone := *c
	clone.Routes = slices.Clone(c.Routes)
	return &clone
}

// Kafka is the cluster that holds the topics of every route.
type Kafka struct {
	Brokers        []string      `yaml:"brokers" need:"true" form:"host:port, at least one" example:"127.0.0.1:9092" help:"Brokers to learn the cluster from."`
	ClientID       string        `yaml:"client_id" default:"spillway" form:"1 to 200 printable characters" help:"Name shown in the brokers' logs and quotas."`
	SessionTimeout time.Duration `yaml:"session_timeout" default:"8s" min:"1s" max:"30m" help:"Silence after which the group gives a worker's partitions to others. The brokers bound it too (6s to 30m unless changed there)."`
	Heartbeat      time.Duration `yaml:"heartbeat" default:"2s" min:"100ms" max:"10m" help:"Time between signs of life; at most a third of session_timeout."`
	TLS            KafkaTLS      `yaml:"tls" help:"Encryption on the way to the brokers."`
	SASL           SASL          `yaml:"sasl" help:"Who the worker is to the brokers."`
}

// KafkaTLS is encryption on the way to the brokers; see [KafkaTLS.Build].
type KafkaTLS struct {
	Enabled    bool   `yaml:"enabled" default:"false" help:"Speak TLS to the brokers."`
	CAFile     string `yaml:"ca_file" form:"a PEM file" example:"/etc/spillway/ca.pem" help:"Authorities to trust instead of the system's."`
	CertFile   string `yaml:"cert_file" form:"a PEM file" example:"/etc/spillway/client.pem" help:"Client certificate; needs key_file."`
	KeyFile    string `yaml:"key_file" form:"a PEM file" example:"/etc/spillway/client.key" help:"Key of the client certificate."`
	ServerName string `yaml:"server_name" form:"a host name" example:"kafka.internal" help:"Name the brokers' certificates must bear, where it is not their address."`
}

// Mechanisms of SASL.
const (
	SASLNone        = "none"
	SASLPlain       = "plain"
	SASLScramSHA256 = "scram-sha-256"
	SASLScramSHA512 = "scram-sha-512"
)

// SASL is the worker's identity to the brokers.
type SASL struct {
	Mechanism    string `yaml:"mechanism" default:"none" accept:"none|plain|scram-sha-256|scram-sha-512" help:"How the worker proves who it is."`
	Username     string `yaml:"username" form:"a text" example:"spillway" help:"Needed by every mechanism but none."`
	Password     Secret `yaml:"password" form:"a text" help:"Needed by every mechanism but none; better given by the environment or by password_file."`
	PasswordFile string `yaml:"password_file" form:"a file" example:"/run/secrets/kafka" help:"File that holds the password; its last line break is not part of it."`
}

// Redis is the server of the replay queues.
type Redis struct {
	URL          URL    `yaml:"url" need:"true" scheme:"redis|rediss" example:"redis://127.0.0.1:6379/0" help:"Server, user and database; rediss speaks TLS."`
	PasswordFile string `yaml:"password_file" form:"a file" example:"/run/secrets/redis" help:"File that holds the password, instead of one in the url."`
	Prefix       string `yaml:"prefix" default:"spillway" form:"1 to 40 of a-z A-Z 0-9 . _ -" help:"Start of every key, so that installations can share a server."`
}

// Postgres is the database that is the record of every order.
type Postgres struct {
	URL              URL           `yaml:"url" need:"true" scheme:"postgres|postgresql" example:"postgres://spillway@127.0.0.1:5432/spillway" help:"Server, user and database."`
	PasswordFile     string        `yaml:"password_file" form:"a file" example:"/run/secrets/postgres" help:"File that holds the password, instead of one in the url."`
	MaxConnections   int           `yaml:"max_connections" default:"8" min:"2" max:"1000" help:"Connections one worker may hold."`
	StatementTimeout time.Duration `yaml:"statement_timeout" default:"5s" min:"10ms" max:"10m" help:"Longest any statement may run."`
}

// HTTP is the worker's own server.
type HTTP struct {
	Listen string `yaml:"listen" default:"127.0.0.1:9464" form:"host:port; port 0 takes a free one, no host means every address" help:"Address of /metrics, /livez and /readyz."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" default:"info" hot:"true" accept:"debug|info|warn|error" help:"Least important level that is written."`
	Format string `yaml:"format" default:"json" accept:"json|text" help:"One JSON object a line, or text for people."`
}

// Slog is the level as package slog has it. Level was checked; info stands for anything else.
func (l Log) Slog() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return slog.LevelInfo
	}
	return level
}

// Shutdown says how a worker stops.
type Shutdown struct {
	Grace time.Duration `yaml:"grace" default:"5s" min:"100ms" max:"29m" help:"Time to finish and commit what is in flight after SIGTERM; at most session_timeout less heartbeat."`
}

// Reload says how a running worker hears of new settings.
type Reload struct {
	Poll time.Duration `yaml:"poll" default:"5s" min:"0s" max:"1h" hot:"true" help:"Time between looks at the settings file: what is new there for two looks in a row is taken. 0s looks at nothing; SIGHUP works all the same."`
}
