package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// measurement is how one loop is timed.
type measurement struct {
	slice    time.Duration // about how long one measurement lasts
	parallel bool
}

// one runs the loop n times and returns nanoseconds per call. A serial loop is timed by the processor time of its
// thread, so that what else the machine does is not counted; parallel ones can only be timed by the clock on the wall.
func (m measurement) one(run loop, n int, admits bool) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !m.parallel {
		before, err := threadTime()
		if err != nil {
			return 0, err
		}
		admitted := run(n)
		after, err := threadTime()
		if err != nil {
			return 0, err
		}
		return float64(after-before) / float64(n), checkAdmitted(admitted, n, admits)
	}
	cores := runtime.GOMAXPROCS(0)
	each := max(n/cores, 1)
	admitted := make([]int, cores)
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(cores)
	for i := range cores {
		done.Go(func() {
			ready.Done()
			<-gate
			admitted[i] = run(each)
		})
	}
	ready.Wait()
	start := time.Now()
	close(gate)
	done.Wait()
	took := time.Since(start)
	for _, a := range admitted {
		if err := checkAdmitted(a, each, admits); err != nil {
			return 0, err
		}
	}
	return float64(took.Nanoseconds()) / float64(each*cores), nil
}

func checkAdmitted(admitted, n int, admits bool) error {
	if admits && admitted != n || !admits && admitted != 0 {
		return fmt.Errorf("%d of %d calls were admitted", admitted, n)
	}
	return nil
}

// fit finds how many calls make a slice.
func (m measurement) fit(run loop, admits bool) (int, error) {
	for n := 1000; ; n *= 2 {
		took, err := m.one(run, n, admits)
		if err != nil {
			return 0, err
		}
		if total := time.Duration(took * float64(n)); total >= m.slice/4 || n > 1<<28 {
			return max(int(float64(m.slice)/took), 1), nil
		}
	}
}

// allocations returns how many allocations a call makes, rounded down as testing does.
func allocations(run loop) int64 {
	const n = 10_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run(1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(n)
	runtime.ReadMemStats(&after)
	return int64((after.Mallocs - before.Mallocs) / n)
}

// threadTime is the processor time that this thread has had.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
