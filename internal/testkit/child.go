package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"spillway/internal/embed"
)

// childEnv tells a test binary which of its children to be.
const childEnv = "SPILLWAY_TEST_CHILD"

// Main runs the tests, or, in a process started by Child, the named child function instead; its result is the exit
// code. Call it from TestMain and do nothing else there.
func Main(m *testing.M, children map[string]func() int) {
	name, isChild := os.LookupEnv(childEnv)
	if !isChild {
		os.Exit(m.Run())
	}
	child, known := children[name]
	if !known {
		_, _ = fmt.Fprintf(os.Stderr, "no child named %q in this test binary\n", name)
		os.Exit(2)
	}
	os.Exit(child())
}

// Proc is the test binary running as a child process. Its methods may be called from any goroutine.
type Proc struct {
	t      testing.TB
	name   string
	run    *embed.Process
	output *output
}

// output collects what a child prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Child starts the test binary again as the named child of Main, with env ("KEY=value") added to the environment, of which
// it gets no SPILLWAY_ setting. It is killed when the test ends, and when the test binary does.
func Child(t testing.TB, name string, env ...string) *Proc {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatalf("child %s: %v", name, err)
	}
	return start(t, name, exec.Command(program), append(slices.Clip(env), childEnv+"="+name))
}

// Command starts a program with env ("KEY=value") added to the environment, of which it gets no SPILLWAY_ setting. It is
// killed when the test ends, and when the test binary does.
func Command(t testing.TB, program string, args, env []string) *Proc {
	t.Helper()
	return start(t, filepath.Base(program), exec.Command(program, args...), env)
}

func start(t testing.TB, name string, command *exec.Cmd, env []string) *Proc {
	t.Helper()
	p := &Proc{t: t, name: name, output: &output{}}
	command.Env = slices.Concat(inherited(), env)
	command.Stdout, command.Stderr = p.output, p.output
	command.WaitDelay = time.Second // what the child leaves running may hold its output open
	var err error
	if p.run, err = embed.Launch(command, embed.Owner{}, embed.Tied, syscall.SIGKILL); err != nil {
		t.Fatalf("child %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("child %s (process %d) printed:\n%s", name, p.PID(), tail(p.Output()))
		}
	})
	return p
}

// inherited is the environment of this process without the settings in it: somebody who tests may have exported the addresses
// of servers of his own, and a test's worker must not go there.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "SPILLWAY_") && !strings.HasPrefix(v, "SPILLWAY_TEST_") && !strings.HasPrefix(v, embed.BinEnv+"=")
	})
}

// Kill ends the child with SIGKILL and waits until it is gone. It may have ended before.
func (p *Proc) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.run.Done()
}

// Signal sends to the child unless it has ended.
func (p *Proc) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.run.Signal(sig); err != nil {
		p.t.Errorf("child %s: %v", p.name, err)
	}
}

// Wait returns the child's exit code, -1 when a signal ended it. A child that has not ended in time fails the test and
// is killed.
func (p *Proc) Wait(timeout time.Duration) int {
	p.t.Helper()
	select {
	case <-p.run.Done():
	case <-time.After(timeout):
		p.t.Errorf("child %s has not ended within %v", p.name, timeout)
		p.Kill()
	}
	return p.run.ExitCode()
}

// Done is closed when the child has ended.
func (p *Proc) Done() <-chan struct{} { return p.run.Done() }

// PID is the child's process id.
func (p *Proc) PID() int { return p.run.PID() }

// Output is what the child has printed so far, on standard output and standard error.
func (p *Proc) Output() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.text.String()
}

// tail keeps the last lines of a long text.
func tail(text string) string {
	const lines = 60
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
