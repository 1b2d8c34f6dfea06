package downstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/order"
)

// seen is one request as a server saw it.
type seen struct {
	method, uri, key, sum string
	header                http.Header
	body                  string
	length                int64
}

// service is a scripted downstream that writes down what it sees.
type service struct {
	*httptest.Server
	conns atomic.Int32 // ever opened
	mu    sync.Mutex
	calls []seen
}

func (s *service) log() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.calls...)
}

func newService(t *testing.T, answer http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.calls = append(s.calls, seen{
			method: r.Method, uri: r.RequestURI, key: r.Header.Get("Idempotency-Key"),
			sum: fmt.Sprintf("%x", sha256.Sum256(b)), header: r.Header.Clone(), body: string(b), length: r.ContentLength,
		})
		s.mu.Unlock()
		answer(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func newHTTP(t *testing.T, c Config) *HTTP {
	t.Helper()
	if c.Lookup.Path == "" {
		c.Lookup.Path = "/pay/{number}"
	}
	if c.Submit.Path == "" {
		c.Submit.Path = "/pay"
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func testOrder(number string) *order.Order {
	return &order.Order{
		ID: 1, Route: "payments", Number: number,
		Message: order.Message{
			Topic: "orders.in", Key: []byte(number),
			Value:   []byte(`{"order_no":"T-1001","amount":1250.00,"currency":"CNY","who":{"name":"a\"b/ü"}}`),
			Headers: []order.Header{{Key: "trace", Value: []byte("old")}, {Key: "trace", Value: []byte("new")}},
		},
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
}

// cutConn answers a request by writing raw bytes, perhaps none, and closing the connection.
func cutConn(t *testing.T, w http.ResponseWriter, raw string) {
	t.Helper()
	conn, _, err := w.(http.Hijacker).Hijack() //nolint:errcheck // net/http's server hands out nothing else
	if err != nil {
		t.Error(err)
		return
	}
	write(t, conn, raw)
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestSubmitSendsNumberAsKeyAndValueAsItIs(t *testing.T) {
	t.Parallel()
	s := newService(t, func(http.ResponseWriter, *http.Request) {})
	h := newHTTP(t, Config{URL: s.URL + "/v1/", BearerToken: "t0ken-of-ours"})
	o := testOrder("T-1001")
	a := h.Submit(within(t, 5*time.Second), o)
	if a.Outcome != order.OutcomeSucceeded || a.Reason != order.Confirmed || a.Status != 200 || !a.Sent || a.Took <= 0 {
		t.Fatalf("answer %+v", a)
	}
	got := s.log()
	if len(got) != 1 {
		t.Fatalf("server saw %d calls", len(got))
	}
	c := got[0]
	if c.method != "POST" || c.uri != "/v1/pay" || c.key != "T-1001" || c.body != string(o.Message.Value) {
		t.Errorf("server saw %+v", c)
	}
	if c.length != int64(len(o.Message.Value)) {
		t.Errorf("content length %d, value has %d bytes", c.length, len(o.Message.Value))
	}
	if ct, auth := c.header.Get("Content-Type"), c.header.Get("Authorization"); ct != "application/json" || auth != "Bearer t0ken-of-ours" {
		t.Errorf("content type %q, authorization %q", ct, auth)
	}
}

// The transport repeats a request that carries an Idempotency-Key when a reused connection is cut and the body can be
// rewound, or is empty.
func TestCutOnReusedConnectionIsSeenOnceByServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		value  string
	}{
		"post":            {"POST", `{"a":1}`},
		"post, no bytes":  {"POST", ``},
		"put":             {"PUT", `{"a":1}`},
		"delete, no body": {"DELETE", ``},
		"get, no body":    {"GET", ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == "cut" {
					cutConn(t, w, "")
				}
			})
			h := newHTTP(t, Config{URL: s.URL, Submit: Request{Method: c.method}})
			warm, cut := testOrder("warm"), testOrder("cut")
			warm.Message.Value, cut.Message.Value = []byte(c.value), []byte(c.value)
			for range 3 {
				if a := h.Submit(within(t, 5*time.Second), warm); a.Outcome != order.OutcomeSucceeded {
					t.Fatalf("warm-up: %+v", a)
				}
			}
			if n := s.conns.Load(); n != 1 {
				t.Fatalf("%d connections before the cut: want 1, reused", n)
			}
			a := h.Submit(within(t, 5*time.Second), cut)
			if a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamReset || !a.Sent {
				t.Errorf("answer %+v: want UNKNOWN", a)
			}
			n := 0
			for _, call := range s.log() {
				if call.key == "cut" {
					n++
				}
			}
			if n != 1 {
				t.Errorf("server saw the order %d times: want 1", n)
			}
		})
	}
}

func TestEveryAttemptIsTheSameRequest(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) <= 2 {
			cutConn(t, w, "") // the effect stands, the answer is lost
		}
	})
	config := Config{URL: s.URL, Submit: Request{Body: `{"no":"{number}","paid":{value:/amount},"from":{value},"who":"{value:/who/name}"}`}}
	h := newHTTP(t, config)
	o := testOrder("T-1001")
	var outcomes []order.Outcome
	for i := range 3 {
		o.Attempts, o.AttemptsTotal, o.Version, o.Life = i+1, i+1, int64(i), i
		if i == 2 {
			h = newHTTP(t, config) // a restart between the attempts
		}
		outcomes = append(outcomes, h.Submit(within(t, 5*time.Second), o).Outcome)
	}
	if outcomes[0] != order.OutcomeUnknown || outcomes[1] != order.OutcomeUnknown || outcomes[2] != order.OutcomeSucceeded {
		t.Errorf("outcomes %v", outcomes)
	}
	calls := s.log()
	if len(calls) != 3 {
		t.Fatalf("server saw %d calls", len(calls))
	}
	for _, c := range calls {
		if c.key != "T-1001" || c.sum != calls[0].sum || c.length <= 0 || int(c.length) != len(c.body) {
			t.Errorf("a call differs: %+v", c)
		}
	}
	want := `{"no":"T-1001","paid":1250.00,"from":` + string(o.Message.Value) + `,"who":"a\"b/ü"}`
	if calls[0].body != want {
		t.Errorf("body %s\nwant %s", calls[0].body, want)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		other := newService(t, func(http.ResponseWriter, *http.Request) {})
		s := newService(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/pay", status) })
		h := newHTTP(t, Config{URL: s.URL})
		if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamUnexpected || a.Status != status {
			t.Errorf("%d: submit %+v", status, a)
		}
		if f := h.Lookup(within(t, 5*time.Second), testOrder("T-1")); f.Verdict != order.VerdictNone || f.Status != status {
			t.Errorf("%d: lookup %+v", status, f)
		}
		if n := len(other.log()); n != 0 {
			t.Errorf("%d: the redirect was followed %d times", status, n)
		}
	}
}

