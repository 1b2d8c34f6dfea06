package embed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a program that has been launched. A goroutine waits for it and ends with it. Its methods may be called
// from several goroutines.
type Process struct {
	command *exec.Cmd
	done    chan struct{} // closed when the program has ended
	err     error         // how it ended; read after done
}

// Life says whose death ends a program.
type Life int

// The two ways a program lives.
const (
	// Tied programs get the last signal from the kernel when this process ends, even by SIGKILL. Linux only.
	Tied Life = iota
	// Detached programs go on after this process.
	Detached
)

// Launch starts the command as the owner, in a session of its own: a Ctrl-C in the terminal reaches us alone, and we
// decide the order in which things end. A tied program gets the signal last when this process ends.
func Launch(command *exec.Cmd, owner Owner, life Life, last syscall.Signal) (*Process, error) {
	command.SysProcAttr = attr(owner, life, last)
	p := &Process{command: command, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel watches the thread that starts a tied program, not the process: it must live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := command.Start()
		started <- err
		if err == nil {
			p.err = command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the program's process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the program ended, nil when well. It waits until it has.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// ExitCode is the program's exit code, -1 when a signal ended it. It waits until it has ended.
func (p *Process) ExitCode() int {
	<-p.done
	return p.command.ProcessState.ExitCode()
}

// Signal sends to the program. One that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.command.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.PID(), err)
	}
	return nil
}
