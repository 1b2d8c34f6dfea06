package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Start says where a group begins to read a partition that it has never committed.
type Start int

const (
	// Earliest begins at the oldest record there is.
	Earliest Start = iota
	// Latest begins after the newest record, and only for the partitions that exist when the group first starts: one
	// that is added later is read from its beginning.
	Latest
)

// Isolation says which records of transactions are read.
type Isolation int

const (
	// ReadCommitted leaves out records of aborted transactions and waits for open ones.
	ReadCommitted Isolation = iota
	// ReadUncommitted takes every record as soon as it is replicated.
	ReadUncommitted
)

// Balance names the strategy that divides the partitions among the members.
type Balance string

const (
	// Sticky leaves each partition with the member that held it as far as balance allows. While some member of the group
	// does not offer it, the group divides by Range.
	Sticky Balance = "sticky"
	// Range gives each member a contiguous range.
	Range Balance = "range"
	// RoundRobin deals the partitions out one by one.
	RoundRobin Balance = "roundrobin"
)

// SASL is how the worker authenticates itself. Its zero value means that it does not.
type SASL struct {
	Mechanism string // "plain", "scram-sha-256" or "scram-sha-512"; empty for none
	Username  string
	Password  string
}

// Config holds what New needs. Zero numbers are replaced by the defaults named here.
type Config struct {
	Brokers  []string // host:port of some of the brokers, at least one
	Topic    string
	Group    string
	ClientID string // default "spillway"
	Route    string // the metrics' label, default Topic

	Start     Start
	Isolation Isolation
	Balance   Balance // default Sticky

	SessionTimeout    time.Duration // 8 s: a member silent for so long is put out of the group
	HeartbeatInterval time.Duration // 2 s
	RebalanceTimeout  time.Duration // 30 s: how long the group waits for members that drain; serve must be back by then
	MaxWait           time.Duration // 500 ms: how long the broker holds a fetch that finds nothing
	WatchInterval     time.Duration // 10 s: how often the topic's partitions are looked at
	DialTimeout       time.Duration // 5 s, TLS and SASL included
	CallTimeout       time.Duration // 10 s: for any request but a fetch
	MaxBatchBytes     int           // 64 MiB: the largest record batch, compressed or not, that is decoded

	TLS  *tls.Config
	SASL SASL
	Dial func(ctx context.Context, network, address string) (net.Conn, error) // default net.Dialer

	Registerer prometheus.Registerer // nil: no metrics
	Logger     *slog.Logger          // nil: no logs
}

// Bounds of the configuration's numbers.
const (
	maxDuration   = time.Hour
	minBatchBytes = 1 << 10
	maxBatchBytes = 1 << 30
)

// withDefaults returns the configuration with every zero replaced, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.Brokers) == 0:
		return c, errors.New("kafka: no brokers given")
	case c.Topic == "":
		return c, errors.New("kafka: no topic given")
	case c.Group == "":
		return c, errors.New("kafka: no consumer group given")
	}
	for _, broker := range c.Brokers {
		if _, _, err := net.SplitHostPort(broker); err != nil {
			return c, fmt.Errorf("kafka: broker %q: want host:port", broker)
		}
	}
	if c.ClientID == "" {
		c.ClientID = "spillway"
	}
	if c.Route == "" {
		c.Route = c.Topic
	}
	if c.Balance == "" {
		c.Balance = Sticky
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"session timeout", &c.SessionTimeout, 8 * time.Second},
		{"heartbeat interval", &c.HeartbeatInterval, 2 * time.Second},
		{"rebalance timeout", &c.RebalanceTimeout, 30 * time.Second},
		{"max wait", &c.MaxWait, 500 * time.Millisecond},
		{"watch interval", &c.WatchInterval, 10 * time.Second},
		{"dial timeout", &c.DialTimeout, 5 * time.Second},
		{"call timeout", &c.CallTimeout, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < time.Millisecond || *d.value > maxDuration {
			return c, fmt.Errorf("kafka: %s is %v: want 1ms to %v", d.name, *d.value, maxDuration)
		}
	}
	if c.HeartbeatInterval > c.SessionTimeout/2 {
		return c, fmt.Errorf("kafka: heartbeat interval is %v: want at most half the session timeout of %v",
			c.HeartbeatInterval, c.SessionTimeout)
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = 64 << 20
	}
	if c.MaxBatchBytes < minBatchBytes || c.MaxBatchBytes > maxBatchBytes {
		return c, fmt.Errorf("kafka: largest batch is %d bytes: want %d to %d", c.MaxBatchBytes, minBatchBytes, maxBatchBytes)
	}
	return c, nil
}

// mechanism makes kafka-go's mechanism, nil for none. Its errors hold no secret.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		return nil, nil
	}
	if s.Username == "" {
		return nil, fmt.Errorf("kafka: SASL mechanism %q needs a username", s.Mechanism)
	}
	algorithm := scram.SHA512
	switch s.Mechanism {
	case "plain":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case "scram-sha-256":
		algorithm = scram.SHA256
	case "scram-sha-512":
	default:
		return nil, fmt.Errorf("kafka: SASL mechanism %q: want plain, scram-sha-256 or scram-sha-512", s.Mechanism)
	}
	mechanism, err := scram.Mechanism(algorithm, s.Username, s.Password)
	if err != nil {
		// The library's error may quote what it was given.
		return nil, errors.New("kafka: the SASL username or password holds characters that SCRAM forbids")
	}
	return mechanism, nil
}
