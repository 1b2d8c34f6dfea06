package check

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/worker"
)

const metricsFile = "docs/metrics.md"

// metric is a line of docs/metrics.md.
type metric struct {
	name, kind, help string
	labels           map[string][]string // and their values, where all are there from the start
}

// described lists the metrics of a worker that was made and not run: what its registry describes, with the kinds and
// label values that it has samples of.
func described(t *testing.T) []metric {
	t.Helper()
	registry := prometheus.NewRegistry()
	cfg, err := worker.Load(filepath.Join(root, "deploy/spillway.yaml"), []string{
		"SPILLWAY_POSTGRES_URL=" + testkit.Postgres(t), "SPILLWAY_HTTP_LISTEN=127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Migrate(t.Context(), worker.StoreConfig(cfg, nil), postgres.Up); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(t.Context(), cfg, worker.Options{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sampled := map[string]*dto.MetricFamily{}
	for _, f := range families {
		sampled[f.GetName()] = f
	}
	descs := make(chan *prometheus.Desc)
	go func() { registry.Describe(descs); close(descs) }()
	all := map[string]metric{}
	for d := range descs {
		m := parseDesc(t, d)
		m.kind = kind(m.name, sampled[m.name])
		for label := range m.labels {
			m.labels[label] = values(sampled[m.name], label)
		}
		all[m.name] = m
	}
	var list []metric
	for _, m := range all {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}

// parseDesc reads what a description says of itself; it has no other way to tell.
func parseDesc(t *testing.T, d *prometheus.Desc) metric {
	t.Helper()
	parts := regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)"(?:, unit: "[^"]*")?, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`).
		FindStringSubmatch(d.String())
	if parts == nil {
		t.Fatalf("description %s", d)
	}
	m := metric{name: parts[1], help: parts[2], labels: map[string][]string{}}
	for pair := range strings.SplitSeq(parts[3], ",") {
		if name, _, ok := strings.Cut(pair, "="); ok {
			m.labels[name] = nil
		}
	}
	for name := range strings.SplitSeq(parts[4], ",") {
		if name != "" {
			m.labels[name] = nil
		}
	}
	return m
}

// kind of a metric. One without samples yet goes by its name; the trial sees whether that is true.
func kind(name string, f *dto.MetricFamily) string {
	switch {
	case f != nil:
		return strings.ToLower(f.GetType().String())
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_seconds"), strings.HasSuffix(name, "_size"):
		return "histogram"
	}
	return "gauge"
}

func values(f *dto.MetricFamily, label string) []string {
	if label == "route" {
		return nil
	}
	var all []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && !slices.Contains(all, l.GetValue()) {
				all = append(all, l.GetValue())
			}
		}
	}
	slices.Sort(all)
	return all
}

const metricsHead = `# Metrics

What a worker serves at ` + "`/metrics`" + `, beside the usual ` + "`go_*` and `process_*`" + `. Each has the label ` + "`route`" + `, which stands for the
settings' routes and nothing else, but for ` + "`spillway_settings_*`" + `, which are the whole worker's; the others are of closed sets. Where
all values of a label are there from the start they are listed.

Prometheus names each worker by ` + "`instance`" + `. What a worker says of itself is summed over the workers; what is said "over
all workers" is the same from each and is taken once, with ` + "`max by (route)`" + `. The alerts in ` + "`deploy/prometheus/rules.yaml`" + `
and the dashboard in ` + "`deploy/grafana/`" + ` do so. Histograms are native where the scrape asks for that, and have buckets otherwise.

| metric | kind | labels | what it is |
|---|---|---|---|
`

func page(list []metric) []byte {
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, m := range list {
		var labels []string
		for name, vs := range m.labels {
			if name == "route" {
				continue
			}
			text := "`" + name + "`"
			if len(vs) > 0 {
				text += ": " + strings.Join(vs, ", ")
			}
			labels = append(labels, text)
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, "<br>"), m.help)
	}
	return []byte(b.String())
}

// ofWorker reports whether a metric is of the whole worker and not of one route.
func ofWorker(name string) bool { return strings.HasPrefix(name, "spillway_settings_") }

// listed reads docs/metrics.md back, by name.
func listed(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for line := range strings.Lines(string(read(t, metricsFile))) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || !strings.HasPrefix(cells[0], " `spillway_") {
			continue
		}
		m := metric{name: strings.Trim(cells[0], " `"), kind: cells[1], help: cells[3], labels: map[string][]string{}}
		if !ofWorker(m.name) {
			m.labels["route"] = nil
		}
		for label := range strings.SplitSeq(strings.TrimSpace(cells[2]), "<br>") {
			name, vs, _ := strings.Cut(label, ": ")
			if name = strings.Trim(name, "`"); name != "" {
				m.labels[name] = nil
				if vs != "" {
					m.labels[name] = strings.Split(vs, ", ")
				}
			}
		}
		all[m.name] = m
	}
	if len(all) < 20 {
		t.Fatalf("%d metrics in %s", len(all), metricsFile)
	}
	return all
}

func TestMetricsPageListsWhatAWorkerRegisters(t *testing.T) {
	t.Parallel()
	list := described(t)
	for _, m := range list {
		if !strings.HasPrefix(m.name, "spillway_") || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: %s", m.name, m.help)
		}
		if _, ok := m.labels["route"]; ok == ofWorker(m.name) {
			t.Errorf("%s says which route: %v", m.name, ok)
		}
		if len(m.labels) > 3 {
			t.Errorf("%s has too many labels", m.name)
		}
	}
	golden(t, metricsFile, page(list))
}

// series is what a scrape of the metric is called.
func series(m metric) []string {
	if m.kind == "histogram" {
		return []string{m.name + "_bucket", m.name + "_sum", m.name + "_count"}
	}
	return []string{m.name}
}
