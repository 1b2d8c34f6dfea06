package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"spillway/internal/embed"
)

// NewPostgres makes an empty PostgreSQL cluster and prepares a server on it. With durable, every commit is flushed to
// the disk, as a measurement must; tests lose nothing without.
//
// Root's data lies in a new folder under the system's temporary one, because the account it runs the server as may not
// reach dir; others' data lies in dir, which is created.
func NewPostgres(ctx context.Context, dir, log string, durable bool) (Spec, error) {
	bin, err := embed.Find("")
	if err != nil {
		return Spec{}, err
	}
	owner, err := embed.ServerOwner()
	if err != nil {
		return Spec{}, err
	}
	if owner.Drop {
		dir, err = os.MkdirTemp("", "spillway-test-postgres-")
	} else {
		if dir, err = filepath.Abs(dir); err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	if err != nil {
		return Spec{}, err
	}
	port, err := FreePort(ctx)
	if err != nil {
		return Spec{}, err
	}
	spec := Spec{Kind: KindPostgres, Dir: dir, Log: log, Port: port, Owner: owner}
	if err := spec.initPostgres(ctx, bin); err != nil {
		return Spec{}, fmt.Errorf("make a PostgreSQL cluster: %w", err)
	}
	flush := "off"
	if durable {
		flush = "on"
	}
	spec.Argv = []string{filepath.Join(bin, "postgres"), "-D", dir, "-p", strconv.Itoa(port)}
	for _, setting := range []string{
		"listen_addresses=" + Host,
		"unix_socket_directories=", // a path under a deep folder is longer than a socket's name may be
		"fsync=" + flush,
		"full_page_writes=" + flush,
		"synchronous_commit=" + flush,
		"max_connections=300", // many tests at once, each with a pool
		"shared_buffers=256MB",
		"max_wal_size=2GB",
		"log_min_messages=warning",
	} {
		spec.Argv = append(spec.Argv, "-c", setting)
	}
	return spec, nil
}

// initPostgres runs initdb as the owner. The data is the tests' own: nobody outside this machine can connect, so
// everybody on it is trusted.
func (s Spec) initPostgres(ctx context.Context, bin string) error {
	if err := s.Owner.Give(s.Dir); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"-D", s.Dir, "-U", "spillway", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	command.Dir = s.Dir
	command.SysProcAttr = s.Owner.Attr(false, syscall.SIGKILL)
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}
