package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"spillway/internal/embed"
	"spillway/internal/testkit/server"
)

// Server is a real server of one test, which may stop, kill and restart it: it comes back on the same port with the
// same data. It ends with the test, and with the test binary however that ends. Its methods report failures to the test
// and may be called from any goroutine, one at a time.
type Server struct {
	t       testing.TB
	spec    server.Spec
	mu      sync.Mutex      // guards process and one change of state
	process *server.Process // nil while stopped
}

// StartRedis starts a Redis server of the test's own, with an append-only file.
func StartRedis(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		missing(t, "redis-server is not on PATH")
	}
	spec, err := server.NewRedis(t.Context(), filepath.Join(t.TempDir(), "redis"), logFile(t))
	return begin(t, spec, err)
}

// StartPostgres starts a PostgreSQL server of the test's own. A killed server loses nothing: fsync guards against the
// end of the machine, not of a process.
func StartPostgres(t testing.TB) *Server {
	t.Helper()
	if _, err := embed.Find(""); err != nil {
		missing(t, err.Error())
	}
	spec, err := server.NewPostgres(t.Context(), filepath.Join(t.TempDir(), "postgres"), logFile(t), false)
	return begin(t, spec, err)
}

// StartKafka starts a Kafka node of the test's own; it takes a few seconds and 250 MB.
func StartKafka(t testing.TB) *Server {
	t.Helper()
	return startKafka(t, 0)
}

// StartKafkaBehind starts a Kafka node of the test's own that sends its clients through a proxy: the proxy's address is
// the one to give them.
func StartKafkaBehind(t testing.TB) (*Server, *Proxy) {
	t.Helper()
	proxy := StartProxy(t, "")
	s := startKafka(t, proxy.port)
	proxy.Retarget(s.Addr())
	return s, proxy
}

// startKafka starts a node that tells its clients to come to the advertised port; 0 is its own.
func startKafka(t testing.TB, advertised int) *Server {
	t.Helper()
	lib := os.Getenv(kafkaLibEnv)
	if lib == "" {
		missing(t, kafkaLibEnv+` is not set (run: eval "$(scripts/services env)" after scripts/services up)`)
	}
	spec, err := server.NewKafka(t.Context(), server.KafkaConfig{
		Dir: filepath.Join(t.TempDir(), "kafka"), Log: logFile(t), Lib: lib, Fast: true, Advertised: advertised,
	})
	return begin(t, spec, err)
}

// logFile is a new server's log.
func logFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "server.log")
}

// begin starts a prepared server and has it end with the test.
func begin(t testing.TB, spec server.Spec, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatalf("prepare a server: %v", err)
	}
	count(t, "run")
	s := &Server{t: t, spec: spec}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", spec.Kind, spec.LogTail())
		}
		if err := os.RemoveAll(spec.Dir); err != nil {
			t.Errorf("remove the data of %s: %v", spec.Kind, err)
		}
	})
	s.Start()
	if s.process == nil {
		t.FailNow()
	}
	return s
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.spec.Addr() }

// URL is what a client takes: host:port for Kafka, a URL of the maintenance database for Postgres (see Database), the
// URL of database 0 for Redis.
func (s *Server) URL() string { return s.spec.URL() }

// Start starts the server again, on the same port with the same data, and waits until it serves requests.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return
	}
	process, err := server.Start(s.t.Context(), s.spec, embed.Tied)
	if err != nil {
		s.t.Errorf("%v", err)
		return
	}
	s.process = process
}

// Stop asks the server to end in order and waits until it has.
func (s *Server) Stop() {
	s.t.Helper()
	s.end((*server.Process).Stop)
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.end((*server.Process).Kill)
}

// end ends the running process, if there is one.
func (s *Server) end(how func(*server.Process) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	if err := how(s.process); err != nil {
		s.t.Errorf("%v", err)
	}
	s.process = nil
}

// Pause freezes the server (SIGSTOP): its connections stay open and nobody answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.change((*server.Process).Pause)
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.change((*server.Process).Resume)
}

// change applies how to the running process.
func (s *Server) change(how func(*server.Process) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := fmt.Errorf("%s does not run", s.spec.Kind)
	if s.process != nil {
		err = how(s.process)
	}
	if err != nil {
		s.t.Errorf("%v", err)
	}
}
