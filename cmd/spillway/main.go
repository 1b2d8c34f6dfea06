// Spillway hands the orders of Kafka topics to downstream services no faster than they can take them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"spillway/internal/config"
)

// Exit codes, the same for every command.
const (
	exitOK      = 0
	exitFailure = 1 // the command was understood and did not succeed
	exitUsage   = 2 // the command line or the settings are wrong; nothing was done
)

const description = `Spillway hands the orders of Kafka topics to downstream services no faster than they can take them,
keeps in a replay queue what they cannot take now, and settles what nobody knows the outcome of.

Exit codes: 0 done, 1 it did not succeed, 2 the command line or the settings are wrong and nothing was done.`

// cli is the command line: one field per command, each in a file of its own.
type cli struct {
	Worker  workerCmd  `cmd:"" help:"Consume and deliver until told to stop."`
	Demo    demoCmd    `cmd:"" help:"Watch the whole story in one process: a wallet slows, fails and comes back."`
	Wallet  walletCmd  `cmd:"" help:"Run the simulated wallet that the demo and the compose file deliver to."`
	Migrate migrateCmd `cmd:"" help:"Look after the database's schema."`
	Admin   adminCmd   `cmd:"" help:"Look after orders, dead letters, replay queues and breakers."`
	Breaker breakerCmd `cmd:"" help:"Try a breaker's settings on calls of the past."`
	Config  configCmd  `cmd:"" help:"Check, write and explain settings. Connects to nothing."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// settingsFile is the flag of every command that reads the settings.
type settingsFile struct {
	File string `name:"config" short:"c" default:"spillway.yaml" env:"SPILLWAY_CONFIG" placeholder:"FILE" help:"Settings file; spillway.yaml if not given."`
}

// surroundings is what a command sees of the world. Each command's Run takes it.
type surroundings struct {
	ctx            context.Context //nolint:containedctx // the process's own, handed to the one command that runs
	in             io.Reader
	out, err       io.Writer
	env            []string
	version        string
	stdoutTerminal bool
}

// exitError ends the process with a code after its text, if it has any, was printed.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// ended is how kong asks for the end of the process.
type ended int

func main() {
	// net/http writes there, past our log, the bytes that a service sends unasked.
	log.SetOutput(io.Discard)
	os.Exit(run(os.Args[1:], &surroundings{
		ctx: context.Background(), in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env: os.Environ(), version: version(), stdoutTerminal: isTerminal(os.Stdout),
	}))
}

// run does what the arguments say and returns the exit code.
func run(args []string, s *surroundings) (code int) {
	defer func() {
		// kong ends the process after --help and --version; the panic of its Exit below brings that here.
		if r := recover(); r != nil {
			ended, ok := r.(ended)
			if !ok {
				panic(r)
			}
			code = int(ended)
		}
	}()
	parser, err := kong.New(&cli{},
		kong.Name("spillway"),
		kong.Description(description),
		kong.Vars{"version": "spillway " + s.version},
		kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { panic(ended(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
	)
	if err != nil {
		return s.fail(err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		s.complain("spillway: %v\nTry: spillway --help\n", err)
		return exitUsage
	}
	return s.fail(command.Run(s))
}

// fail prints what went wrong and returns the exit code that says so.
func (s *surroundings) fail(err error) int {
	var settings *config.Error
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &settings):
		for _, p := range settings.Problems {
			s.complain("%s\n", p)
		}
		return exitUsage
	case errors.As(err, &exit):
		if exit.text != "" {
			s.complain("spillway: %s\n", exit.text)
		}
		return exit.code
	}
	s.complain("spillway: %v\n", err)
	return exitFailure
}

// complain writes to standard error; when that is gone there is nobody left to tell.
func (s *surroundings) complain(format string, args ...any) {
	_, _ = fmt.Fprintf(s.err, format, args...)
}

// version is the module's version as the build recorded it, else the commit, else "devel".
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel " + s.Value[:12]
		}
	}
	return "devel"
}

// isTerminal reports whether a person watches the file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
