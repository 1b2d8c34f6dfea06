package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllowAndDoneAllocateNothing(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	closed := newAt(t, Config{SlowCall: time.Second})
	open := newAt(t, Config{})
	if err := open.ForceAt(epoch, ForceOpen, time.Hour); err != nil {
		t.Fatal(err)
	}
	ramping := newAt(t, Config{ConsecutiveFailures: 1, RampStart: 0.9, RampFactor: 1.01, RampStep: time.Minute, OpenJitter: -1})
	p, _ := ramping.AllowAt(epoch)
	ramping.DoneAt(epoch, p, Failure)
	now := epoch.Add(30 * time.Second)
	call := func(b *Breaker) func() {
		return func() {
			now = now.Add(time.Millisecond)
			if p, ok := b.AllowAt(now); ok {
				b.DoneAt(now, p, Success)
			}
		}
	}
	for name, f := range map[string]func(){
		"a call while closed":  call(closed),
		"a call while open":    call(open),
		"a call while ramping": call(ramping),
		"a call on the clock": func() {
			if p, ok := closed.Allow(); ok {
				closed.Done(p, Failure)
			}
		},
		"ready": func() { open.ReadyAt(now) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times, want none", name, n)
		}
	}
	if s := ramping.SnapshotAt(now); s.State != HalfOpen {
		t.Errorf("the ramping breaker is %s: its allocations were not measured half-open", s.State)
	}
}

// TestClockFormsFollowVirtualTime runs the forms that read the clock, in a bubble whose clock the test moves.
func TestClockFormsFollowVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []string
		b, err := New(Key{"wallet", "pay"}, Config{SlowCall: time.Second, SlowMinCalls: 2, OpenJitter: -1}, nil, func(e Event) {
			events = append(events, fmt.Sprintf("%s>%s %s", e.From, e.To, e.Reason))
		})
		if err != nil {
			t.Fatal(err)
		}
		if b.Key() != (Key{"wallet", "pay"}) || !b.Ready() {
			t.Fatalf("%s: a new breaker is not ready", b.Key())
		}
		for range 2 {
			p, ok := b.Allow()
			if !ok || p.Probe() || p.Generation() != 0 {
				t.Fatalf("permit of a closed breaker: ok %v, probe %v, generation %d", ok, p.Probe(), p.Generation())
			}
			time.Sleep(1100 * time.Millisecond)
			b.Done(p, Success)
		}
		if _, ok := b.Allow(); ok || b.Ready() {
			t.Error("two slow calls of two did not open it")
		}
		time.Sleep(30 * time.Second)
		if !b.Ready() {
			t.Error("not ready after the open wait")
		}
		probe, ok := b.Allow()
		if !ok || !probe.Probe() || b.Ready() {
			t.Errorf("after the wait: ok %v, probe %v, ready for another %v", ok, probe.Probe(), b.Ready())
		}
		if err := b.Force(ForceClosed, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := b.SetMode(ModeDisabled); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s := b.Snapshot()
		if s.State != Closed || s.Mode != ModeDisabled || s.Force != ForceNone {
			t.Errorf("after the force: %s, %s, forced %s", s.State, s.Mode, s.Force)
		}
		want := "closed>open slow-rate, open>half-open wait-over, half-open>closed forced, closed>closed force-ended"
		if got := strings.Join(events, ", "); got != want {
			t.Errorf("events\n got %s\nwant %s", got, want)
		}
	})
}

func TestReadyTellsWhatAllowWouldAnswer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rnd := seeded(seed)
		var shape [6]byte
		for i := range shape {
			shape[i] = byte(rnd.Uint32())
		}
		b := newAt(t, fuzzConfig(shape))
		now := epoch
		for i := range 500 {
			now = now.Add(time.Duration(rnd.IntN(300)) * time.Millisecond)
			ready := b.ReadyAt(now)
			p, ok := b.AllowAt(now)
			if ready != ok {
				t.Fatalf("seed %d, step %d: ready %v, admitted %v in %+v", seed, i, ready, ok, b.SnapshotAt(now))
			}
			if ok && rnd.IntN(4) > 0 {
				b.DoneAt(now, p, Result(rnd.IntN(4)))
			}
		}
	}
}

func TestListenerMayCallTheBreaker(t *testing.T) {
	t.Parallel()
	var b *Breaker
	var states []State
	b, err := NewAt(epoch, Key{}, Config{ConsecutiveFailures: 1}, nil, func(e Event) {
		states = append(states, b.SnapshotAt(e.At).State)
	})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := b.AllowAt(epoch)
	b.DoneAt(epoch, p, Failure)
	if len(states) != 1 || states[0] != Open {
		t.Errorf("the listener saw %v, want one open breaker", states)
	}
}

