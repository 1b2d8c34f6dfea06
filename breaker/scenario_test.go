package breaker

import (
	"encoding"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected transcripts in testdata")

// epoch is where the time of scenarios and models begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestBreakerFollowsItsScenarios replays testdata/*.txt. A line that starts with "> " is a command, "#" a remark; the
// other lines are what the command must print.
//
//	new Field=value ...        a breaker with that Config at time 0
//	at DURATION                go to that time
//	call RESULT [N]            N calls, one after the other, each answered at once
//	flow RATE DURATION RESULT  RATE calls a second for that long, each answered at once
//	allow NAME                 ask for one permit and keep it
//	done NAME RESULT           report it
//	force open|closed|observe|none [DURATION]
//	mode MODE
//	adopt Field=value ...      take over a record shared with others: fields of Record, Grounds and Adoption
//	show                       print the snapshot
func TestBreakerFollowsItsScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s: the transcript differs (go test -run Scenarios -update rewrites it)\n%s", file, firstDifference(string(want), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "(end)", "(end)"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a, b)
		}
	}
	return ""
}

// scenario is one breaker driven by commands.
type scenario struct {
	t       *testing.T
	out     strings.Builder
	b       *Breaker
	now     time.Duration
	permits map[string]Permit
}

func replay(t *testing.T, script string) string {
	t.Helper()
	s := &scenario{t: t}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		command, ok := strings.CutPrefix(line, "> ")
		switch {
		case ok:
			fmt.Fprintln(&s.out, line)
			s.run(strings.Fields(command))
		case line == "" || line[0] == '#':
			fmt.Fprintln(&s.out, line)
		}
	}
	return s.out.String()
}

func (s *scenario) run(f []string) {
	s.t.Helper()
	switch f[0] {
	case "new":
		s.now, s.permits = 0, map[string]Permit{}
		b, err := NewAt(epoch, Key{"wallet", "pay"}, parseConfig(s.t, f[1:]), rand.New(rand.NewPCG(1, 2)), s.event)
		if err != nil {
			s.t.Fatal(err)
		}
		s.b = b
	case "at":
		s.now = duration(s.t, f[1])
	case "call":
		n := 1
		if len(f) > 2 {
			n = number(s.t, f[2])
		}
		s.calls(n, 0, parseResult(s.t, f[1]))
	case "flow":
		gap := time.Second / time.Duration(number(s.t, strings.TrimSuffix(f[1], "/s")))
		s.calls(int(duration(s.t, f[2])/gap), gap, parseResult(s.t, f[3]))
	case "allow":
		p, ok := s.b.AllowAt(s.at())
		s.permits[f[1]] = p
		switch {
		case !ok:
			s.print("refused")
		case p.Probe():
			s.print("admitted as a probe")
		default:
			s.print("admitted")
		}
	case "done":
		s.b.DoneAt(s.at(), s.permits[f[1]], parseResult(s.t, f[2]))
	case "force":
		var force Force
		if err := force.UnmarshalText([]byte(f[1])); err != nil {
			s.t.Fatal(err)
		}
		lasts := time.Duration(0)
		if len(f) > 2 {
			lasts = duration(s.t, f[2])
		}
		if err := s.b.ForceAt(s.at(), force, lasts); err != nil {
			s.print("error: %v", err)
		}
	case "mode":
		if err := s.b.SetModeAt(s.at(), parseMode(s.t, f[1])); err != nil {
			s.print("error: %v", err)
		}
	case "adopt":
		a := Adoption{Valid: maxValid, SlotsFor: maxValid, Of: 1}
		for _, setting := range f[1:] {
			setField(s.t, setting, &a, &a.Record, &a.Why)
		}
		s.b.AdoptAt(s.at(), a)
	case "show":
		s.show()
	default:
		s.t.Fatalf("unknown command %q", f[0])
	}
}

func (s *scenario) at() time.Time { return epoch.Add(s.now) }

