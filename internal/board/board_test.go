package board

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// storm is a frame in the middle of an outage.
func storm() View {
	now := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	return View{
		Caption: Caption{
			Title: "Spillway demo", Phase: "the wallet fails", Told: 30 * time.Second, Total: time.Minute,
			Extra: []string{"wallet: failing; 2101 orders applied, 0 of them twice", "metrics: http://127.0.0.1:9464/metrics"},
		},
		Before: Reading{At: now.Add(-2 * time.Second), Consumed: 3000, Final: 2100},
		Now: Reading{
			At: now, Consumed: 3240, Final: 2102, Pauses: 96, Spilled: 180, Replayed: 12, Settled: 3, Opened: 2,
			Lag: 812, Assigned: 12, Paused: 12, Prefetched: 38, PrefetchBytes: 41 << 10, PrefetchTarget: 1500000,
			Constraint: "permits", Permits: 12, InUse: map[string]float64{"live": 9, "replay": 2, "compensate": 1},
			Breakers:   map[string]string{"submit": "open", "lookup": "half-open"},
			Replay:     map[string]float64{"ready": 150, "delayed": 28, "in_flight": 2},
			Processing: map[string]float64{"IN_FLIGHT": 11, "REPLAYING": 180, "UNKNOWN": 4},
			Oldest:     2700 * time.Millisecond, Dead: 5,
		},
	}
}

