package breaker

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScenariosShowEveryReasonAndEveryMove fails when a rule that can move a breaker is in no scenario.
func TestScenariosShowEveryReasonAndEveryMove(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found (%v)", err)
	}
	event := regexp.MustCompile(`event at \S+: (\S+) -> (\S+) by (\S+) \((\S+)\)`)
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range event.FindAllStringSubmatch(string(text), -1) {
			seen[m[3]], seen[m[4]], seen[m[1]+" -> "+m[2]] = true, true, true
			seen[fmt.Sprintf("%s by %s (%s)", m[1], m[3], m[4])] = true
		}
	}
	for r := ReasonNone + 1; r.String() != "invalid"; r++ {
		if !seen[r.String()] {
			t.Errorf("no scenario shows the reason %s", r)
		}
	}
	for s := SourceLocal; s.String() != "invalid"; s++ {
		if !seen[s.String()] {
			t.Errorf("no scenario shows a move of the source %s", s)
		}
	}
	for from := Closed; from <= HalfOpen; from++ {
		for to := Closed; to <= HalfOpen; to++ {
			// A breaker that is half-open does not begin that anew, and one that is open opens again only by order.
			if move := from.String() + " -> " + to.String(); from != HalfOpen || to != HalfOpen {
				if !seen[move] {
					t.Errorf("no scenario shows the move %s", move)
				}
			}
		}
	}
	for _, rule := range []Reason{ReasonFailureRate, ReasonSlowRate, ReasonConsecutive} {
		for _, from := range []State{Closed, HalfOpen} {
			if !seen[fmt.Sprintf("%s by %s (local)", from, rule)] {
				t.Errorf("no scenario shows the rule %s open it while %s", rule, from)
			}
		}
	}
}

// TestTableOfScenariosIsTrue holds testdata/README.md to the files beside it, both ways.
func TestTableOfScenariosIsTrue(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(table)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 3 && strings.HasSuffix(cells[1], ".txt") {
			listed[cells[1]+": "+strings.TrimSuffix(cells[2], " |")] = true
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		title := ""
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "# "); ok {
				title = strings.TrimSpace(title + " " + strings.TrimSpace(rest))
				continue
			}
			if title != "" {
				shown[filepath.Base(file)+": "+title] = true
				title = ""
			}
		}
	}
	for s := range shown {
		if !listed[s] {
			t.Errorf("the table does not list %q", s)
		}
	}
	for s := range listed {
		if !shown[s] {
			t.Errorf("there is no scenario %q", s)
		}
	}
}
