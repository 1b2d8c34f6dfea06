package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"spillway/internal/embed"
)

// Limits on waiting. A busy two-core machine starts a broker in 3 to 10 s.
const (
	startTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
	pollEvery    = 20 * time.Millisecond
	busyTimeout  = 15 * time.Second
)

// Process is one run of a server. Its methods may be called from several goroutines.
type Process struct {
	Spec Spec
	run  *embed.Process
}

// Start launches the server and waits until it serves requests. When it ends or does not answer in time, the error
// carries the last lines of its log, and nothing is left running.
func Start(ctx context.Context, spec Spec, life embed.Life) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	for {
		process, err := launch(spec, life)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", spec.Kind, err)
		}
		err = process.waitReady(ctx)
		if err == nil {
			return process, nil
		}
		_ = process.Kill()
		// The backends of a killed postmaster hold its shared memory for a moment, and the port of a killed server may
		// still be closing: only a server that ended by itself, early, is worth another try.
		if errors.Is(err, errEnded) && time.Since(began) < busyTimeout && ctx.Err() == nil && spec.used() {
			pause(ctx, 10*pollEvery)
			continue
		}
		return nil, fmt.Errorf("start %s: %w; the end of %s:\n%s", spec.Kind, err, spec.Log, spec.LogTail())
	}
}

// errEnded says that the server ended before it served a request.
var errEnded = errors.New("it ended before it was ready")

// used reports whether the server has run before on this data.
func (s Spec) used() bool {
	_, err := os.Stat(filepath.Join(s.Dir, usedMark))
	return err == nil
}

// usedMark is the file that marks a folder whose server has been ready once.
const usedMark = "spillway.used"

// launch starts the process.
func launch(spec Spec, life embed.Life) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	command.Dir = spec.Dir
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
	run, err := embed.Launch(command, spec.Owner, life, syscall.SIGKILL)
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, err
	}
	return &Process{Spec: spec, run: run}, nil
}

// waitReady polls the server until it answers, ends, or the context does.
func (p *Process) waitReady(ctx context.Context) error {
	var last error
	for {
		if last = p.Spec.probe(ctx); last == nil {
			return os.WriteFile(filepath.Join(p.Spec.Dir, usedMark), nil, 0o644)
		}
		select {
		case <-p.run.Done():
			return fmt.Errorf("%w (%w)", errEnded, p.run.Err())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", last)
		case <-time.After(pollEvery):
		}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.run.Done() }

// PID is the server's process id.
func (p *Process) PID() int { return p.run.PID() }

// Stop asks the server to end in order and waits; one that has not ended after 20 s is killed, which is an error.
func (p *Process) Stop() error {
	if err := p.run.Signal(p.Spec.StopSignal()); err != nil {
		return err
	}
	select {
	case <-p.run.Done():
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %v of signal %v", p.Spec.Kind, stopTimeout, p.Spec.StopSignal()), p.Kill())
	}
}

// Kill ends the server at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	err := p.run.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.run.Done()
	}
	return err
}

// Pause stops the server and its children with SIGSTOP: connections stay open and nobody answers.
func (p *Process) Pause() error { return p.signalTree(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *Process) Resume() error { return p.signalTree(syscall.SIGCONT) }

// signalTree sends to the server and its children, the parent first so that it cannot start more of them.
func (p *Process) signalTree(sig syscall.Signal) error {
	if err := p.run.Signal(sig); err != nil {
		return err
	}
	for _, child := range children(p.PID()) {
		if err := syscall.Kill(child, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v to a child of %s (process %d): %w", sig, p.Spec.Kind, child, err)
		}
	}
	return nil
}

// children returns the ids of the processes whose parent is pid. PostgreSQL's are all direct children.
func children(pid int) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var found []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// "pid (name) state ppid …", where the name may hold spaces and brackets.
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(after) < 2 || after[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, child)
		}
	}
	return found
}

// Runs reports whether the server that an earlier process started with this id still runs.
func Runs(spec Spec, pid int) bool { return pid > 0 && embed.CommandNames(pid, spec.Dir) }

// StopDetached ends a server that an earlier process started, in order and then by force. A process id that belongs to
// somebody else by now is left alone.
func StopDetached(ctx context.Context, spec Spec, pid int) error {
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{spec.StopSignal(), stopTimeout}, {syscall.SIGKILL, stopTimeout}} {
		if !Runs(spec, pid) {
			return nil
		}
		if err := syscall.Kill(pid, step.sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v to %s (process %d): %w", step.sig, spec.Kind, pid, err)
		}
		for end := time.Now().Add(step.wait); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, pollEvery) {
			if !Runs(spec, pid) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s (process %d) does not end", spec.Kind, pid)
}

// Answers reports whether the server serves requests now.
func Answers(ctx context.Context, spec Spec) bool { return spec.probe(ctx) == nil }

// pause waits for d or the end of the context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
