package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"spillway/breaker"
	"spillway/internal/breakersim"
	"spillway/internal/config"
	"spillway/worker"
)

// breakerCmd holds the commands about a breaker's settings.
type breakerCmd struct {
	Simulate breakerSimulateCmd `cmd:"" help:"Replay calls through a route's breaker: when it would have opened, why, and what other settings had done."`
}

// breakerSimulateCmd is spillway breaker simulate.
type breakerSimulateCmd struct {
	settingsFile

	Route    string   `placeholder:"NAME" help:"Route whose breaker is tried. May be left out where there is one."`
	Trace    string   `placeholder:"FILE" xor:"calls" required:"" help:"Recorded calls: a CSV file, or - for standard input."`
	Generate string   `placeholder:"SPEC" xor:"calls" required:"" help:"Made-up calls: phases of rate, for, fail, latency, slow and slow_latency."`
	Set      []string `placeholder:"KEY=VALUE" sep:"none" help:"Another setting to compare with; may be given up to 31 times."`
	Seed     uint64   `default:"1" help:"Seed of made-up calls and of the waits' jitter."`
	JSON     bool     `name:"json" help:"Print one JSON object."`
}

// Help is shown by spillway breaker simulate --help.
func (*breakerSimulateCmd) Help() string {
	return `Connects to nothing and reads the trace as a stream, whatever its length.

A trace is CSV. Its first line names the columns; time, latency and outcome must be there, in any order, others are passed
over. Lines are in the order in which the calls began.

  time,latency,outcome
  2026-11-30T10:00:00.120Z,18ms,SUCCEEDED
  2026-11-30T10:00:00.180Z,300ms,UNKNOWN

time is RFC 3339, or seconds since a beginning. outcome is a worker's outcome (SUCCEEDED, REJECTED, INVALID, OVERLOADED,
NOT_SENT, UNKNOWN, REFUSED, CANCELLED) or what a breaker is told (success, failure, slow, ignored).

Without a trace, calls are made up: phases with ; between them, where what a phase leaves out is as in the one before.

  spillway breaker simulate --generate 'rate=200,for=5m,fail=1%,latency=20ms; for=1m,fail=70%; for=5m,fail=1%'

Each --set is a line of the comparison: settings of the route's breaker, or such as downstream.slow, with commas between
those that belong together. Without any, a few are tried that are often wondered about.

  spillway breaker simulate --trace calls.csv --set failure_rate=30% --set wilson_z=1.96,minimum_calls=50

SAVED are refused calls that would have failed, LOST those that would have succeeded, FAILED ALL THE SAME the failures that
were let through. The breaker goes by its own evidence and enforces, whatever mode and scope the settings say. A service that
is spared would recover sooner than the trace knows.

Exit codes: 0 done, 1 the trace could not be read to its end, 2 for mistakes on the command line, in the settings or in the
trace.`
}

// usual are the settings that are tried when nobody names any.
func usual() []string {
	return []string{"failure_rate=30%", "failure_rate=70%", "minimum_calls=100", "consecutive=5", "wilson_z=1.96", "window=30s"}
}

// Run implements the command.
func (c *breakerSimulateCmd) Run(s *surroundings) error {
	sets := c.Set
	if len(sets) == 0 {
		sets = usual()
	}
	if len(sets) >= breakersim.MaxSettings {
		return usage("--set: %d of them: want at most %d", len(sets), breakersim.MaxSettings-1)
	}
	route, err := c.route(s, "")
	if err != nil {
		return err
	}
	settings := []breakersim.Setting{{Name: "as it is", Config: enforcing(route)}}
	for _, set := range sets {
		r, err := c.route(s, set)
		if _, ok := errors.AsType[*exitError](err); ok && len(c.Set) == 0 {
			continue // one of the usual that does not go with the rest of the settings
		}
		if err != nil {
			return err
		}
		settings = append(settings, breakersim.Setting{Name: set, Config: enforcing(r)})
	}
	source, done, err := c.source(s)
	if err != nil {
		return err
	}
	defer done()
	report, err := breakersim.Run(source, c.Seed, settings...)
	if bad, ok := errors.AsType[*breakersim.TraceError](err); ok {
		return usage("%v", bad)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		e := json.NewEncoder(s.out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Route string `json:"route"`
			*breakersim.Report
		}{route.Name, report})
	}
	if _, err := fmt.Fprintf(s.out, "route %s: ", route.Name); err != nil {
		return err
	}
	return report.Write(s.out)
}