func (s *scenario) print(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *scenario) calls(n int, gap time.Duration, r Result) {
	admitted, probes := 0, 0
	for range n {
		if p, ok := s.b.AllowAt(s.at()); ok {
			admitted++
			if p.Probe() {
				probes++
			}
			s.b.DoneAt(s.at(), p, r)
		}
		s.now += gap
	}
	s.print("admitted %d of %d, %d as probes", admitted, n, probes)
}

func (s *scenario) event(e Event) {
	s.print("  event at %v: %s -> %s by %s (%s), generation %d", e.At.Sub(epoch), e.From, e.To, e.Reason, e.Source, e.Generation)
	if e.Samples > 0 {
		s.print("    %d failures, %d slow of %d in %v: rate %.3f, bound %.3f, threshold %v",
			e.Failures, e.Slow, e.Samples, e.Window, e.Rate, e.Bound, e.Threshold)
	}
	if e.Wait > 0 {
		s.print("    for %v", e.Wait)
	}
}

func (s *scenario) show() {
	v := s.b.SnapshotAt(s.at())
	s.print("%s, %s, forced %s, generation %d since %v", v.State, v.Mode, v.Force, v.Generation, v.Since.Sub(epoch))
	if !v.NextProbe.IsZero() {
		s.print("  next probe at %v", v.NextProbe.Sub(epoch))
	}
	s.print("  share %.2f, %d probes under way, %d failures in a row", v.Share, v.Probes, v.Streak)
	s.print("  failures %d/%d (%.3f, bound %.3f), slow %d/%d (%.3f, bound %.3f)", v.Failures, v.FailureSamples, v.FailureRate,
		v.FailureBound, v.SlowCalls, v.SlowSamples, v.SlowRate, v.SlowBound)
	c := v.Totals
	s.print("  totals: %d admitted, %d ok, %d failed, %d slow, %d ignored, %d stale, %d late, %d lost, %d opened, %d refused, %d would refuse",
		c.Admitted, c.Successes, c.Failures, c.Slow, c.Ignored, c.Stale, c.Late, c.Lost, c.Opened, c.Refused, c.WouldRefuse)
}

// parseConfig sets the named fields of a Config.
func parseConfig(t *testing.T, settings []string) Config {
	t.Helper()
	var c Config
	for _, setting := range settings {
		setField(t, setting, &c)
	}
	return c
}

// setField sets the field that a setting names in the first struct that has it.
func setField(t *testing.T, setting string, structs ...any) {
	t.Helper()
	name, value, _ := strings.Cut(setting, "=")
	var field reflect.Value
	for _, s := range structs {
		if field = reflect.ValueOf(s).Elem().FieldByName(name); field.IsValid() {
			break
		}
	}
	if !field.IsValid() {
		t.Fatalf("there is no field %q", name)
	}
	var err error
	switch to := field.Addr().Interface().(type) {
	case *Mode:
		*to = parseMode(t, value)
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(value))
	case *time.Duration:
		*to = duration(t, value)
	case *string:
		*to = value
	case *int:
		*to = number(t, value)
	case *uint64:
		*to, err = strconv.ParseUint(value, 10, 64)
	case *float64:
		*to, err = strconv.ParseFloat(value, 64)
	case *bool:
		*to, err = strconv.ParseBool(value)
	default:
		t.Fatalf("field %s has a type that scenarios cannot set", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func parseMode(t *testing.T, s string) Mode {
	t.Helper()
	for m := ModeEnforce; m.valid(); m++ {
		if m.String() == s {
			return m
		}
	}
	t.Fatalf("unknown mode %q", s)
	return 0
}

func parseResult(t *testing.T, s string) Result {
	t.Helper()
	for _, r := range []Result{Ignored, Success, Failure, Slow} {
		if r.String() == s {
			return r
		}
	}
	t.Fatalf("unknown result %q", s)
	return 0
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
