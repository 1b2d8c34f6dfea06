package server

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// NewRedis prepares a Redis server with an append-only file under dir, which it creates.
func NewRedis(ctx context.Context, dir, log string) (Spec, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return Spec{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Spec{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Spec{}, err
	}
	port, err := FreePort(ctx)
	if err != nil {
		return Spec{}, err
	}
	return Spec{
		Kind: KindRedis, Dir: dir, Log: log, Port: port,
		Argv: []string{
			program, "--port", strconv.Itoa(port), "--bind", Host, "--dir", dir,
			"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
			// The command line is how a later process knows its server again.
			"--set-proc-title", "no",
		},
	}, nil
}
