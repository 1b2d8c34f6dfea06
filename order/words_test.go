package order_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"spillway/order"
)

// constants are the values of all constants of a type in a file, as written.
func constants(t *testing.T, file, typeName string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, d := range parsed.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			name, ok := v.Type.(*ast.Ident)
			if !ok || name.Name != typeName || len(v.Values) != 1 {
				continue
			}
			literal, ok := v.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: %s is not a literal", file, v.Names[0].Name)
			}
			values = append(values, literal.Value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %s", file, typeName)
	}
	return values
}

func TestReasonsListsEveryReasonOnce(t *testing.T) {
	t.Parallel()
	var want []order.Reason
	for _, quoted := range constants(t, "outcome.go", "Reason") {
		text, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(err)
		}
		if text != "" {
			want = append(want, order.Reason(text))
		}
	}
	if !slices.Equal(order.Reasons(), want) {
		t.Errorf("Reasons is %v, the constants are %v", order.Reasons(), want)
	}
	code := regexp.MustCompile(`^[A-Z][A-Z0-9_]{2,31}$`)
	seen := make(map[order.Reason]bool, len(want))
	for _, r := range order.Reasons() {
		if !code.MatchString(string(r)) || seen[r] {
			t.Errorf("reason %q: want a code that is there once, fit for a label and a column", r)
		}
		seen[r] = true
	}
}

// TestNumbersOfStatesAndOutcomesStay pins what databases hold: the numbers never change meaning.
func TestNumbersOfStatesAndOutcomesStay(t *testing.T) {
	t.Parallel()
	var got []string
	for _, s := range order.States() {
		got = append(got, fmt.Sprintf("state %d %v", int16(s), s))
	}
	for _, p := range order.Phases() {
		got = append(got, fmt.Sprintf("phase %d %v", int16(p), p))
	}
	for _, o := range order.Outcomes() {
		got = append(got, fmt.Sprintf("outcome %d %v", int16(o), o))
	}
	want := []string{
		"state 1 PROCESSING", "state 2 SUCCEEDED", "state 3 FAILED", "state 4 DEAD", "state 5 DISCARDED",
		"phase 1 IN_FLIGHT", "phase 2 REPLAYING", "phase 3 UNKNOWN",
		"outcome 1 SUCCEEDED", "outcome 2 REJECTED", "outcome 3 INVALID", "outcome 4 OVERLOADED", "outcome 5 NOT_SENT",
		"outcome 6 UNKNOWN", "outcome 7 REFUSED", "outcome 8 CANCELLED",
	}
	if !slices.Equal(got, want) {
		t.Errorf("numbers are\n%v\nwant\n%v", got, want)
	}
	if n := len(constants(t, "outcome.go", "Outcome")); n != len(order.Outcomes())+1 {
		t.Errorf("%d constants of type Outcome: want Outcomes and NoOutcome", n)
	}
	if n := len(constants(t, "outcome.go", "Verdict")); n != len(order.Verdicts()) {
		t.Errorf("%d constants of type Verdict: want Verdicts", n)
	}
	if n := len(constants(t, "state.go", "State")); n != len(order.States()) {
		t.Errorf("%d constants of type State: want States", n)
	}
	if n := len(constants(t, "state.go", "Phase")); n != len(order.Phases())+1 {
		t.Errorf("%d constants of type Phase: want Phases and NoPhase", n)
	}
}

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, s := range order.States() {
		if got, err := order.ParseState(s.String()); err != nil || got != s {
			t.Errorf("state %v is read as %v, %v", s, got, err)
		}
	}
	for _, o := range order.Outcomes() {
		if got, err := order.ParseOutcome(o.String()); err != nil || got != o {
			t.Errorf("outcome %v is read as %v, %v", o, got, err)
		}
	}
	for _, v := range order.Verdicts() {
		if got, err := order.ParseVerdict(v.String()); err != nil || got != v {
			t.Errorf("verdict %v is read as %v, %v", v, got, err)
		}
	}
	for _, wrong := range []string{"", "-", "processing", "SUCCEEDED ", "State(9)"} {
		if s, err := order.ParseState(wrong); err == nil {
			t.Errorf("state %q is read as %v", wrong, s)
		}
		if o, err := order.ParseOutcome(wrong); err == nil {
			t.Errorf("outcome %q is read as %v", wrong, o)
		}
		if v, err := order.ParseVerdict(wrong); err == nil {
			t.Errorf("verdict %q is read as %v", wrong, v)
		}
	}
}

func TestValuesOutsideOfASetAreShownAsNumbers(t *testing.T) {
	t.Parallel()
	got := fmt.Sprint(order.State(9), order.Phase(9), order.NoPhase, order.Outcome(9), order.NoOutcome, order.Verdict(9), order.Lane(9))
	if want := "State(9) Phase(9) - Outcome(9) - Verdict(9) Lane(9)"; got != want {
		t.Errorf("shown as %q, want %q", got, want)
	}
	if got := fmt.Sprint(order.LaneLive, order.LaneReplay, order.LaneCompensate); got != "live replay compensate" || order.Lanes != 3 {
		t.Errorf("lanes are %q, %d of them", got, order.Lanes)
	}
}

func TestFinalStatesNeverMove(t *testing.T) {
	t.Parallel()
	for _, from := range append(order.States(), 0, 9) {
		for _, to := range order.States() {
			if from.Final() && order.CanMove(from, to) {
				t.Errorf("%v is final and may move to %v", from, to)
			}
		}
	}
	if order.Processing.Final() || order.Dead.Final() || !order.Discarded.Final() {
		t.Error("want DISCARDED final, PROCESSING and DEAD not")
	}
	if order.CanMove(order.Processing, order.Discarded) {
		t.Error("PROCESSING may be discarded: want only dead letters to be")
	}
}
