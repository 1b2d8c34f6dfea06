// Command services starts the real Kafka, Redis and PostgreSQL that the service tests need, on free loopback ports,
// and stops what it started. Run it through scripts/services.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `usage: scripts/services COMMAND

  up      install what is missing where it may, start Kafka, Redis and PostgreSQL, wait until they serve
          (again: start only what does not run); prints what "status" prints
  down    stop what "up" started and delete its data; the logs stay in .services/
  status  show what runs; exit code 3 when something does not
  env     print shell lines that export the addresses for the tests: eval "$(scripts/services env)"

environment:
  CI=true                  "up" fails when a server is left out, instead of saying why and going on
  SPILLWAY_TEST_FSYNC=on   for measurements: PostgreSQL flushes every commit, Kafka's JVM compiles fully
  SPILLWAY_SERVICES_DIR    where state, logs and data stand (default .services): another folder, other servers
  SPILLWAY_POSTGRES_BIN    folder with initdb and postgres, when they are not where they usually are
  XDG_CACHE_HOME           Kafka's jars are kept under it (default ~/.cache)
`

// exitNotAll is the exit code of status when a server does not run.
const exitNotAll = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run carries out one command and returns the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	if len(args) != 1 {
		_, _ = fmt.Fprint(errs, usage)
		return 2
	}
	root, err := os.Getwd()
	if err != nil {
		_, _ = fmt.Fprintln(errs, "services:", err)
		return 1
	}
	dir := os.Getenv("SPILLWAY_SERVICES_DIR")
	if dir == "" {
		dir = filepath.Join(root, ".services")
	}
	yard := yard{
		dir:  dir,
		pom:  filepath.Join(root, "scripts", "kafka", "pom.xml"),
		ci:   os.Getenv("CI") == "true",
		full: os.Getenv("SPILLWAY_TEST_FSYNC") == "on",
		out:  out, errs: errs,
	}
	complete := true
	switch args[0] {
	case "up":
		err = yard.up(ctx)
	case "down":
		err = yard.down(ctx)
	case "status":
		complete, err = yard.status(ctx)
	case "env":
		err = yard.env(ctx)
	case "help", "-h", "--help":
		_, err = fmt.Fprint(out, usage)
	default:
		_, _ = fmt.Fprint(errs, usage)
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintln(errs, "services:", err)
		return 1
	}
	if !complete {
		return exitNotAll
	}
	return 0
}
