package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/breaker"
	"spillway/breaker/fleet"
	"spillway/internal/config"
	"spillway/internal/desk"
	"spillway/internal/postgres"
	"spillway/internal/testkit"
	"spillway/order"
)

// ill is a service that always fails.
type ill struct{}

func (ill) Submit(context.Context, *order.Order) order.Answer {
	return order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed, Detail: "connection refused"}
}

func (ill) Lookup(context.Context, *order.Order) order.Finding {
	return order.Finding{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}
}

// told collects what a webhook was sent.
type told struct {
	mu     sync.Mutex
	bodies []string
}

func (h *told) ServeHTTP(rw http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies = append(h.bodies, string(body))
}

func (h *told) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.bodies, "\n")
}

const alertSettings = `
kafka: {brokers: ["%s"], session_timeout: 3s, heartbeat: 500ms}
redis: {url: "%s", prefix: "%s"}
postgres: {url: "%s"}
http: {listen: "127.0.0.1:0"}
shutdown: {grace: 2s}
alerts:
  webhooks:
    - {name: ops, url: "%s/C4NARY", min_interval: 1s}
    - {name: chat, form: slack, url: "%s/C4NARY", min_interval: 1s}
    - {name: gone, url: "http://127.0.0.1:1/C4NARY"}
routes:
  - name: wallet
    topic: %s
    group: g-%s
    watch: 1s
    breaker: {consecutive: 5, open_wait: 10m, open_wait_max: 10m}
    downstream: {url: "http://127.0.0.1:1", submit: {path: /pay}, lookup: {path: "/pay/{number}"}}
`

func TestABreakerThatOpensIsWrittenDownAndToldToEveryWebhook(t *testing.T) {
	t.Parallel()
	brokers, cache, database := testkit.Kafka(t), testkit.Redis(t), testkit.Postgres(t)
	prefix := strings.NewReplacer(":", "", "/", "-").Replace(testkit.Prefix(t))
	prefix = prefix[max(0, len(prefix)-40):]
	broker := testkit.Dial(t, brokers)
	topic := broker.Topic(t, 1, nil)
	ops, chat := new(told), new(told)
	opsServer, chatServer := httptest.NewServer(ops), httptest.NewServer(chat)
	t.Cleanup(opsServer.Close)
	t.Cleanup(chatServer.Close)
	// Postgres is reached through a proxy that can go silent.
	at := strings.Index(database, "@") + 1
	end := at + strings.IndexByte(database[at:], '/')
	proxy := testkit.StartProxy(t, database[at:end])
	cfg, err := config.Parse("test", fmt.Appendf(nil, alertSettings, brokers, cache, prefix, database[:at]+proxy.Addr()+database[end:],
		opsServer.URL, chatServer.URL, topic, topic), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Migrate(t.Context(), postgres.Config{URL: database}, postgres.Up); err != nil {
		t.Fatal(err)
	}
	log := new(logBuffer)
	w, err := New(t.Context(), cfg, Options{Handlers: map[string]order.Handler{"wallet": ill{}}, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(stop)
	for i := range 10 {
		broker.Produce(t, topic, &kgo.Record{Key: fmt.Append(nil, "A-", i), Value: []byte("{}")})
	}

	store, err := postgres.Open(t.Context(), postgres.Config{URL: database})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	row := func(to string) (found desk.BreakerEvent) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() (bool, string) {
			events, err := store.BreakerEvents(t.Context(), desk.BreakerEventFilter{Route: "wallet"})
			if err != nil || len(events) == 0 {
				return false, fmt.Sprintf("%d events, %v", len(events), err)
			}
			found = events[0]
			return found.To == to, fmt.Sprintf("latest event %+v", found)
		})
		return found
	}
	e := row("open")
	if e.Worker != w.Owner() || e.Reason != "consecutive-failures" || e.Mode != "enforce" || e.Threshold != 5 || e.Wait < time.Minute ||
		len(e.Errors) != desk.MaxCallErrors || !strings.HasPrefix(e.Errors[4].Number, "A-") || e.Errors[4].Reason != "CONNECT_FAILED" {
		t.Errorf("row %+v", e)
	}
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		said := chat.all()
		return strings.Contains(ops.all(), `"to":"open"`) && strings.Contains(said, "breaker wallet/submit is open") &&
			strings.Contains(said, "CONNECT_FAILED, order A-"), fmt.Sprintf("ops %q, chat %q", ops.all(), said)
	})

	// An operator's order names the operator.
	_, err = fleet.Give(t.Context(), w.redis.Breakers(), fleet.Order{
		Key: breaker.Key{Service: "wallet", Endpoint: "submit"}, Force: breaker.ForceClosed, For: time.Hour, Operator: "ada", Reason: "it is well",
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := row("closed"); e.Operator != "ada" || e.Note != "it is well" || e.Source != "forced" {
		t.Errorf("row %+v", e)
	}

	// Without Postgres a breaker moves as fast as ever, and the worker ends in time.
	proxy.Stall()
	begin := time.Now()
	b := w.routes[0].breakers[1]
	for range 200 {
		for _, force := range []breaker.Force{breaker.ForceOpen, breaker.ForceNone} {
			if err := b.Force(force, time.Minute); err != nil {
				t.Fatal(err)
			}
			b.Ready()
		}
	}
	if d := time.Since(begin); d > time.Second {
		t.Errorf("moving took %v without Postgres", d)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the worker does not end")
	}
	if strings.Contains(log.String(), "C4NARY") || !strings.Contains(log.String(), `"target":"gone"`) {
		t.Errorf("log:\n%s", log)
	}
	if !json.Valid([]byte(strings.SplitN(ops.all(), "\n", 2)[0])) {
		t.Errorf("no JSON: %s", ops.all())
	}
}

// logBuffer is a log to be read while it is written. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(b, nil)) }

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
