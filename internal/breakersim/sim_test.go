package breakersim

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"spillway/breaker"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: go test ./internal/breakersim -update rewrites it\ngot\n%s\nwant\n%s", path, got, want)
	}
}

func TestReplaysAreAsWritten(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		spec     string
		settings []Setting
	}{
		"outage": {"rate=100,for=30s,fail=1%,latency=20ms; for=60s,fail=100%,latency=300ms; for=90s,fail=1%,latency=20ms", []Setting{
			{"as it is", breaker.Config{}},
			{"no consecutive", breaker.Config{ConsecutiveFailures: -1}},
			{"short wait", breaker.Config{OpenWait: 5 * time.Second}},
		}},
		"noise": {"rate=20,for=10m,fail=45%", []Setting{
			{"as it is", breaker.Config{}}, {"z=1.96", breaker.Config{Z: 1.96}}, {"z=2.58", breaker.Config{Z: 2.58}},
		}},
		"slow": {"rate=50,for=30s,slow=0%; slow=80%,for=30s; slow=0%,for=2m", []Setting{
			{"as it is", breaker.Config{SlowCall: 200 * time.Millisecond}}, {"slow off", breaker.Config{SlowRate: -1}},
		}},
		"well": {"rate=50,for=1m,fail=2%", []Setting{{"as it is", breaker.Config{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := Generate(x.spec, 1)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(g, 1, x.settings...)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := r.Write(&out); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", out.Bytes())
			for _, tried := range r.Tried {
				if tried.Saved+tried.Lost != tried.Refused { // no call of these traces is ignored
					t.Errorf("%+v", tried)
				}
			}
		})
	}
}

const recorded = "\ufefforder,time,latency,outcome\r\n" +
	"A-1,2026-11-30T10:00:00Z,10ms,SUCCEEDED\r\n" +
	"\"A,2\",2026-11-30T10:00:00.5Z,1s,UNKNOWN\r\n" +
	"\"A\"\"3\",2026-11-30T11:00:01+01:00,\"10ms\",not_sent\r\n" +
	"\r\n" +
	"A-4,2026-11-30T10:00:02.25Z,0s,Failure\r\n" +
	"A-5,2026-11-30T10:00:03Z,1ms,CANCELLED\r\n" +
	"A-6,2026-11-30T10:00:04Z,1ms,REJECTED\r\n" +
	"A-7,2026-11-30T10:01:00Z,1ms,REJECTED\r\n"

func TestRecordedTraceOpensTheBreakerWhenItsThirdFailureEnds(t *testing.T) {
	t.Parallel()
	trace, err := NewCSV("trace.csv", strings.NewReader(recorded))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(trace, 1, Setting{"three", breaker.Config{ConsecutiveFailures: 3, OpenJitter: -1}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "recorded.json", append(got, '\n'))
	// The second began at 0.5 s and failed at 1.5 s; the fourth, at 2.25 s, was the third in a row.
	if m := r.Moves[0]; m.After != 2.25 || m.Rule != "consecutive-failures" || m.Samples != 3 {
		t.Errorf("%+v", m)
	}
	if tally := r.Tried[0]; tally.Refused != 2 || tally.Lost != 1 || tally.Saved != 0 || tally.Failed != 3 {
		t.Errorf("%+v", tally)
	}
}

func TestTraceMistakesNameLineColumnValueAndWhatIsAccepted(t *testing.T) {
	t.Parallel()
	head := "time,latency,outcome\n"
	for text, want := range map[string]string{
		"":                                  "t.csv:1:1: is empty; accepted: a first line that names the columns: time,latency,outcome",
		"1,2ms,success\n":                   "t.csv:1:1: names no column time; accepted: a first line that names the columns: time,latency,outcome",
		"time,latency\n":                    "t.csv:1:1: names no column outcome; accepted: a first line that names the columns: time,latency,outcome",
		"time,latency,outcome,time\n":       `t.csv:1:22: "time" is there twice; accepted: a first line that names the columns: time,latency,outcome`,
		head + "1,2ms\n":                    "t.csv:2:1: has 2 columns; accepted: 3, as the first line has",
		head + "yesterday,2ms,success\n":    `t.csv:2:1: time: "yesterday" is no time; accepted: ` + acceptTime,
		head + "-1,2ms,success\n":           `t.csv:2:1: time: "-1" is no time; accepted: ` + acceptTime,
		head + "NaN,2ms,success\n":          `t.csv:2:1: time: "NaN" is no time; accepted: ` + acceptTime,
		head + "1,20,success\n":             `t.csv:2:3: latency: "20" is no latency; accepted: ` + acceptLatency,
		head + "1,-2ms,success\n":           `t.csv:2:3: latency: "-2ms" is no latency; accepted: ` + acceptLatency,
		head + "1,,success\n":               "t.csv:2:3: latency: is empty; accepted: " + acceptLatency,
		head + "\n1,2ms,fine\n":             `t.csv:3:7: outcome: "fine" is no outcome; accepted: ` + acceptOutcome,
		head + "2,2ms,success\n1,2ms,ok\n":  `t.csv:3:1: time: "1" is before the line above; accepted: lines in the order in which the calls began`,
		head + "1,\"2ms,success\n":          `t.csv:2:3: begins with a quote that does not end before the comma; accepted: quotes around a whole field, "" for a quote within`,
		head + strings.Repeat("x", maxLine): fmt.Sprintf("t.csv:2:1: is too long; accepted: lines of less than %d bytes", maxLine),
	} {
		trace, err := NewCSV("t.csv", strings.NewReader(text))
		for err == nil {
			_, err = trace.Next()
		}
		var bad *TraceError
		if !errors.As(err, &bad) || err.Error() != want {
			t.Errorf("%.60q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestTraceWithoutCallsIsNone(t *testing.T) {
	t.Parallel()
	trace, err := NewCSV("t.csv", strings.NewReader("time,latency,outcome\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(trace, 1, Setting{"x", breaker.Config{}}); !errors.Is(err, errNoCalls) {
		t.Errorf("error %v", err)
	}
}

func TestMistakesInASpecificationAreRefused(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":                    `phase 1: "" is not known`,
		"rate=10":             "phase 1: does not say for how long",
		"rate=0,for=1s":       `phase 1: "rate=0" is no rate`,
		"rate=NaN,for=1s":     `phase 1: "rate=NaN" is no rate`,
		"for=1s;for=5":        `phase 2: "for=5" is no time`,
		"for=1s,fail=3":       `phase 1: "fail=3" is no share`,
		"for=1s,fail=101%":    `phase 1: "fail=101%" is no share`,
		"for=1s,latency=-1s":  `phase 1: "latency=-1s" is no latency`,
		"for=1s,colour=red":   `phase 1: "colour=red" is not known`,
		"rate=1000000,for=1h": "more than 50000000 calls in all",
		strings.Repeat("for=1s;", maxPhases) + "for=1s": "more than 100 phases",
	} {
		if _, err := Generate(spec, 1); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", spec, err, want)
		}
	}
}

// TestGeneratedTraceHasTheSharesAndRatesOfItsPhases counts what was made up.
func TestGeneratedTraceHasTheSharesAndRatesOfItsPhases(t *testing.T) {
	t.Parallel()
	g, err := Generate("rate=1000,for=10s,fail=10%; rate=100,for=100s,fail=90%", 7)
	if err != nil {
		t.Fatal(err)
	}
	var calls, failed [2]int
	last := time.Time{}
	for {
		c, err := g.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if c.At.Before(last) {
			t.Fatal("time goes back")
		}
		last = c.At
		phase := 0
		if c.At.Unix() >= 10 {
			phase = 1
		}
		calls[phase]++
		if c.Result == breaker.Failure {
			failed[phase]++
		}
	}
	for i, want := range []float64{.1, .9} {
		share := float64(failed[i]) / float64(calls[i])
		if calls[i] < 9700 || calls[i] > 10300 || share < want-.02 || share > want+.02 {
			t.Errorf("phase %d: %d calls, %.3f failed", i+1, calls[i], share)
		}
	}
}

// endless is a trace of n lines that are made as they are read.
type endless struct{ n, at int }

func (e *endless) Read(p []byte) (int, error) {
	if e.at == e.n {
		return 0, io.EOF
	}
	line := "time,latency,outcome\n"
	if e.at > 0 {
		line = fmt.Sprintf("%d.%03d,30ms,success\n", e.at/1000, e.at%1000)
	}
	e.at++
	return copy(p, line), nil
}

func TestLongTraceTakesNoMoreMemoryThanAShortOne(t *testing.T) {
	t.Parallel()
	trace, err := NewCSV("t.csv", &endless{n: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	probe := &probed{from: trace}
	if _, err := Run(probe, 1, Setting{"x", breaker.Config{}}, Setting{"y", breaker.Config{Z: 2}}); err != nil {
		t.Fatal(err)
	}
	if probe.most > 64<<20 {
		t.Errorf("%d MiB on the heap", probe.most>>20)
	}
}

// probed looks at the heap now and then.
type probed struct {
	from Source
	n    int
	most uint64
}

func (p *probed) Next() (Call, error) {
	if p.n++; p.n%50_000 == 0 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		p.most = max(p.most, m.HeapAlloc)
	}
	return p.from.Next()
}

func FuzzCSV(f *testing.F) {
	f.Add(recorded)
	f.Add("time,latency,outcome\n1,2ms,success\n1.5,\"2ms\",failure\n")
	f.Add("outcome,latency,time\n,\",\"\"\n\"")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := NewCSV("t.csv", strings.NewReader(text))
		var last time.Time
		for err == nil {
			var c Call
			if c, err = trace.Next(); err == nil && (c.At.Before(last) || c.Latency < 0 || c.Latency > maxLatency) {
				t.Fatalf("%+v after %v", c, last)
			}
			last = c.At
		}
		var bad *TraceError
		if !errors.Is(err, io.EOF) && (!errors.As(err, &bad) || bad.Line < 1 || bad.Column < 1) {
			t.Fatalf("error %v", err)
		}
	})
}
