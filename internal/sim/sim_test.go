package sim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"spillway/order"
)

var (
	seedFlag  = flag.Int64("sim.seed", -1, "run this seed alone and show its trace")
	seedsFlag = flag.Uint64("sim.seeds", 400, "how many seeds to run")
)

// tail is how much of the trace a failure shows.
const tail = 120

func TestSimulation(t *testing.T) { //nolint:tparallel // what the seeds showed together is looked at when all are done
	t.Parallel()
	if *seedFlag >= 0 {
		r := Run(uint64(*seedFlag), Options{Trace: 1 << 20})
		t.Log(strings.Join(r.Trace, "\n"))
		fail(t, r)
		return
	}
	var mu sync.Mutex // guards sum
	sum := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds(t) {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				r := Run(seed, Options{})
				fail(t, r)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range r.Counts {
					sum[what] += n
				}
			})
		}
	})
	for _, what := range mustOccur() {
		if sum[what] == 0 {
			t.Errorf("%q never occurred: the simulation does not test it any more", what)
		}
	}
	if t.Failed() || testing.Verbose() {
		logCounts(t, sum)
	}
}

// fail tells of a violation: how to see it again in one line, and what came before it.
func fail(t *testing.T, r Report) {
	t.Helper()
	if r.Violation == nil {
		return
	}
	again := Run(r.Seed, Options{Trace: tail})
	t.Errorf("%v\nrepeat: go test ./internal/sim -run TestSimulation -sim.seed=%d\n%s", r.Violation, r.Seed,
		strings.Join(again.Trace, "\n"))
}

// seeds are the first ones, and all that ever failed.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var out []uint64
	for seed := range *seedsFlag {
		out = append(out, seed)
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		number, _, _ := strings.Cut(lines.Text(), "#")
		if number = strings.TrimSpace(number); number == "" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt: %v", err)
		}
		if !slices.Contains(out, seed) {
			out = append(out, seed)
		}
	}
	return out
}

// mustOccur lists what the seeds must show together: each fault before and after each effect, each outcome, state and
// way an order can go.
func mustOccur() []string {
	var out []string
	for _, e := range effects() {
		for _, f := range faults() {
			out = append(out, fmt.Sprintf("%s %s", f, e))
		}
	}
	for _, o := range order.Outcomes() {
		if o != order.OutcomeRefused { // counted where it is made
			out = append(out, "outcome "+o.String())
		}
	}
	for _, s := range order.States() {
		out = append(out, "state "+s.String())
	}
	for m := healthy; m <= mixed; m++ {
		out = append(out, "mode "+m.String())
	}
	for m := lookupsHealthy; m <= lookupsUndecided; m++ {
		out = append(out, m.String())
	}
	for _, v := range []order.Verdict{
		order.VerdictNone, order.VerdictSucceeded, order.VerdictFailed, order.VerdictProcessing, order.VerdictNotFound,
	} {
		out = append(out, "verdict "+v.String())
	}
	for _, r := range []order.Reason{order.AttemptsExhausted, order.LookupsExhausted, order.RequestRejected, order.Skipped} {
		out = append(out, "dead "+string(r))
	}
	return append(out,
		"record", "duplicate", "clash", "withdrawn", "taken back", "fenced after a withdrawal", "undecodable", "hole", "lost", "gap", "fetched again", "fetch failed", "admitted again", "refused CIRCUIT_OPEN", "refused RATE_LIMITED", "hold", "permit late",
		"spill", "replay", "resend", "compensate", "rescue", "entry dropped", "claim lost", "claim brought back",
		"queue away", "queue wiped", "queue entries lost", "queue mended", "queue full", "store away", "pause", "crash", "stop",
		"rebalance", "rebalance without a member", "session lost", "commit fenced", "drain cut short", "settled too late",
		"lease lost before the attempt", "lease lost before the replay", "renewal refused", "requeue", "discard",
		"breaker open", "breaker half-open", "breaker closed",
	)
}

func logCounts(t *testing.T, sum map[string]int) {
	t.Helper()
	lines := make([]string, 0, len(sum))
	for what, n := range sum {
		lines = append(lines, fmt.Sprintf("%-40s %d", what, n))
	}
	slices.Sort(lines)
	t.Log("\n" + strings.Join(lines, "\n"))
}

func TestASeedTellsTheSameStoryTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		a, b := Run(seed, Options{Trace: 1 << 20}), Run(seed, Options{Trace: 1 << 20})
		if a.Steps != b.Steps || !slices.Equal(a.Trace, b.Trace) {
			t.Errorf("seed %d: %d steps, then %d", seed, a.Steps, b.Steps)
		}
	}
}

func TestDeliberateBugsAreCaughtByTheInvariantTheyBreak(t *testing.T) {
	t.Parallel()
	for _, bug := range Bugs() {
		invariant := bug.breaks()
		t.Run(bug.String(), func(t *testing.T) {
			t.Parallel()
			others := map[string]int{}
			for seed := range uint64(200) {
				v := Run(seed, Options{Bug: bug}).Violation
				if v == nil {
					continue
				}
				if v.Invariant == invariant {
					t.Logf("seed %d: %v", seed, v)
					return
				}
				others[v.Invariant]++
			}
			t.Errorf("%s was not caught by %s in 200 seeds; others: %v", bug, invariant, others)
		})
	}
}
