package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/consumer"
	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/internal/wallet"
	"spillway/order"
	"spillway/worker"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func() int{"worker": child})
}

// child is a worker in a process of its own, so that it can be killed. DRILL_CRASH=step:n kills it when the nth
// record takes the step.
func child() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := worker.Load(os.Getenv("DRILL_CONFIG"), os.Environ())
	if err != nil {
		log.Error("config", slog.Any("error", err))
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w, err := worker.New(ctx, cfg, worker.Options{
		Logger: log, Trace: crasher(os.Getenv("DRILL_CRASH")), Handlers: handlers(cfg.Routes[0].Downstream.URL.Reveal()),
	})
	if err != nil {
		log.Error("worker", slog.Any("error", err))
		return 1
	}
	if err := w.Run(ctx); err != nil {
		log.Error("worker", slog.Any("error", err))
		return 1
	}
	return 0
}

func crasher(spec string) func(string, consumer.Step, string) {
	step, nth, _ := strings.Cut(spec, ":")
	n, err := strconv.Atoi(nth)
	if err != nil {
		return nil
	}
	var seen atomic.Int64
	return func(_ string, s consumer.Step, _ string) {
		if string(s) == step && seen.Add(1) == int64(n) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way: nothing more may happen here
		}
	}
}

// rig is one test's world: its topic, database, key prefix and wallet.
type rig struct {
	t      *testing.T
	wallet *wallet.Wallet
	broker *testkit.Broker
	store  *postgres.Store
	topic  string
	config string // path of the settings file
	env    []string
	number int // of the next order
}

// world says which servers a rig stands on; empty fields are the shared ones.
type world struct {
	kafka, redis, postgres string
	partitions             int
	topicConfigs           map[string]string
	env                    []string
	route                  string                          // more settings of the route, YAML indented by four
	breaker                string                          // a line of the route's settings, in place of the usual one
	wrap                   func(http.Handler) http.Handler // around the wallet
}

const route = "wallet"

