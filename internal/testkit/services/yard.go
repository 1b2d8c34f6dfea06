package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"text/tabwriter"

	"spillway/internal/embed"
	"spillway/internal/testkit/server"
)

// yard is where the servers of one working tree stand.
type yard struct {
	dir       string // .services
	pom       string // names Kafka's jars
	ci        bool   // nothing may be left out
	full      bool   // as a measurement needs them, not as tests do
	out, errs io.Writer
}

// place is what the state file keeps about one kind of server.
type place struct {
	Spec   server.Spec
	PID    int
	Absent string `json:",omitempty"` // why it was left out
}

// state maps each kind to its server.
type state map[server.Kind]place

// lock waits until no other command works on this yard. The returned function lets the next one in.
func (y yard) lock() (func(), error) {
	if err := os.MkdirAll(y.dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(y.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// load reads the state; without a file, nothing has been started.
func (y yard) load() (state, error) {
	text, err := os.ReadFile(filepath.Join(y.dir, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return make(state), nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(y.dir, "state.json"), err)
	}
	return s, nil
}

// save writes the state whole or not at all.
func (y yard) save(s state) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(y.dir, "state.json")
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// runs reports whether the server is the one we started and serves requests.
func (p place) runs(ctx context.Context) bool {
	return server.Runs(p.Spec, p.PID) && server.Answers(ctx, p.Spec)
}

// up starts what does not run.
func (y yard) up(ctx context.Context) error {
	unlock, err := y.lock()
	if err != nil {
		return err
	}
	defer unlock()
	known, err := y.load()
	if err != nil {
		return err
	}
	var missing []server.Kind
	for _, kind := range server.Kinds() {
		if !known[kind].runs(ctx) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		if err := y.startAll(ctx, known, missing); err != nil {
			return err
		}
	}
	if _, err := y.show(ctx, known); err != nil {
		return err
	}
	return y.complain(known)
}

// startAll installs what the missing kinds need and starts them side by side.
func (y yard) startAll(ctx context.Context, known state, missing []server.Kind) error {
	absent := y.install(ctx, missing)
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex // guards known, of which before is a copy, and failed
		before = maps.Clone(known)
		failed error
	)
	for _, kind := range missing {
		old := before[kind]
		if reason := absent[kind]; reason != "" {
			mu.Lock()
			known[kind] = place{Absent: reason}
			mu.Unlock()
			continue
		}
		wait.Go(func() {
			fresh, err := y.start(ctx, kind, old)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				delete(known, kind)
				return
			}
			known[kind] = fresh
		})
	}
	wait.Wait()
	return errors.Join(failed, y.save(known))
}

// start clears what an earlier server of this kind left and starts a new one.
func (y yard) start(ctx context.Context, kind server.Kind, old place) (place, error) {
	if err := old.clear(ctx); err != nil {
		return place{}, err
	}
	dir, log := filepath.Join(y.dir, string(kind)), filepath.Join(y.dir, string(kind)+".log")
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(log)); err != nil {
		return place{}, err
	}
	spec, err := y.prepare(ctx, kind, dir, log)
	if err != nil {
		return place{}, fmt.Errorf("prepare %s: %w", kind, err)
	}
	process, err := server.Start(ctx, spec, embed.Detached)
	if err != nil {
		return place{}, err
	}
	return place{Spec: spec, PID: process.PID()}, nil
}

// prepare makes the data and the command line of a new server.
func (y yard) prepare(ctx context.Context, kind server.Kind, dir, log string) (server.Spec, error) {
	switch kind {
	case server.KindKafka:
		lib, err := server.KafkaLib()
		if err != nil {
			return server.Spec{}, err
		}
		return server.NewKafka(ctx, server.KafkaConfig{Dir: dir, Log: log, Lib: lib, Fast: !y.full})
	case server.KindRedis:
		return server.NewRedis(ctx, dir, log)
	case server.KindPostgres:
		return server.NewPostgres(ctx, dir, log, y.full)
	}
	return server.Spec{}, fmt.Errorf("unknown kind of server %q", kind)
}

// clear stops the server, when it is still ours, and deletes its data.
func (p place) clear(ctx context.Context) error {
	if p.PID == 0 {
		return nil
	}
	if err := server.StopDetached(ctx, p.Spec, p.PID); err != nil {
		return err
	}
	return os.RemoveAll(p.Spec.Dir)
}

// down stops everything that up started.
func (y yard) down(ctx context.Context) error {
	unlock, err := y.lock()
	if err != nil {
		return err
	}
	defer unlock()
	known, err := y.load()
	if err != nil {
		return err
	}
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex // guards known, of which before is a copy, and failed
		before = maps.Clone(known)
		failed error
	)
	for _, kind := range server.Kinds() {
		old := before[kind]
		wait.Go(func() {
			err := old.clear(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			delete(known, kind)
		})
	}
	wait.Wait()
	return errors.Join(failed, y.save(known))
}

// status shows what runs and reports whether everything does.
func (y yard) status(ctx context.Context) (bool, error) {
	known, err := y.load()
	if err != nil {
		return false, err
	}
	return y.show(ctx, known)
}

// show prints one line per server and reports whether all run.
func (y yard) show(ctx context.Context, known state) (bool, error) {
	all := true
	table := tabwriter.NewWriter(y.out, 0, 0, 2, ' ', 0)
	for _, kind := range server.Kinds() {
		p := known[kind]
		line := fmt.Sprintf("%s\tstopped", kind)
		switch {
		case p.Absent != "":
			line = fmt.Sprintf("%s\tleft out  %s", kind, p.Absent)
		case p.runs(ctx):
			line = fmt.Sprintf("%s\trunning   %s\tprocess %d, log %s", kind, p.Spec.URL(), p.PID, p.Spec.Log)
		case p.PID != 0:
			line = fmt.Sprintf("%s\tdown      it ended or does not answer, log %s", kind, p.Spec.Log)
		}
		all = all && p.runs(ctx)
		if _, err := fmt.Fprintln(table, line); err != nil {
			return false, err
		}
	}
	return all, table.Flush()
}

// complain is an error under CI when something was left out: a green run there must not hide skipped tests.
func (y yard) complain(known state) error {
	if !y.ci {
		return nil
	}
	var left error
	for _, kind := range server.Kinds() {
		if reason := known[kind].Absent; reason != "" {
			left = errors.Join(left, fmt.Errorf("%s is left out under CI: %s", kind, reason))
		}
	}
	return left
}

// env prints the export lines for what runs.
func (y yard) env(ctx context.Context) error {
	known, err := y.load()
	if err != nil {
		return err
	}
	names := map[server.Kind]string{
		server.KindKafka:    "SPILLWAY_TEST_KAFKA",
		server.KindRedis:    "SPILLWAY_TEST_REDIS",
		server.KindPostgres: "SPILLWAY_TEST_POSTGRES",
	}
	for _, kind := range server.Kinds() {
		if p := known[kind]; p.runs(ctx) {
			if _, err := fmt.Fprintf(y.out, "export %s='%s'\n", names[kind], p.Spec.URL()); err != nil {
				return err
			}
		}
	}
	lib, err := server.KafkaLib()
	if err != nil {
		return err
	}
	if !haveJars(lib) {
		return nil // a test that wants a broker of its own says that there is none
	}
	_, err = fmt.Fprintf(y.out, "export SPILLWAY_TEST_KAFKA_LIB='%s'\n", lib)
	return err
}