// enforcing is a route's breaker as it would act: a mode that does not would make every simulation empty.
func enforcing(r *config.Route) breaker.Config {
	c := worker.BreakerConfig(r)
	c.Mode = breaker.ModeEnforce
	return c
}

// source opens the calls. The settings name no files here that would have to be there.
func (c *breakerSimulateCmd) source(s *surroundings) (from breakersim.Source, done func(), err error) {
	done = func() {}
	if c.Generate != "" {
		g, err := breakersim.Generate(c.Generate, c.Seed)
		if err != nil {
			return nil, nil, usage("--generate: %v", err)
		}
		return g, done, nil
	}
	name, text := c.Trace, s.in
	if c.Trace == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(c.Trace)
		if err != nil {
			return nil, nil, usage("--trace: %v", err)
		}
		done = func() { _ = f.Close() } // only read from
		text = f
	}
	trace, err := breakersim.NewCSV(name, bufio.NewReader(text))
	if err != nil {
		done()
		return nil, nil, usage("%v", err)
	}
	return trace, done, nil
}

// route reads the settings with one change, through the same check as everything else, and picks the route.
func (c *breakerSimulateCmd) route(s *surroundings, set string) (*config.Route, error) {
	data, err := readSettings(c.File)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(c.File, data, s.env)
	if err != nil {
		return nil, err
	}
	r, err := pickRoute(cfg, c.Route)
	if err != nil || set == "" {
		return r, err
	}
	env := append([]string(nil), s.env...)
	keys := map[string]string{} // by variable
	for part := range strings.SplitSeq(set, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.TrimSpace(value) == "" {
			return nil, usage("--set %s: want KEY=VALUE, such as failure_rate=30%%", set)
		}
		path := key
		if !strings.Contains(key, ".") {
			path = "breaker." + key
		}
		variable := "SPILLWAY_ROUTES_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(r.Name+"."+path))
		keys[variable] = key
		env = append(env, variable+"="+strings.TrimSpace(value))
	}
	changed, err := config.Parse(c.File, data, env)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		return nil, usage("--set %s: %s", set, problemsOf(wrong, keys))
	}
	if err != nil {
		return nil, err
	}
	return pickRoute(changed, c.Route)
}

// problemsOf says what is wrong in the words of the command line: the variables are none that anybody set.
func problemsOf(wrong *config.Error, keys map[string]string) string {
	lines := make([]string, 0, len(wrong.Problems))
	for _, p := range wrong.Problems {
		if key, ok := keys[p.Variable]; ok && p.Path == "" {
			lines = append(lines, key+" is not a setting of a route's breaker")
			continue
		}
		p.Variable, p.Line = "", 0
		p.File, p.Path = p.Path, ""
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "; ")
}

// readSettings reads the settings file, within the bound that the check has.
func readSettings(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // naming the file is the operator's right
	if err != nil {
		_, err = config.Load(path, nil) // says it as every command does
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	return io.ReadAll(io.LimitReader(f, 2<<20))
}

func pickRoute(cfg *config.Config, name string) (*config.Route, error) {
	names := make([]string, len(cfg.Routes))
	for i := range cfg.Routes {
		if names[i] = cfg.Routes[i].Name; names[i] == name || name == "" && len(cfg.Routes) == 1 {
			return &cfg.Routes[i], nil
		}
	}
	if name == "" {
		return nil, usage("--route: which one? the settings have %s", strings.Join(names, ", "))
	}
	return nil, usage("--route: %s is none of %s", name, strings.Join(names, ", "))
}
