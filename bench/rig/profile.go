package rig

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"
)

// CPU is the processor time this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Profile begins the profiles that have a file; what it returns ends them.
func Profile(cpu, block, allocs string) (stop func() error, err error) {
	var ends []func() error
	if cpu != "" {
		f, err := os.Create(cpu)
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		ends = append(ends, func() error { pprof.StopCPUProfile(); return f.Close() })
	}
	if block != "" {
		runtime.SetBlockProfileRate(10_000)
		runtime.SetMutexProfileFraction(20)
		ends = append(ends, func() error { return errors.Join(dump("block", block), dump("mutex", block+".mutex")) })
	}
	if allocs != "" {
		ends = append(ends, func() error { return dump("allocs", allocs) })
	}
	return func() error {
		var all error
		for _, end := range ends {
			all = errors.Join(all, end())
		}
		return all
	}, nil
}

func dump(kind, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup(kind).WriteTo(f, 0), f.Close())
}
