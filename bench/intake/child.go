package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"spillway/bench/rig"
)

// tally counts what a contender reads. It is for one goroutine at a time.
type tally struct {
	want           int
	records, bytes int
	headers        int
	first          time.Time
	full           chan struct{} // closed when everything was read
}

// add counts one record.
func (t *tally) add(bytes, headers int) {
	if t.records == 0 {
		t.first = time.Now()
	}
	t.records++
	t.bytes += bytes
	t.headers += headers
	if t.records == t.want {
		close(t.full)
	}
}

// check says whether all of it came, headers and all, and nothing twice.
func (t *tally) check() error {
	one := len(rig.Number(0)) + valueBytes
	for _, h := range headers {
		one += len(h.Key) + len(h.Value)
	}
	if t.records != t.want || t.bytes != t.want*one || t.headers != t.want*len(headers) {
		return fmt.Errorf("it read %d records of %d with %d bytes and %d headers: want %d records of %d bytes and %d headers each",
			t.records, t.want, t.bytes, t.headers, t.want, one, len(headers))
	}
	return nil
}

// child is a contender's process: it reads the topic to its end, rests there, and says what that took.
func child(ctx context.Context, o options) error {
	field, err := pick(o.contender)
	if err != nil {
		return err
	}
	stopProfile, err := profile(o.cpu, o.heap)
	if err != nil {
		return err
	}
	t := &tally{want: o.records, full: make(chan struct{})}
	began, before := time.Now(), usedCPU()
	running, stop := context.WithCancel(ctx)
	defer stop()
	client, err := field[0].start(running, target{
		broker: os.Getenv("SPILLWAY_TEST_KAFKA"), topic: o.topic, group: fmt.Sprintf("%s_%s_%d", o.topic, field[0].name, os.Getpid()),
	}, t)
	if err != nil {
		return err
	}
	select {
	case <-t.full:
	case err := <-client.ended:
		return errors.Join(errors.New("it ended before everything was read"), err)
	}
	r := reading{Seconds: time.Since(began).Seconds(), CPU: (usedCPU() - before).Seconds()}
	if err := stopProfile(); err != nil {
		return err
	}
	if r.Sockets, err = sockets(); err != nil {
		return err
	}
	if r.PeakRSS, err = peakRSS(); err != nil {
		return err
	}
	if o.idle > 0 {
		fetches, cpu := client.fetches(), usedCPU()
		if err := rig.Sleep(ctx, o.idle); err != nil {
			return err
		}
		r.IdleFetches, r.IdleCPU = client.fetches()-fetches, (usedCPU() - cpu).Seconds()
	}
	stop()
	if err := <-client.ended; err != nil {
		return err
	}
	r.First = t.first.Sub(began).Seconds()
	return errors.Join(t.check(), json.NewEncoder(os.Stdout).Encode(r))
}

// usedCPU is the processor time this process has used.
func usedCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is the most memory this process has held, in bytes. Getrusage would tell the parent's if that was more.
func peakRSS() (float64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			var kib float64
			if _, err := fmt.Sscanf(text, "%f kB", &kib); err != nil {
				return 0, err
			}
			return kib * 1024, nil
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}

// sockets counts this process's open sockets.
func sockets() (float64, error) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return float64(n), nil
}

// profile begins the profiles that have a file; what it returns ends them.
func profile(cpu, heap string) (stop func() error, err error) {
	stop = func() error { return nil }
	if cpu != "" {
		f, err := os.Create(cpu)
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		stop = func() error { pprof.StopCPUProfile(); return f.Close() }
	}
	if heap == "" {
		return stop, nil
	}
	endCPU := stop
	return func() error {
		f, err := os.Create(heap)
		if err != nil {
			return err
		}
		return errors.Join(endCPU(), pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
	}, nil
}