func TestFramesAreDrawnAsWritten(t *testing.T) {
	t.Parallel()
	trouble := storm()
	trouble.Trouble = "collected metric spillway_x was collected before\nwith the same name"
	for name, lines := range map[string][]string{
		"storm":   Lines(storm(), Style{Width: 80}),
		"colour":  Lines(storm(), Style{Width: 80, Color: true}),
		"narrow":  Lines(storm(), Style{Width: 40}),
		"trouble": Lines(trouble, Style{Width: 80}),
		"empty":   Lines(View{}, Style{Width: 80}),
		"line":    {Line(storm()), Line(View{})},
	} {
		path := filepath.Join("testdata", name+".txt")
		// Escapes are written out, so that the files can be read.
		got := strings.ReplaceAll(strings.Join(lines, "\n"), "\x1b", `\e`) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: drawn\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestNoLineIsWiderThanTheScreenNorHoldsForeignEscapes(t *testing.T) {
	t.Parallel()
	v := storm()
	v.Phase = "\x1b[2J" + strings.Repeat("ä", 300)
	v.Extra = slices.Repeat([]string{"\x07bell \x1b]0;title\x07 \xff" + strings.Repeat("語", 300)}, 3*MaxExtra)
	rows := len(Lines(v, Style{Width: 80}))
	for width := range 250 {
		lines := Lines(v, Style{Width: width})
		if len(lines) != rows {
			t.Fatalf("width %d: %d lines, want %d", width, len(lines), rows)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > min(max(width, minWidth), maxWidth) || strings.ContainsAny(line, "\x1b\x07\n") {
				t.Fatalf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
	if want := len(Lines(View{}, Style{Width: 80})) + MaxExtra; rows != want {
		t.Errorf("%d lines with too many extra ones, want %d", rows, want)
	}
}

// metrics is a registry with what a worker of the routes a and b would have, as far as the test goes.
func metrics() (*prometheus.Registry, prometheus.Counter) {
	reg := prometheus.NewRegistry()
	consumed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_consumed_records_total", Help: "-"}, []string{"route"})
	moves := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_breaker_moves_total", Help: "-"}, []string{"route", "endpoint", "to"})
	state := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_breaker_state", Help: "-"}, []string{"route", "endpoint"})
	binding := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_binding_constraint", Help: "-"}, []string{"route", "constraint"})
	used := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_permits_in_use", Help: "-"}, []string{"route", "lane"})
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_compensator_settled_total", Help: "-"}, []string{"route", "became"})
	replayed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_replay_finished_total", Help: "-"}, []string{"route", "became"})
	live := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_live_outcomes_total", Help: "-"}, []string{"route", "outcome", "reason"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "spillway_call_seconds", Help: "-"}, []string{"route"})
	reg.MustRegister(consumed, moves, state, binding, used, settled, replayed, live, took)
	for i, route := range []string{"a", "b"} {
		n := float64(i)*1000 + 1
		consumed.WithLabelValues(route).Add(100 * n)
		moves.WithLabelValues(route, "submit", "open").Add(2 * n)
		moves.WithLabelValues(route, "lookup", "open").Add(n)
		moves.WithLabelValues(route, "lookup", "closed").Add(50 * n)
		state.WithLabelValues(route, "submit").Set(2)
		state.WithLabelValues(route, "lookup").Set(1)
		binding.WithLabelValues(route, "permits").Set(1)
		binding.WithLabelValues(route, "none").Set(0)
		used.WithLabelValues(route, "live").Set(3 * n)
		used.WithLabelValues(route, "replay").Set(4 * n)
		settled.WithLabelValues(route, "SUCCEEDED").Add(5 * n)
		settled.WithLabelValues(route, "REPLAYING").Add(6 * n)
		settled.WithLabelValues(route, "UNKNOWN").Add(70 * n)
		replayed.WithLabelValues(route, "SUCCEEDED").Add(7 * n)
		replayed.WithLabelValues(route, "FAILED").Add(8 * n)
		replayed.WithLabelValues(route, "REPLAYING").Add(90 * n)
		live.WithLabelValues(route, "SUCCEEDED", "CONFIRMED").Add(9 * n)
		live.WithLabelValues(route, "REJECTED", "BUSINESS_REJECTED").Add(10 * n)
		live.WithLabelValues(route, "UNKNOWN", "UPSTREAM_RESET").Add(90 * n)
		took.WithLabelValues(route).Observe(n)
	}
	return reg, consumed.WithLabelValues("a")
}

func TestReadingIsOfOneRouteAlone(t *testing.T) {
	t.Parallel()
	reg, _ := metrics()
	r, err := Read(reg, "a", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]float64{
		"consumed": {r.Consumed, 100}, "opened": {r.Opened, 3}, "in flight": {r.InFlight(), 7}, "compensated": {r.Settled, 11},
		"replayed": {r.Replayed, 15}, "final": {r.Final, 5 + 15 + 19},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %v, want %v", name, pair[0], pair[1])
		}
	}
	if r.Breakers["submit"] != "open" || r.Breakers["lookup"] != "half-open" || r.Constraint != "permits" {
		t.Errorf("breakers %v, bound by %q", r.Breakers, r.Constraint)
	}
}

func TestBoardPrintsAPlainLineASecondAndOneAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, consumed := metrics()
		var out bytes.Buffer
		b := New(Config{Route: "a"}, &out, reg, func() Caption { return Caption{Phase: "quiet"} })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		for range 5 {
			time.Sleep(time.Second)
			synctest.Wait()
			consumed.Add(50)
		}
		time.Sleep(time.Second / 2)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 7 {
			t.Fatalf("%d lines, want one for each of the seconds 0 to 5 and one at the end:\n%s", len(lines), out.String())
		}
		if last := lines[6]; !strings.Contains(last, "consumed 350 (40/s)") && !strings.Contains(last, "consumed 350 (60/s)") {
			t.Errorf("the last line is %q, want 350 consumed, 100 of them in the last 2.5 s", last)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("escapes in plain lines:\n%q", out.String())
		}
	})
}

func TestBoardRedrawsInPlaceAndGivesTheCursorBack(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "no terminal")) // its size can't be read: 80 by 24
	if err != nil {
		t.Fatal(err)
	}
	b := New(Config{Route: "a", NoColor: true}, file, prometheus.NewRegistry(), func() Caption { return Caption{} })
	if b.terminal != nil {
		t.Fatal("a file passes for a terminal")
	}
	b.terminal = file
	var frame bytes.Buffer
	long := storm()
	long.Extra = slices.Repeat([]string{"more"}, MaxExtra)
	b.redraw(&frame, long, false)
	rows := strings.Count(frame.String(), "\n")
	if got := frame.String(); !strings.HasPrefix(got, "\x1b[?25l") || strings.Contains(got, "\x1b[1A") {
		t.Errorf("the first frame is %q", got)
	}
	frame.Reset()
	b.redraw(&frame, storm(), true)
	if got := frame.String(); !strings.HasPrefix(got, "\r\x1b["+strconv.Itoa(rows)+"A") || !strings.HasSuffix(got, "\x1b[J\x1b[?25h") {
		t.Errorf("the last frame is %q, want it over the %d lines before, and the cursor shown", got, rows)
	}
}

func TestBoardSaysWhyItCannotWrite(t *testing.T) {
	t.Parallel()
	b := New(Config{Route: "a"}, failing{}, prometheus.NewRegistry(), func() Caption { return Caption{} })
	if err := b.Run(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Run returns %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
