package check

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/testkit"
)

// TestTrialDelivers runs what the compose file runs, with its settings and commands, on the tests' servers: the schema is
// made, the wallet and a worker start, orders become final, SIGTERM drains.
func TestTrialDelivers(t *testing.T) {
	t.Parallel()
	kafka, redis, db := testkit.Kafka(t), testkit.Redis(t), testkit.Postgres(t)
	const orders = 60
	prefix := strings.Trim(strings.ReplaceAll(testkit.Prefix(t), ":", "-"), "-") // the settings take no colon
	broker := testkit.Dial(t, kafka)
	topic := broker.Topic(t, 3, nil)
	program, settings := spillway(t), filepath.Join(root, "deploy/spillway.yaml")

	wallet := testkit.Command(t, program, []string{"wallet", "--listen", "127.0.0.1:0"}, nil)
	walletURL := printed(t, wallet, `listening on (http://[^, ]+)`)
	env := []string{
		"SPILLWAY_CONFIG=" + settings, "SPILLWAY_KAFKA_BROKERS=" + kafka, "SPILLWAY_REDIS_URL=" + redis,
		"SPILLWAY_REDIS_PREFIX=" + prefix, "SPILLWAY_POSTGRES_URL=" + db, "SPILLWAY_HTTP_LISTEN=127.0.0.1:0",
		"SPILLWAY_ROUTES_WALLET_TOPIC=" + topic, "SPILLWAY_ROUTES_WALLET_GROUP=" + topic,
		"SPILLWAY_ROUTES_WALLET_DOWNSTREAM_URL=" + walletURL,
	}
	if out, err := output(t, env, program, "migrate", "up"); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	records := []*kgo.Record{{Value: []byte(`{"amount":1}`)}} // no key, so no business number: a dead letter
	for i := range orders {
		number := fmt.Sprintf("T-%d", i)
		records = append(records, &kgo.Record{Key: []byte(number), Value: fmt.Appendf(nil, `{"order_no":%q,"amount":100}`, number)})
	}
	broker.Produce(t, topic, records...)
	worker := testkit.Command(t, program, []string{"worker"}, env)
	workerURL := "http://" + printed(t, worker, `"http":"([^"]+)"`)

	testkit.Eventually(t, time.Minute, func() (bool, string) {
		families := scrape(t, workerURL)
		succeeded := sum(families["spillway_live_outcomes_total"], "outcome", "SUCCEEDED")
		dead := sum(families["spillway_dead_letters"], "route", "wallet")
		lag := sum(families["spillway_kafka_lag_records"], "route", "wallet")
		return succeeded == orders && dead == 1 && lag == 0,
			fmt.Sprintf("%v of %d succeeded, %v dead letters, lag %v", succeeded, orders, dead, lag)
	})
	var counts struct{ Numbers, Duplicates int }
	if err := json.Unmarshal(get(t, walletURL+"/counts"), &counts); err != nil || counts.Numbers != orders || counts.Duplicates != 0 {
		t.Errorf("the wallet applied %+v (%v)", counts, err)
	}
	get(t, workerURL+"/livez")
	get(t, workerURL+"/readyz")
	checkScrape(t, scrape(t, workerURL))

	worker.Signal(syscall.SIGTERM)
	if code := worker.Wait(15 * time.Second); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if lag := broker.Lag(t, topic, topic); lag != 0 {
		t.Errorf("%d records are not committed", lag)
	}
}

// checkScrape compares what a worker serves with what docs/metrics.md says it does.
func checkScrape(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	known := listed(t)
	for name, f := range families {
		if !strings.HasPrefix(name, "spillway_") {
			continue
		}
		m, ok := known[name]
		if !ok {
			t.Errorf("%s is served and not in %s", name, metricsFile)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != m.kind {
			t.Errorf("%s is a %s, and a %s in %s", name, got, m.kind, metricsFile)
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if _, ok := m.labels[l.GetName()]; !ok {
				t.Errorf("%s has a label %s, which is not in %s", name, l.GetName(), metricsFile)
			}
		}
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_start_time_seconds", "go_goroutines"} {
		if families[name] == nil {
			t.Errorf("%s is not served", name)
		}
	}
}

// printed waits until the process has printed what matches, and returns the group of it.
func printed(t *testing.T, p *testkit.Proc, pattern string) string {
	t.Helper()
	var found []string
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		found = regexp.MustCompile(pattern).FindStringSubmatch(p.Output())
		return found != nil, "printed " + p.Output()
	})
	return found[1]
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", url, response.Status, err, body)
	}
	return body
}

func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(string(get(t, url+"/metrics"))))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func sum(f *dto.MetricFamily, label, value string) float64 {
	total := 0.0
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}
