package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits on waiting. A busy two-core machine starts a broker in 3 to 10 s.
const (
	startTimeout = 90 * time.Second
	stopTimeout  = 20 * time.Second
	pollEvery    = 20 * time.Millisecond
	busyTimeout  = 15 * time.Second
)

// Life says whose death ends a server.
type Life int

// The two ways a server lives.
const (
	// Tied servers are killed by the kernel when this process ends, however it ends.
	Tied Life = iota
	// Detached servers go on after this process; somebody stops them by their id.
	Detached
)

// Process is one run of a server. Its methods may be called from several goroutines.
type Process struct {
	Spec Spec
	PID  int
	done chan struct{} // closed when the process has ended
	err  error         // how it ended; read after done
}

// Start launches the server and waits until it serves requests. When it ends or does not answer in time, the error
// carries the last lines of its log, and nothing is left running.
func Start(ctx context.Context, spec Spec, life Life) (*Process, error) {
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

// usedMark is the file that marks a folder whose server has been ready once. PostgreSQL ignores names it doesn't know.
const usedMark = "spillway.used"

// launch starts the process and a goroutine that waits for it and ends with it.
func launch(spec Spec, life Life) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	command.Dir = filepath.Dir(spec.Dir)
	if spec.Owner.Drop {
		command.Dir = spec.Dir
	}
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
	command.SysProcAttr = spec.Owner.Attr(life == Tied, syscall.SIGKILL)

	process := &Process{Spec: spec, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel watches the thread that starts a tied process, so the thread must live as long as it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(process.done)
		err := errors.Join(command.Start(), log.Close())
		if command.Process != nil {
			process.PID = command.Process.Pid
		}
		started <- err
		if err == nil {
			process.err = command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return process, nil
}

// waitReady polls the server until it answers, ends, or the context does.
func (p *Process) waitReady(ctx context.Context) error {
	var last error
	for {
		if last = p.Spec.probe(ctx); last == nil {
			return os.WriteFile(filepath.Join(p.Spec.Dir, usedMark), nil, 0o644)
		}
		select {
		case <-p.done:
			return fmt.Errorf("%w (%w)", errEnded, p.err)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", last)
		case <-time.After(pollEvery):
		}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the server to end in order and waits; one that has not ended after 20 s is killed, which is an error.
func (p *Process) Stop() error {
	if err := p.signal(p.Spec.StopSignal()); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s did not end within %v of signal %v", p.Spec.Kind, stopTimeout, p.Spec.StopSignal()), p.Kill())
	}
}

// Kill ends the server at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	err := p.signal(syscall.SIGKILL)
	if err == nil {
		<-p.done
	}
	return err
}

// signal sends to the server unless it has ended, which is no error.
func (p *Process) signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %v to %s (process %d): %w", sig, p.Spec.Kind, p.PID, err)
	}
	return nil
}

// Pause stops the server and its children with SIGSTOP: connections stay open and nobody answers.
func (p *Process) Pause() error { return p.signalTree(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *Process) Resume() error { return p.signalTree(syscall.SIGCONT) }

// signalTree sends to the server and its children, the parent first so that it cannot start more of them.
func (p *Process) signalTree(sig syscall.Signal) error {
	if err := p.signal(sig); err != nil {
		return err
	}
	for _, child := range children(p.PID) {
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

// Adopt returns the run of a detached server that an earlier process started, and false when it no longer runs: the
// process id is gone, or belongs to somebody whose command line does not name the server's folder.
func Adopt(spec Spec, pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil && errors.Is(err, os.ErrNotExist) {
		if _, noProc := os.Stat("/proc/self"); noProc != nil {
			text, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
		}
	}
	return err == nil && strings.Contains(string(text), spec.Dir)
}

// StopDetached ends a server that an earlier process started, in order and then by force. A process id that belongs to
// somebody else by now is left alone.
func StopDetached(ctx context.Context, spec Spec, pid int) error {
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{spec.StopSignal(), stopTimeout}, {syscall.SIGKILL, stopTimeout}} {
		if !Adopt(spec, pid) {
			return nil
		}
		if err := syscall.Kill(pid, step.sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v to %s (process %d): %w", step.sig, spec.Kind, pid, err)
		}
		for end := time.Now().Add(step.wait); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, pollEvery) {
			if !Adopt(spec, pid) {
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