func TestOpenWaitStaysWithinItsJitterAndCap(t *testing.T) {
	t.Parallel()
	var waits []time.Duration
	cfg := Config{ConsecutiveFailures: 1, ProbeFailures: 1, OpenWait: 10 * time.Second, OpenGrowth: 2, OpenWaitMax: time.Minute}
	distinct := map[int64]bool{}
	for seed := range uint64(100) {
		waits = waits[:0]
		b, err := NewAt(epoch, Key{}, cfg, seeded(seed), func(e Event) {
			if e.To == Open {
				waits = append(waits, e.Wait)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for now := epoch; len(waits) < 6; now = now.Add(time.Second) {
			if p, ok := b.AllowAt(now); ok {
				b.DoneAt(now, p, Failure)
			}
		}
		for i, seconds := range []float64{10, 20, 40, 60, 60, 60} {
			base := time.Duration(seconds * float64(time.Second))
			if low, high := base*8/10, base*12/10; waits[i] < low || waits[i] > high {
				t.Errorf("seed %d: wait %d is %v, want %v to %v", seed, i, waits[i], low, high)
			}
		}
		distinct[waits[0].Nanoseconds()] = true
	}
	if len(distinct) < 90 {
		t.Errorf("100 breakers drew only %d different waits", len(distinct))
	}
}

// TestConcurrentCallsKeepTheCountsTrue is for the race detector, and checks that no call is lost or counted twice.
func TestConcurrentCallsKeepTheCountsTrue(t *testing.T) {
	t.Parallel()
	b, err := New(Key{}, Config{OpenWait: time.Millisecond, OpenWaitMax: 2 * time.Millisecond, RampStep: time.Millisecond, SlowCall: time.Hour}, nil,
		func(Event) {})
	if err != nil {
		t.Fatal(err)
	}
	const workers, calls = 8, 3000
	var admitted, refused, reported atomic.Uint64
	var wg sync.WaitGroup
	for w := range workers {
		rnd := rand.New(rand.NewPCG(uint64(w), 1))
		wg.Go(func() {
			for i := range calls {
				p, ok := b.Allow()
				if !ok {
					refused.Add(1)
					continue
				}
				admitted.Add(1)
				if rnd.IntN(200) == 0 {
					continue // never reported
				}
				result := Success
				if i/500%2 == 0 && rnd.IntN(3) > 0 {
					result = Failure
				}
				b.Done(p, result)
				reported.Add(1)
				if i%100 == 0 {
					b.Snapshot()
				}
			}
		})
	}
	wg.Wait()
	c := b.Snapshot().Totals
	if c.Admitted != admitted.Load() || c.Refused != refused.Load() || c.Successes+c.Failures != reported.Load() {
		t.Errorf("totals %+v, want %d admitted, %d refused, %d reported", c, admitted.Load(), refused.Load(), reported.Load())
	}
	if c.Opened == 0 {
		t.Error("it never opened: half-open was not exercised")
	}
}

func TestZeroPermitIsDropped(t *testing.T) {
	t.Parallel()
	b := newAt(t, Config{ConsecutiveFailures: 1})
	b.DoneAt(epoch, Permit{}, Failure)
	if s := b.SnapshotAt(epoch); s.State != Closed || s.Totals != (Totals{}) {
		t.Errorf("a permit that was never given changed the breaker: %+v", s)
	}
}

func TestTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	b := newAt(t, Config{ConsecutiveFailures: 1, OpenJitter: -1})
	late := epoch.Add(time.Hour)
	p, _ := b.AllowAt(late)
	b.DoneAt(late, p, Failure)
	if _, ok := b.AllowAt(epoch); ok {
		t.Error("an earlier moment was admitted while open")
	}
	if s := b.SnapshotAt(epoch); !s.Since.Equal(late) || !s.NextProbe.Equal(late.Add(30*time.Second)) {
		t.Errorf("open since %v until %v, want %v and half a minute", s.Since, s.NextProbe, late)
	}
}

func TestConfigNamesEachFieldItRefuses(t *testing.T) {
	t.Parallel()
	if err := (Config{}).Validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Mode: 9}, "Mode is 9, accepted: enforce, alert, observe or disabled"},
		{Config{FailureWindow: 1500 * time.Millisecond}, "FailureWindow is 1.5s, accepted: whole seconds, 1s to 5m"},
		{Config{FailureWindow: 6 * time.Minute}, "FailureWindow is 6m0s, accepted: whole seconds, 1s to 5m"},
		{Config{FailureRate: 1.5}, "FailureRate is 1.5, accepted: more than 0, at most 1, or negative for off"},
		{Config{FailureRate: 1, Z: 2}, "FailureRate is 1, accepted: more than 0 and less than 1 while Z is set, or negative for off"},
		{Config{FailureMinCalls: -1}, "FailureMinCalls is -1, accepted: 1 to 1000000"},
		{Config{SlowCall: -1}, "SlowCall is -1ns, accepted: 0s (durations are not looked at) or more"},
		{Config{SlowWindow: time.Millisecond}, "SlowWindow is 1ms, accepted: whole seconds, 1s to 5m"},
		{Config{SlowRate: 2}, "SlowRate is 2, accepted: more than 0, at most 1, or negative for off"},
		{Config{SlowMinCalls: 2_000_000}, "SlowMinCalls is 2000000, accepted: 1 to 1000000"},
		{Config{ConsecutiveFailures: 2_000_000}, "ConsecutiveFailures is 2000000, accepted: 1 to 1000000, or negative for off"},
		{Config{Z: 6}, "Z is 6, accepted: 0 to 5"},
		{Config{OpenWait: time.Microsecond}, "OpenWait is 1µs, accepted: 1ms to 24h"},
		{Config{OpenJitter: 1}, "OpenJitter is 1, accepted: more than 0 and less than 1, or negative for none"},
		{Config{OpenGrowth: 0.5}, "OpenGrowth is 0.5, accepted: 1 to 10"},
		{Config{OpenWaitMax: time.Second}, "OpenWaitMax is 1s, accepted: 30s to 24h"},
		{Config{FirstProbes: 101}, "FirstProbes is 101, accepted: 1 to 100"},
		{Config{ProbesInFlight: 17}, "ProbesInFlight is 17, accepted: 1 to 16"},
		{Config{ProbeFailures: -2}, "ProbeFailures is -2, accepted: 1 to 100"},
		{Config{RampStart: 1.1}, "RampStart is 1.1, accepted: more than 0, at most 1"},
		{Config{RampFactor: 1}, "RampFactor is 1, accepted: 1.01 to 100"},
		{Config{RampStep: time.Hour}, "RampStep is 1h0m0s, accepted: 1ms to 10m"},
		{Config{RampMinCalls: -1}, "RampMinCalls is -1, accepted: 1 to 1000000"},
		{Config{SuccessesToClose: -1}, "SuccessesToClose is -1, accepted: 0 to 1000"},
		{Config{PermitDeadline: time.Hour}, "PermitDeadline is 1h0m0s, accepted: 1ms to 10m"},
		{
			Config{FailureRate: -1, SlowRate: -1, ConsecutiveFailures: -1},
			"FailureRate, SlowRate and ConsecutiveFailures is all off, accepted: at least one rule, or mode disabled",
		},
	} {
		err := c.cfg.Validate()
		if _, ok := errors.AsType[*FieldError](err); !ok || err.Error() != "breaker: "+c.want {
			t.Errorf("Validate says %q, want %q", err, "breaker: "+c.want)
		}
		if _, err := New(Key{"wallet", "pay"}, c.cfg, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "breaker wallet/pay: ") {
			t.Errorf("New accepts what Validate refuses, or does not say for what: %v", err)
		}
	}
	err := Config{OpenGrowth: 0.5, FirstProbes: 101, Z: -1}.Validate()
	if n := strings.Count(err.Error(), "accepted"); n != 3 {
		t.Errorf("three bad fields are reported as %d:\n%v", n, err)
	}
}

