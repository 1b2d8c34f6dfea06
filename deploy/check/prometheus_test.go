package check

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"spillway/order"
)

// rules is rules.yaml.
type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var r rules
	if err := yaml.UnmarshalWithOptions(read(t, "deploy/prometheus/rules.yaml"), &r, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertsAreWholeAndHaveARunbookSection(t *testing.T) {
	t.Parallel()
	// An anchor is a heading in small letters.
	sections := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(read(t, "docs/runbook.md")), -1) {
		sections[h[1]] = true
	}
	tested := string(read(t, "deploy/prometheus/rules_test.yaml"))
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || !strings.HasSuffix(r.Annotations["description"], ".") {
			t.Errorf("%s: %v", r.Alert, r.Annotations)
		}
		if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !sections[r.Alert] {
			t.Errorf("%s has no section in docs/runbook.md", r.Alert)
		}
		delete(sections, r.Alert)
		if !regexp.MustCompile(`(alertname="|alertname: )` + r.Alert + `\b`).MatchString(tested) {
			t.Errorf("%s is never seen firing in rules_test.yaml", r.Alert)
		}
	}
	for s := range sections {
		if strings.HasPrefix(s, "Spillway") {
			t.Errorf("docs/runbook.md has a section for %s, which is no alert", s)
		}
	}
}

// TestExpressionsAskForMetricsThatExist covers the rules, the dashboard's queries and its variables.
func TestExpressionsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := map[string]metric{}
	for _, m := range listed(t) {
		for _, name := range series(m) {
			s := metric{name: name, labels: map[string][]string{"job": nil, "instance": nil}}
			maps.Copy(s.labels, m.labels)
			if strings.HasSuffix(name, "_bucket") {
				s.labels["le"] = nil
			}
			known[name] = s
		}
	}
	for _, name := range []string{"up", "process_resident_memory_bytes"} {
		known[name] = metric{name: name, labels: map[string][]string{"job": nil, "instance": nil}}
	}
	for _, r := range readRules(t) {
		if r.Record != "" {
			known[r.Record] = metric{name: r.Record, labels: map[string][]string{"route": nil}}
		}
	}
	for _, r := range readRules(t) {
		checkExpr(t, r.Alert+r.Record, r.Expr, known)
	}
	for _, p := range boxes(t) {
		for _, q := range p.Targets {
			checkExpr(t, p.Title, strings.ReplaceAll(q.Expr, "$__rate_interval", "5m"), known)
		}
	}
	for _, v := range load(t).Templating.List {
		if v.Query == nil || v.Query.String == nil {
			continue
		}
		if q := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(*v.Query.String); q != nil {
			checkExpr(t, "variable "+v.Name, q[1], known)
		}
	}
}

func checkExpr(t *testing.T, where, expr string, known map[string]metric) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, ok := known[selector.Name]
		if !ok {
			t.Errorf("%s: nobody has a metric %s", where, selector.Name)
			return nil
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != model.MetricNameLabel {
				checkMatcher(t, where, m, matcher)
			}
		}
		for _, outer := range path {
			if sum, ok := outer.(*parser.AggregateExpr); ok && !strings.Contains(expr, "label_replace") {
				for _, label := range sum.Grouping {
					if _, ok := m.labels[label]; !ok {
						t.Errorf("%s: %s has no label %s", where, m.name, label)
					}
				}
			}
		}
		return nil
	})
}

func checkMatcher(t *testing.T, where string, m metric, matcher *labels.Matcher) {
	t.Helper()
	values, ok := m.labels[matcher.Name]
	if !ok {
		t.Errorf("%s: %s has no label %s", where, m.name, matcher.Name)
		return
	}
	if matcher.Name == "outcome" && values == nil {
		for _, o := range order.Outcomes() {
			values = append(values, o.String())
		}
	}
	if len(values) == 0 {
		return
	}
	for value := range strings.SplitSeq(matcher.Value, "|") { // alternatives of an expression; no value has a bar
		if !slices.Contains(values, value) {
			t.Errorf("%s: %s of %s is never %q", where, matcher.Name, m.name, value)
		}
	}
}

// promtool finds the program, or brings it in without installing anything: scripts/promtool says how.
func promtool(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/promtool")).Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	reason := "no promtool"
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // not wrapped
		reason = strings.TrimSpace(string(exit.Stderr))
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

func TestPromtoolIsContent(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	dir := filepath.Join(root, "deploy/prometheus")
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", filepath.Join(dir, "rules.yaml")},
		{"check", "config", "--lint=all", "--lint-fatal", filepath.Join(dir, "prometheus.yaml")},
		{"test", "rules", filepath.Join(dir, "rules_test.yaml")},
	} {
		if out, err := output(t, nil, tool, args...); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	// A test that can't fail would prove nothing.
	broken := filepath.Join(t.TempDir(), "rules_test.yaml")
	text := strings.Replace(string(read(t, "deploy/prometheus/rules_test.yaml")), "rules.yaml", filepath.Join(mustAbs(t, dir), "rules.yaml"), 1)
	text = strings.Replace(text, "value: 520", "value: 521", 1)
	if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := output(t, nil, tool, "test", "rules", broken); err == nil || !strings.Contains(out, "5.21E+02") {
		t.Errorf("promtool takes a wrong value: %s", out)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
