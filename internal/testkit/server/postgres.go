package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

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
	data := filepath.Join(dir, "data")
	if err := errors.Join(owner.Give(dir), embed.MakeCluster(ctx, bin, data, owner)); err != nil {
		return Spec{}, fmt.Errorf("make a PostgreSQL cluster: %w", err)
	}
	flush := "off"
	if durable {
		flush = "on"
	}
	spec.Argv = []string{filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port)}
	for _, setting := range []string{
		"listen_addresses=" + Host,
		"unix_socket_directories=", // a path under a deep folder is longer than a socket's name may be
		"fsync=" + flush,
		"full_page_writes=" + flush,
		"synchronous_commit=on", // a commit is handed to the system before it is answered: a killed server loses none
		"max_connections=300",   // many tests at once, each with a pool
		"shared_buffers=256MB",
		"max_wal_size=2GB",
		"log_min_messages=warning",
	} {
		spec.Argv = append(spec.Argv, "-c", setting)
	}
	return spec, nil
}
