package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/internal/desk"
)

// record is a Recorder in memory. While err is set it takes nothing.
type record struct {
	mu     sync.Mutex
	err    error
	calls  int
	events []desk.BreakerEvent
	block  bool // until the caller gives up
}

func (r *record) AddBreakerEvents(ctx context.Context, events []desk.BreakerEvent) error {
	r.mu.Lock()
	r.calls++
	block := r.block
	r.mu.Unlock()
	if block {
		<-ctx.Done()
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.events = append(r.events, events...)
	}
	return r.err
}

// service is a webhook's server in memory: it answers with what answers says, the last one for ever.
type service struct {
	mu      sync.Mutex
	answers []answer
	got     []got
}

type answer struct {
	status     int
	body       string
	retryAfter string
	err        error
}

type got struct {
	at   time.Time
	body string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a := answer{status: 200, body: "ok"}
	if len(s.answers) > 0 {
		a = s.answers[min(len(s.got), len(s.answers)-1)]
	}
	s.got = append(s.got, got{time.Now(), string(body)})
	if a.err != nil {
		return nil, a.err
	}
	head := http.Header{}
	if a.retryAfter != "" {
		head.Set("Retry-After", a.retryAfter)
	}
	return &http.Response{StatusCode: a.status, Header: head, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// rig is a notifier that runs until the test ends.
type rig struct {
	*Notifier

	record   *record
	registry *prometheus.Registry
	log      *bytes.Buffer // to be read when nothing runs
	stop     func()        // and wait
}

func run(t *testing.T, c Config, transport http.RoundTripper, rec *record) *rig {
	t.Helper()
	r := &rig{record: rec, log: new(bytes.Buffer), registry: prometheus.NewRegistry()}
	c.Routes = []string{"wallet", "ledger"}
	r.Notifier = New(c, rec, transport, nil, slog.New(slog.NewTextHandler(r.log, nil)), r.registry)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

func (r *rig) counted(target, result string) int {
	return value(r.registry, "spillway_notifications_total", target+" "+result)
}

// value reads a counter of the route wallet; labels are the others' values.
func value(registry *prometheus.Registry, name, labels string) int {
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && has["route"] == "wallet" && strings.TrimSpace(has["target"]+" "+has["result"]) == labels {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return -1
}

func hookOf(form Form) Webhook {
	return Webhook{Name: "ops", Form: form, URL: "https://hooks.example/services/T/C4NARY-token?key=C4NARY-key", MinInterval: 10 * time.Second}
}

func numbered(n uint64) desk.BreakerEvent {
	e := opening()
	e.Generation = n
	return e
}

func TestAMessageIsTriedAgainWithGrowingWaitsUntilItIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answers: []answer{{err: errors.New("dial: no route to host")}, {status: 503}, {status: 429, retryAfter: "7"}, {status: 200}}}
		r := run(t, Config{Webhooks: []Webhook{hookOf(Slack)}}, s, new(record))
		begin := time.Now()
		r.Notify(numbered(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		var waits []time.Duration
		for _, g := range s.got {
			waits = append(waits, g.at.Sub(begin))
		}
		if fmt.Sprint(waits) != "[0s 1s 3s 10s]" {
			t.Errorf("tried after %v", waits)
		}
		if r.counted("ops", resultSent) != 1 || r.counted("ops", resultFailed) != 0 {
			t.Errorf("sent %d, failed %d", r.counted("ops", resultSent), r.counted("ops", resultFailed))
		}
	})
}

func TestTriesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{answers: []answer{{status: 500}}}
		r := run(t, Config{Webhooks: []Webhook{hookOf(Generic)}}, s, new(record))
		r.Notify(numbered(1))
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.got) != 5 || r.counted("ops", resultFailed) != 1 {
			t.Errorf("%d tries, failed %d", len(s.got), r.counted("ops", resultFailed))
		}
	})
}

func TestARefusalIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		form   Form
		answer answer
		tries  int
	}{
		{Slack, answer{status: 404, body: "no_service"}, 1},
		{Generic, answer{status: 302}, 1}, // redirects are not followed
		{Feishu, answer{status: 200, body: `{"code":19021,"msg":"sign match fail or timestamp is not within one hour"}`}, 1},
		{Feishu, answer{status: 200, body: `{"code":11232,"msg":"frequency limited"}`}, 5},
		{Feishu, answer{status: 200, body: `<html>`}, 1},
		{DingTalk, answer{status: 200, body: `{"errcode":310000,"errmsg":"keywords not in content"}`}, 1},
		{DingTalk, answer{status: 200, body: `{"errcode":130101,"errmsg":"send too fast"}`}, 5},
		{WeCom, answer{status: 200, body: `{"errcode":93000,"errmsg":"invalid webhook url"}`}, 1},
		{WeCom, answer{status: 200, body: `{"errcode":45009,"errmsg":"api freq out of limit"}`}, 5},
	} {
		t.Run(fmt.Sprint(x.form, x.answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &service{answers: []answer{x.answer}}
				r := run(t, Config{Webhooks: []Webhook{hookOf(x.form)}}, s, new(record))
				r.Notify(numbered(1))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if len(s.got) != x.tries || r.counted("ops", resultFailed) != 1 || r.counted("ops", resultSent) != 0 {
					t.Errorf("%d tries, want %d; failed %d, sent %d", len(s.got), x.tries, r.counted("ops", resultFailed), r.counted("ops", resultSent))
				}
			})
		})
	}
	for form, body := range map[Form]string{
		Slack: "ok", Generic: "", Feishu: `{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}`,
		DingTalk: `{"errcode":0,"errmsg":"ok"}`, WeCom: `{"errcode":0,"errmsg":"ok"}`,
	} {
		h := &hook{Webhook: hookOf(form), transport: &service{answers: []answer{{status: 200, body: body}}}}
		if _, err := h.deliver(t.Context(), []desk.BreakerEvent{opening()}, 0); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
}

func TestMessagesKeepTheirIntervalAndSayHowManyMovesTheyLeaveOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		r := run(t, Config{Webhooks: []Webhook{hookOf(Generic)}}, s, new(record))
		begin := time.Now()
		for i := range uint64(30) { // one a second
			r.Notify(numbered(i + 1))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var said []string
		total := 0
		for _, g := range s.got {
			var m genericMessage
			if err := json.Unmarshal([]byte(g.body), &m); err != nil {
				t.Fatal(err)
			}
			total += len(m.Events) + m.Suppressed
			said = append(said, fmt.Sprintf("%v: %d and %d", g.at.Sub(begin).Round(time.Second), m.Events[0].Generation, m.Suppressed))
		}
		if total != 30 || len(s.got) != 4 {
			t.Errorf("%d events told of, in %q", total, said)
		}
		for i := 1; i < len(s.got); i++ {
			if d := s.got[i].at.Sub(s.got[i-1].at); d < 10*time.Second {
				t.Errorf("messages %v apart", d)
			}
		}
		if r.counted("ops", resultSent) != 4 || r.counted("ops", resultCollapsed) != 26 {
			t.Errorf("sent %d, collapsed %d", r.counted("ops", resultSent), r.counted("ops", resultCollapsed))
		}
		if len(r.record.events) != 30 {
			t.Errorf("%d events in the record, which has no such limit", len(r.record.events))
		}
	})
}

func TestAFullMailboxLosesTheOldestAndCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &record{}
		registry := prometheus.NewRegistry()
		n := New(Config{Routes: []string{"wallet"}}, rec, nil, nil, slog.New(slog.DiscardHandler), registry)
		for i := range uint64(boxLimit + 10) {
			n.Notify(numbered(i + 1))
		}
		if got := value(registry, "spillway_notifications_dropped_total", RecordTarget); got != 10 {
			t.Errorf("%v dropped, want 10", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if len(rec.events) != boxLimit || rec.events[0].Generation != 11 || rec.events[boxLimit-1].Generation != boxLimit+10 {
			t.Errorf("%d events, from %d", len(rec.events), rec.events[0].Generation)
		}
	})
}

func TestARecordThatIsAwayHoldsNobodyUpAndGetsAllOfItLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec := &record{block: true}
		s := &service{}
		r := run(t, Config{Webhooks: []Webhook{hookOf(Slack)}}, s, rec)
		begin := time.Now()
		for i := range uint64(20) {
			r.Notify(numbered(i + 1))
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("notifying took %v", d)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.got) != 1 {
			t.Errorf("%d messages while the record hangs", len(s.got))
		}
		time.Sleep(time.Minute)
		rec.mu.Lock()
		rec.block = false
		rec.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(rec.events) != 20 || r.counted(RecordTarget, resultSent) != 20 {
			t.Errorf("%d events written after %d calls, counted %d", len(rec.events), rec.calls, r.counted(RecordTarget, resultSent))
		}
	})
}