func TestBadOrdersAreRefused(t *testing.T) {
	t.Parallel()
	b := newAt(t, Config{})
	for name, err := range map[string]error{
		"mode":           b.SetModeAt(epoch, 7),
		"force":          b.ForceAt(epoch, 7, time.Second),
		"endless force":  b.ForceAt(epoch, ForceOpen, 0),
		"too long force": b.ForceAt(epoch, ForceClosed, 1000*time.Hour),
	} {
		if _, ok := errors.AsType[*FieldError](err); !ok {
			t.Errorf("%s: %v, want a field error", name, err)
		}
	}
	if s := b.SnapshotAt(epoch); s.Generation != 0 || s.Mode != ModeEnforce {
		t.Errorf("a refused order changed the breaker: %+v", s)
	}
}

func TestNamesAreDistinctAndBounded(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][]string{
		"State":  {Closed.String(), Open.String(), HalfOpen.String()},
		"Mode":   {ModeEnforce.String(), ModeAlert.String(), ModeObserve.String(), ModeDisabled.String()},
		"Result": {Ignored.String(), Success.String(), Failure.String(), Slow.String()},
		"Force":  {ForceNone.String(), ForceOpen.String(), ForceClosed.String()},
		"Source": {SourceLocal.String(), SourceForced.String()},
		"Reason": reasonNames(),
	} {
		seen := map[string]bool{"invalid": true}
		for _, s := range names {
			if seen[s] {
				t.Errorf("%s has %q twice, or no name for a value", name, s)
			}
			seen[s] = true
		}
	}
	for _, s := range []string{State(9).String(), Mode(9).String(), Result(9).String(), Force(9).String(), Source(9).String(), Reason(99).String()} {
		if s != "invalid" {
			t.Errorf("a value outside the set is called %q", s)
		}
	}
}

func reasonNames() (names []string) {
	for r := ReasonNone; r <= ReasonDisabled; r++ {
		names = append(names, r.String())
	}
	return names
}
