package rig

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Waits wait by the kernel's timers, to some ten microseconds. time.Sleep would make the downstream slower than it says
// it is: the runtime of an idle process waits in whole milliseconds, so that 10 ms become 10.7.
type Waits struct {
	mu   sync.Mutex
	idle []*kernelTimer
}

// kernelTimer is a timer whose end is read from a file, for which the runtime waits as for a network connection.
type kernelTimer struct {
	fd   int
	file *os.File
}

// NewWaits makes them; Close gives their files back.
func NewWaits() *Waits { return &Waits{} }

// Wait returns after d. It panics where the kernel refuses, which leaves nothing to measure.
func (w *Waits) Wait(d time.Duration) {
	t := w.take()
	var ended [8]byte // how often
	err := unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	if err == nil {
		_, err = t.file.Read(ended[:])
	}
	if err != nil {
		panic(fmt.Sprintf("wait %v: %v", d, err))
	}
	w.mu.Lock()
	w.idle = append(w.idle, t)
	w.mu.Unlock()
}

func (w *Waits) take() *kernelTimer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.idle); n > 0 {
		t := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return t
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		panic(fmt.Sprintf("make a timer: %v", err))
	}
	return &kernelTimer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}
}

// Close gives the timers back.
func (w *Waits) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.idle {
		_ = t.file.Close() // nobody reads it
	}
	w.idle = nil
}
