package order_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"spillway/order"
)

// move is one row of the table in docs/states.md.
type move struct{ from, by, on, to string }

// noPlace is the table's word for a record that has no row.
const noPlace = "-"

// place is where an order stands, in the table's words: its phase while it is PROCESSING, else its state.
func place(s order.State, p order.Phase) string {
	if s == order.Processing {
		return p.String()
	}
	return s.String()
}

// stateOf is the state of a place.
func stateOf(t *testing.T, place string) order.State {
	t.Helper()
	for _, p := range order.Phases() {
		if p.String() == place {
			return order.Processing
		}
	}
	s, err := order.ParseState(place)
	if err != nil {
		t.Fatalf("docs/states.md: place %q: want a phase or a state other than PROCESSING", place)
	}
	return s
}

// documented reads the table of transitions.
func documented(t *testing.T) []move {
	t.Helper()
	text, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| from | by | on | to | guard |\n|---|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/states.md has no table that begins with: | from | by | on | to | guard |")
	}
	var moves []move
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 5 {
			t.Fatalf("docs/states.md: %d cells in %q: want 5", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[4] == "" {
			t.Errorf("docs/states.md: no guard in %q", line)
		}
		m := move{from: cells[0], by: cells[1], on: cells[2], to: cells[3]}
		if slices.Contains(moves, m) {
			t.Errorf("docs/states.md: twice: %q", line)
		}
		moves = append(moves, m)
	}
	return moves
}

// everyPolicy is each combination of the settings that choose between transitions, with caps small enough to go through.
func everyPolicy() []order.Policy {
	var ps []order.Policy
	for _, degrade := range []order.Degrade{order.Spill, order.Hold, order.Skip} {
		for _, failNotFound := range []bool{false, true} {
			p := testPolicy()
			p.Degrade, p.FailNotFound = degrade, failNotFound
			p.ReplayAttempts, p.ReplayAttemptsTotal, p.CompensateAttempts = 3, 5, 4
			ps = append(ps, p)
		}
	}
	return ps
}

// everyCount is each pair of counts an order can be attempted or looked up with, and one beyond the caps.
func everyCount(p order.Policy) (counts [][2]int) {
	for total := 1; total <= p.ReplayAttemptsTotal+1; total++ {
		for counted := 0; counted <= total; counted++ {
			counts = append(counts, [2]int{counted, total})
		}
	}
	return counts
}

// reachable is everything the policy can decide.
func reachable() map[move]bool {
	seen := map[move]bool{}
	for _, p := range everyPolicy() {
		for _, c := range everyCount(p) {
			attempts(p, c, seen)
			lookups(p, c, seen)
		}
	}
	return seen
}

func attempts(p order.Policy, counts [2]int, seen map[move]bool) {
	if counts[0] == 0 {
		return // the attempt that ended is counted
	}
	o := order.Order{
		State: order.Processing, Phase: order.InFlight, Version: 1, Fresh: true, Attempts: counts[0], AttemptsTotal: counts[1], LastAttempt: noon,
	}
	for _, outcome := range order.Outcomes() {
		for flags := range 8 {
			a := order.Answer{Outcome: outcome, Reason: order.UpstreamReset, Probe: flags&1 != 0, Sent: flags&2 != 0}
			if flags&4 != 0 {
				a.RetryAfter = time.Second
			}
			t := p.AfterAttempt(&o, a, noon, 0.5)
			seen[move{order.InFlight.String(), "AfterAttempt", outcome.String(), place(t.State, t.Phase)}] = true
		}
	}
}

func lookups(p order.Policy, counts [2]int, seen map[move]bool) {
	for n := 1; n <= p.CompensateAttempts+1; n++ {
		for _, since := range []time.Duration{0, p.Grace - 1, p.Grace, 2 * p.Grace} {
			o := order.Order{
				State: order.Processing, Phase: order.Unknown, Attempts: counts[0], AttemptsTotal: counts[1], Lookups: n,
				LastAttempt: noon.Add(-since),
			}
			for _, verdict := range order.Verdicts() {
				for _, probe := range []bool{false, true} {
					t := p.AfterLookup(&o, order.Finding{Verdict: verdict, Probe: probe}, noon, 0.5)
					seen[move{order.Unknown.String(), "AfterLookup", verdict.String(), place(t.State, t.Phase)}] = true
				}
			}
		}
	}
}

func TestStatesPageListsExactlyWhatThePolicyCanDecide(t *testing.T) {
	t.Parallel()
	told := map[move]bool{}
	for _, m := range documented(t) {
		switch m.by {
		case "AfterAttempt", "AfterLookup":
			told[m] = true
		}
	}
	if diff := cmp.Diff(reachable(), told, cmp.AllowUnexported(move{})); diff != "" {
		t.Errorf("docs/states.md and order.Policy disagree (-policy +page):\n%s", diff)
	}
}

func TestStatesPageListsTheMovesOfStoresAndPeople(t *testing.T) {
	t.Parallel()
	want := map[[3]string]bool{
		{noPlace, "Admit", "IN_FLIGHT"}:        true,
		{"REPLAYING", "Admit", "IN_FLIGHT"}:    true,
		{"IN_FLIGHT", "ClaimDue", "UNKNOWN"}:   true,
		{"UNKNOWN", "ClaimDue", "UNKNOWN"}:     true,
		{"REPLAYING", "ClaimDue", "REPLAYING"}: true,
		{"REPLAYING", "Begin", "IN_FLIGHT"}:    true,
		{"DEAD", "Discard", "DISCARDED"}:       true,
		{noPlace, "Requeue", "REPLAYING"}:      true,
	}
	o := inFlight(1, 1)
	unsent := testPolicy().Withdraw(o, order.Revoked, noon)
	want[[3]string{place(o.State, o.Phase), "Withdraw", place(unsent.State, unsent.Phase)}] = true
	again := testPolicy().Requeue(noon)
	want[[3]string{"DEAD", "Requeue", place(again.State, again.Phase)}] = true
	told := map[[3]string]bool{}
	for _, m := range documented(t) {
		switch m.by {
		case "AfterAttempt", "AfterLookup":
		default:
			told[[3]string{m.from, m.by, m.to}] = true
		}
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("docs/states.md and the stores disagree (-want +page):\n%s", diff)
	}
}

func TestStatesPageMovesAreThoseThatCanMoveAllows(t *testing.T) {
	t.Parallel()
	type pair struct{ from, to order.State }
	told := map[pair]bool{}
	for _, m := range documented(t) {
		if m.from == noPlace {
			continue
		}
		told[pair{stateOf(t, m.from), stateOf(t, m.to)}] = true
	}
	allowed := map[pair]bool{}
	for _, from := range order.States() {
		for _, to := range order.States() {
			if order.CanMove(from, to) {
				allowed[pair{from, to}] = true
			}
		}
	}
	if !maps.Equal(told, allowed) {
		t.Errorf("docs/states.md moves between %v, CanMove allows %v", told, allowed)
	}
}