func TestWhatWaitsIsToldAtTheEndWithinTheFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		r := run(t, Config{Webhooks: []Webhook{hookOf(Slack)}}, s, new(record))
		r.Notify(numbered(1))
		time.Sleep(time.Second)
		r.Notify(numbered(2)) // waits for its interval
		synctest.Wait()
		begin := time.Now()
		r.stop()
		if len(s.got) != 2 || len(r.record.events) != 2 || time.Since(begin) > time.Second {
			t.Errorf("%d messages, %d records, after %v", len(s.got), len(r.record.events), time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		rec := &record{block: true}
		r := run(t, Config{}, nil, rec)
		r.Notify(numbered(1))
		synctest.Wait()
		begin := time.Now()
		r.stop()
		if d := time.Since(begin); d > time.Second || r.counted(RecordTarget, resultFailed) != 1 {
			t.Errorf("ended after %v with a record that hangs, failed %d", d, r.counted(RecordTarget, resultFailed))
		}
	})
}

func TestNoLogLineShowsAnAddressOrASecret(t *testing.T) {
	t.Parallel()
	const token, key, secret = "C4NARY-token", "C4NARY-key", "C4NARY-secret"
	for _, a := range []answer{
		{err: fmt.Errorf("Post %q: x509 for /services/T/%s?key=%s (%s)", hookOf(Slack).URL, token, key, secret)},
		{status: 403, body: token + secret},
		{status: 500, body: token + secret},
		{status: 200, body: fmt.Sprintf(`{"errcode":1,"code":1,"errmsg":%q,"msg":%q}`, token+" "+key+" "+secret, hookOf(Slack).URL+secret)},
	} {
		for f := Generic; f <= WeCom; f++ {
			synctest.Test(t, func(t *testing.T) {
				w := hookOf(f)
				w.Secret = secret
				r := run(t, Config{Webhooks: []Webhook{w}}, &service{answers: []answer{a}}, new(record))
				r.Notify(numbered(1))
				time.Sleep(10 * time.Minute)
				r.stop()
				if strings.Contains(r.log.String(), "C4NARY") {
					t.Errorf("%s:\n%s", f, r.log)
				}
				if (a.err != nil || a.status != 200) && !strings.Contains(r.log.String(), "target=ops") {
					t.Errorf("%s: nothing was logged of %+v:\n%s", f, a, r.log)
				}
			})
		}
	}
	h := &hook{Webhook: Webhook{URL: "https://h/\x7fC4NARY"}, transport: &service{}}
	if _, err := h.deliver(t.Context(), []desk.BreakerEvent{opening()}, 0); err == nil || strings.Contains(err.Error(), "C4NARY") {
		t.Errorf("an address that can't be parsed: %v", err)
	}
}

func TestARealServerIsReachedOverTLSAloneAndRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var paths []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /away", func(rw http.ResponseWriter, q *http.Request) {
		http.Redirect(rw, q, "/taken", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /taken", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /flood", func(rw http.ResponseWriter, _ *http.Request) {
		for range 1000 {
			_, _ = rw.Write(bytes.Repeat([]byte("x"), 4096))
		}
	})
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		mu.Lock()
		paths = append(paths, q.URL.Path)
		mu.Unlock()
		mux.ServeHTTP(rw, q)
	}))
	t.Cleanup(server.Close)
	try := func(path string, transport http.RoundTripper) error {
		h := &hook{Webhook: Webhook{URL: server.URL + path}, transport: transport}
		_, err := h.deliver(t.Context(), []desk.BreakerEvent{opening()}, 0)
		return err
	}
	trusting := newTransport(10 * time.Second)
	trusting.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig //nolint:errcheck,forcetypeassert // httptest makes it so
	if err := try("/taken", trusting); err != nil {
		t.Error(err)
	}
	if err := try("/flood", trusting); err != nil {
		t.Errorf("a long answer: %v", err)
	}
	if err := try("/away", trusting); err == nil || !isFinal(err) {
		t.Errorf("a redirect: %v", err)
	}
	if err := try("/taken", newTransport(10*time.Second)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate nobody vouches for: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(paths) != "[/taken /flood /away]" {
		t.Errorf("the server saw %v", paths)
	}
}
