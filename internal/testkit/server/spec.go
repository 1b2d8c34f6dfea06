package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"

	"spillway/internal/embed"
)

// Host is the only address a test server listens on.
const Host = "127.0.0.1"

// Kind is one of the three servers.
type Kind string

// The kinds of server there are.
const (
	KindKafka    Kind = "kafka"
	KindRedis    Kind = "redis"
	KindPostgres Kind = "postgres"
)

// Kinds lists every kind, in the order they are shown.
func Kinds() []Kind { return []Kind{KindKafka, KindRedis, KindPostgres} }

// Spec says how one server is started. Argv names Dir somewhere, which is how a later process recognizes the server
// among the machine's process ids.
type Spec struct {
	Kind  Kind
	Argv  []string
	Dir   string // data and configuration; the owner's, and deleted with the server
	Log   string // file that standard output and error are appended to
	Port  int
	Owner embed.Owner
}

// Addr is the host:port the server listens on.
func (s Spec) Addr() string { return net.JoinHostPort(Host, strconv.Itoa(s.Port)) }

// URL is what a client of this kind of server takes: host:port for Kafka, a URL for the others.
func (s Spec) URL() string {
	switch s.Kind {
	case KindKafka:
		return s.Addr()
	case KindRedis:
		return "redis://" + s.Addr() + "/0"
	case KindPostgres:
		return "postgres://spillway@" + s.Addr() + "/postgres?sslmode=disable"
	}
	return ""
}

// StopSignal asks for an orderly end that doesn't wait for clients: PostgreSQL's answer to SIGTERM would.
func (s Spec) StopSignal() syscall.Signal {
	if s.Kind == KindPostgres {
		return syscall.SIGINT
	}
	return syscall.SIGTERM
}

// probe asks the server once whether it serves requests.
func (s Spec) probe(ctx context.Context) error {
	switch s.Kind {
	case KindKafka:
		return probeKafka(ctx, s.Addr())
	case KindRedis:
		return probeRedis(ctx, s.Addr())
	case KindPostgres:
		return embed.Probe(ctx, "tcp", s.Addr())
	}
	return fmt.Errorf("unknown kind of server %q", s.Kind)
}

// FreePort returns a loopback port that nothing listens on now.
//
// It stays below the ports that the system hands to outgoing connections: a server that restarts on its port must not
// find a client there, and a client that dials a stopped server must not connect to itself.
func FreePort(ctx context.Context) (int, error) {
	const low, high, tries = 12000, 32000, 200
	var listen net.ListenConfig
	for range tries {
		port := low + rand.IntN(high-low)
		listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(Host, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, err
		}
		return port, nil
	}
	return 0, errors.New("no free loopback port in " + strconv.Itoa(tries) + " tries")
}

// LogTail returns the last lines of the server's log, for an error message.
func (s Spec) LogTail() string {
	const lines = 15
	text, err := readTail(s.Log, 64<<10)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