func TestAnswerCutAfterStatusLineIsUnknown(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"content length": "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"status\":\"SUCC",
		"chunked":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n16\r\n{\"status\":\"SUCC",
		"no body yet":    "HTTP/1.1 422 No\r\nContent-Length: 50\r\n\r\n",
		"in the headers": "HTTP/1.1 200 OK\r\nContent-Le",
		"nonsense":       "hello\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(w http.ResponseWriter, _ *http.Request) { cutConn(t, w, raw) })
			h := newHTTP(t, Config{URL: s.URL})
			if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamReset || !a.Sent {
				t.Errorf("submit %+v", a)
			}
			if f := h.Lookup(within(t, 5*time.Second), testOrder("T-1")); f.Verdict != order.VerdictNone || f.Outcome != order.OutcomeUnknown {
				t.Errorf("lookup %+v", f)
			}
		})
	}
}

// The body of a 101 is the bare connection: it once held the permit for as long as the service kept the socket.
func TestSwitchingProtocolsIsUnknownAtOnce(t *testing.T) {
	t.Parallel()
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		_ = buf.Flush() // the client may be gone
	})
	h := newHTTP(t, Config{URL: s.URL})
	start := time.Now()
	if a := h.Submit(within(t, 20*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeUnknown || !a.Sent || a.Status != 101 {
		t.Errorf("submit %+v", a)
	}
	if f := h.Lookup(within(t, 20*time.Second), testOrder("T-1")); f.Verdict != order.VerdictNone {
		t.Errorf("lookup %+v", f)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("two calls took %s", took)
	}
}

func TestAnswerBeyondTheBoundIsUnknown(t *testing.T) {
	t.Parallel()
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) { write(t, w, strings.Repeat("x", 101)) })
	h := newHTTP(t, Config{URL: s.URL, MaxAnswer: 100})
	if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamUnexpected {
		t.Errorf("101 bytes: %+v", a)
	}
	h = newHTTP(t, Config{URL: s.URL, MaxAnswer: 101})
	if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeSucceeded {
		t.Errorf("within the bound: %+v", a)
	}
}

func TestNothingSentIsNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	plain := newService(t, func(http.ResponseWriter, *http.Request) {})
	silent := silentListener(t)
	for name, c := range map[string]struct{ url, detail string }{
		"refused":             {refusing, "refused"},
		"no such host":        {"http://nowhere.invalid", "not sent"},
		"no TLS there":        {strings.Replace(plain.URL, "http:", "https:", 1), "not sent"},
		"TLS never completes": {"https://" + silent, "no connection in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHTTP(t, Config{URL: c.url})
			a := h.Submit(within(t, 500*time.Millisecond), testOrder("T-1"))
			if a.Outcome != order.OutcomeNotSent || a.Reason != order.ConnectFailed || a.Sent || !strings.Contains(a.Detail, c.detail) {
				t.Errorf("submit %+v", a)
			}
			if f := h.Lookup(within(t, 500*time.Millisecond), testOrder("T-1")); f.Verdict != order.VerdictNone || f.Outcome != order.OutcomeNotSent {
				t.Errorf("lookup %+v", f)
			}
		})
	}
}

// silentListener accepts connections and never says a word.
func silentListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

func TestSilenceAfterSendingIsUpstreamTimeout(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, Config{URL: "http://" + silentListener(t)})
	a := h.Submit(within(t, 50*time.Millisecond), testOrder("T-1"))
	if a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout || !a.Sent || a.Took < 40*time.Millisecond {
		t.Errorf("submit %+v", a)
	}
	f := h.Lookup(within(t, 50*time.Millisecond), testOrder("T-1"))
	if f.Verdict != order.VerdictNone || f.Reason != order.UpstreamTimeout || f.Outcome != order.OutcomeUnknown {
		t.Errorf("lookup %+v", f)
	}
}

func TestBodyThatNeverEndsIsUpstreamTimeout(t *testing.T) {
	t.Parallel()
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	h := newHTTP(t, Config{URL: s.URL})
	if a := h.Submit(within(t, 100*time.Millisecond), testOrder("T-1")); a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout || a.Status != 200 {
		t.Errorf("submit %+v", a)
	}
}

func TestOurOwnStopIsCancelled(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	h := newHTTP(t, Config{URL: s.URL})
	parent, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(parent, time.Minute, errors.New("call timeout"))
	defer cancel()
	done := make(chan order.Answer, 1)
	go func() { done <- h.Submit(ctx, testOrder("T-1")) }()
	<-arrived
	stop(errors.New("worker stops"))
	if a := <-done; a.Outcome != order.OutcomeCancelled || a.Reason != order.Shutdown || !a.Sent {
		t.Errorf("after sending: %+v", a)
	}
	if a := h.Submit(ctx, testOrder("T-1")); a.Outcome != order.OutcomeCancelled || a.Sent {
		t.Errorf("before sending: %+v", a)
	}
	if f := h.Lookup(ctx, testOrder("T-1")); f.Verdict != order.VerdictRefused || f.Outcome != order.OutcomeCancelled {
		t.Errorf("lookup: %+v", f)
	}
	if n := len(s.log()); n != 1 {
		t.Errorf("server saw %d calls", n)
	}
}