func newRig(t *testing.T, w world) *rig {
	t.Helper()
	if w.kafka == "" {
		w.kafka = testkit.Kafka(t)
	}
	if w.redis == "" {
		w.redis = testkit.Redis(t)
	}
	if w.postgres == "" {
		w.postgres = testkit.Postgres(t)
	}
	if w.partitions == 0 {
		w.partitions = 3
	}
	r := &rig{t: t, broker: testkit.Dial(t, w.kafka), wallet: wallet.New(wallet.Config{Seed: 1}), env: w.env}
	r.topic = r.broker.Topic(t, w.partitions, w.topicConfigs)
	var handler http.Handler = r.wallet
	if w.wrap != nil {
		handler = w.wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)

	store := postgres.Config{URL: w.postgres}
	if _, err := postgres.Migrate(t.Context(), store, postgres.Up); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.store, err = postgres.Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.store.Close)

	prefix := strings.NewReplacer(":", "", "/", "-").Replace(testkit.Prefix(t))
	if len(prefix) > 40 {
		prefix = prefix[len(prefix)-40:]
	}
	r.config = filepath.Join(t.TempDir(), "spillway.yaml")
	if w.breaker == "" {
		w.breaker = "    breaker: {open_wait: 1s, open_wait_max: 2s, ramp_step: 300ms}"
	}
	yaml := fmt.Sprintf(settings, w.kafka, w.redis, prefix, w.postgres, route, r.topic, "g-"+r.topic, w.breaker, server.URL) + w.route
	if err := os.WriteFile(r.config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// settings are short waits, so that faults heal within a test's time. What they relate to each other is as by default.
const settings = `
kafka: {brokers: ["%s"], session_timeout: 3s, heartbeat: 500ms}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
log: {level: info, format: text}
shutdown: {grace: 2s}
routes:
  - name: %s
    topic: %s
    group: %s
    number: {from: value, pointer: /order_no}
    lease: 4s
%s
    replay: {delay: 200ms, delay_max: 1s, lease: 4s, patience: 2s}
    compensate: {after: 500ms, grace: 1500ms, delay: 300ms, delay_max: 1s, interval: 200ms}
    watch: 1s
    downstream:
      url: %s
      timeout: 300ms
      submit: {path: /pay}
      lookup: {path: "/pay/{number}"}
`

func (r *rig) work(env ...string) *testkit.Proc {
	r.t.Helper()
	return testkit.Child(r.t, "worker", append(append([]string{"DRILL_CONFIG=" + r.config}, r.env...), env...)...)
}

// binary builds the command once, without the race detector: what is measured and signalled is what users run.
var binary = sync.OnceValues(func() (string, error) {
	wd, err := os.Getwd() // of this checkout: another's binary must not be taken for ours
	if err != nil {
		return "", err
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-drill-%d-%08x", os.Getuid(), crc32.ChecksumIEEE([]byte(wd))), "spillway")
	out, err := exec.Command("go", "build", "-o", path, "spillway/cmd/spillway").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// command runs the real command's worker.
func (r *rig) command(env ...string) *testkit.Proc {
	r.t.Helper()
	path, err := binary()
	if err != nil {
		r.t.Fatal(err)
	}
	return testkit.Command(r.t, path, []string{"worker", "-c", r.config}, append(slices.Clip(r.env), env...))
}

// addr waits for the worker's HTTP address.
func (r *rig) addr(p *testkit.Proc) string {
	r.t.Helper()
	var addr string
	testkit.Eventually(r.t, 20*time.Second, func() (bool, string) {
		_, after, ok := strings.Cut(p.Output(), "http=")
		addr, _, _ = strings.Cut(after, "\n")
		return ok, "the worker does not listen: " + tail(p.Output())
	})
	return addr
}

// produce writes n new orders, dealt over the partitions by key.
func (r *rig) produce(n int) {
	r.t.Helper()
	records := make([]*kgo.Record, 0, n)
	for range n {
		r.number++
		no := fmt.Sprintf("T-%06d", r.number)
		records = append(records, &kgo.Record{
			Key: []byte(no), Value: fmt.Appendf(nil, `{"order_no":%q,"amount":1250,"currency":"CNY"}`, no),
		})
	}
	r.broker.Produce(r.t, r.topic, records...)
}

func (r *rig) tally() desk.Tally {
	r.t.Helper()
	tally, err := r.store.Tally(context.WithoutCancel(r.t.Context()), route)
	if err != nil {
		r.t.Fatal(err)
	}
	return tally
}

// awaitFinal waits until n orders are final.
func (r *rig) awaitFinal(n int, timeout time.Duration) {
	r.t.Helper()
	testkit.Eventually(r.t, timeout, func() (bool, string) {
		tally := r.tally()
		final := tally.State(order.Succeeded) + tally.State(order.Failed)
		return final == int64(n), fmt.Sprintf("%d of %d orders final: %+v; wallet %+v", final, n, tally, r.wallet.Counts())
	})
}

// awaitCommitted waits until the group has committed the whole log.
func (r *rig) awaitCommitted(timeout time.Duration) {
	r.t.Helper()
	testkit.Eventually(r.t, timeout, func() (bool, string) {
		lag := r.broker.Lag(r.t, "g-"+r.topic, r.topic)
		return lag == 0, fmt.Sprintf("%d records not committed", lag)
	})
}

// conserved checks the sum once everything has come to rest: n orders SUCCEEDED, each applied exactly once.
func (r *rig) conserved(n int) {
	r.t.Helper()
	tally, counts := r.tally(), r.wallet.Counts()
	r.t.Logf("conservation: %d produced = %d succeeded + %d failed + %d dead + %d processing; wallet: %d numbers, %d effects, %d applied twice, %d altered",
		n, tally.State(order.Succeeded), tally.State(order.Failed), tally.State(order.Dead), tally.State(order.Processing),
		counts.Numbers, counts.Effects, counts.Duplicates, counts.Altered)
	if tally.State(order.Succeeded) != int64(n) || tally.Total() != int64(n) {
		r.t.Errorf("%+v: want %d SUCCEEDED and nothing else", tally, n)
	}
	if counts.Numbers != int64(n) || counts.Effects != int64(n) || counts.Duplicates != 0 || counts.Altered != 0 {
		r.t.Errorf("wallet %+v: want one effect for each of %d orders; twice: %v", counts, n, r.wallet.Duplicates())
	}
}

// metric reads one sample of the worker's /metrics, summed over its label sets that hold all of labels.
func (r *rig) metric(addr, name string, labels ...string) float64 {
	r.t.Helper()
	body, status := r.get("http://" + addr + "/metrics")
	if status != http.StatusOK {
		r.t.Fatalf("/metrics: %d", status)
	}
	sum := 0.0
lines:
	for line := range strings.Lines(body) {
		head, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || (head != name && !strings.HasPrefix(head, name+"{")) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(head, l) {
				continue lines
			}
		}
		if _, after, found := strings.Cut(strings.TrimSpace(line), "} "); found {
			value = after
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.t.Fatalf("metric %q: %v", line, err)
		}
		sum += v
	}
	return sum
}

func (r *rig) get(url string) (body string, status int) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b), resp.StatusCode
}

// ready reads /readyz.
func (r *rig) ready(addr string) (ready bool, checks map[string]string) {
	r.t.Helper()
	body, _ := r.get("http://" + addr + "/readyz")
	var report struct {
		Ready  bool              `json:"ready"`
		Checks map[string]string `json:"checks"`
	}
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		r.t.Fatal(err)
	}
	return report.Ready, report.Checks
}

func tail(s string) string {
	if len(s) > 3000 {
		return s[len(s)-3000:]
	}
	return s
}

var dialer net.Dialer

func record(key, value string, headers ...kgo.RecordHeader) *kgo.Record {
	return &kgo.Record{Key: []byte(key), Value: []byte(value), Headers: headers}
}

func nullValue(key string, headers ...kgo.RecordHeader) *kgo.Record {
	return &kgo.Record{Key: []byte(key), Headers: headers}
}

func nullKey(value string) *kgo.Record { return &kgo.Record{Value: []byte(value)} }

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

// letters lists the dead letters, whole.
func (r *rig) letters() []desk.Letter {
	r.t.Helper()
	list, err := r.store.ListDeadLetters(r.t.Context(), desk.LetterFilter{Route: route, Status: desk.Waiting})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []desk.Letter
	for _, l := range list {
		whole, err := r.store.ShowDeadLetter(r.t.Context(), l.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, whole)
	}
	return out
}

// unknown is where an order stands that the compensator will look up.
var unknown = desk.Place{State: order.Processing, Phase: order.Unknown}

// readBody reads a request's body and puts it back for the next reader.
func readBody(q *http.Request) string {
	b, err := io.ReadAll(q.Body)
	if err != nil {
		return "unread: " + err.Error()
	}
	q.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}