func TestCauseOfTheCallsDeadlineIsStillATimeout(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, Config{URL: "http://" + silentListener(t)})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("call timeout"))
	defer cancel()
	if a := h.Submit(ctx, testOrder("T-1")); a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout {
		t.Errorf("submit %+v", a)
	}
	<-ctx.Done()
	if a := h.Submit(ctx, testOrder("T-1")); a.Outcome != order.OutcomeRefused || a.Reason != order.DeadlineExceeded || a.Sent {
		t.Errorf("with no time left: %+v", a)
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxy := newService(t, func(http.ResponseWriter, *http.Request) {})
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	h := newHTTP(t, Config{URL: "http://nowhere.invalid"})
	if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeNotSent {
		t.Errorf("submit %+v", a)
	}
	h = newHTTP(t, Config{URL: "http://nowhere.invalid", Proxy: proxy.URL})
	if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeSucceeded {
		t.Errorf("through the proxy of the config: %+v", a)
	}
	if calls := proxy.log(); len(calls) != 1 || calls[0].uri != "http://nowhere.invalid/pay" {
		t.Errorf("proxy saw %+v", calls)
	}
}

func TestConnectionsAreKeptUpToThePermits(t *testing.T) {
	t.Parallel()
	const permits = 16
	gate := make(chan struct{})
	s := newService(t, func(http.ResponseWriter, *http.Request) { <-gate })
	h := newHTTP(t, Config{URL: s.URL, MaxConns: permits})
	for range 5 {
		var wg sync.WaitGroup
		for i := range permits {
			wg.Go(func() {
				if a := h.Submit(within(t, 10*time.Second), testOrder(fmt.Sprint(i))); a.Outcome != order.OutcomeSucceeded {
					t.Errorf("%+v", a)
				}
			})
		}
		for range permits {
			gate <- struct{}{}
		}
		wg.Wait()
	}
	if n := s.conns.Load(); n > permits {
		t.Errorf("%d connections for %d permits", n, permits)
	}
}

// TestGrowMakesRoomForMoreCallsWithoutTouchingThoseUnderWay has calls end where they began.
func TestGrowMakesRoomForMoreCallsWithoutTouchingThoseUnderWay(t *testing.T) {
	t.Parallel()
	var inFlight atomic.Int32
	end := make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		inFlight.Add(1)
		defer inFlight.Add(-1)
		<-end
		w.WriteHeader(http.StatusOK)
	})
	h, err := New(Config{URL: s.URL, MaxConns: 1, Lookup: Request{Path: "/{number}"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers := make(chan order.Answer, 8)
	submit := func(n int) {
		for i := range n {
			go func() { answers <- h.Submit(ctx, &order.Order{Number: fmt.Sprint("n", i)}) }()
		}
	}
	await := func(want int32) {
		t.Helper()
		for until := time.Now().Add(5 * time.Second); inFlight.Load() != want; {
			if time.Now().After(until) {
				t.Fatalf("%d calls at the service, want %d", inFlight.Load(), want)
			}
			<-time.After(time.Millisecond)
		}
	}
	submit(2)
	await(2) // what there is room for: twice one
	h.Grow(0)
	h.Grow(6)
	submit(6)
	await(8)
	close(end)
	for range 8 {
		if a := <-answers; a.Outcome != order.OutcomeSucceeded {
			t.Errorf("%v %s", a.Outcome, a.Detail)
		}
	}
	if n := s.conns.Load(); n != 8 {
		t.Errorf("%d connections, want 2 and 6", n)
	}
}
