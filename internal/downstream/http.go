package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"spillway/order"
)

// HTTP is a downstream service behind HTTP/1.1. It is safe for concurrent use and starts no goroutine but the
// connections' own.
type HTTP struct {
	plan
	ends      *endpoints // nil with one instance
	maxAnswer int
	buffers   sync.Pool // of *bytes.Buffer, for answers
	transport atomic.Pointer[http.Transport]
	growing   sync.Mutex // guards made
	made      Config     // what the transport was made for
}

var _ order.Handler = (*HTTP)(nil)

// New checks the config and makes the handler. It makes no connection. Its errors name the setting and hold no secret.
func New(c Config) (*HTTP, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := c.compile()
	if err != nil {
		return nil, err
	}
	ends := newEndpoints(c, p.base, p.others)
	if c.Registerer != nil {
		if err := c.Registerer.Register(newInstanceMetrics(c.Route, ends)); err != nil {
			return nil, err
		}
	}
	h := &HTTP{
		plan:      p,
		ends:      ends,
		maxAnswer: c.MaxAnswer,
		buffers:   sync.Pool{New: func() any { return new(bytes.Buffer) }},
		made:      c,
	}
	h.transport.Store(newTransport(c, p.proxy))
	return h, nil
}

// Grow makes room for n calls in flight, at most 10000; for fewer than there is room for it does nothing, for a connection
// that is not used closes by itself. A transport's numbers can't be changed while it is used, so a new one takes the calls
// from now on; those under way end where they are, and the old one's connections close when they are idle. It may be
// called at any time.
func (h *HTTP) Grow(n int) {
	h.growing.Lock()
	defer h.growing.Unlock()
	n = min(n, maxMaxConns)
	if n <= h.made.MaxConns {
		return
	}
	h.made.MaxConns = n
	h.transport.Swap(newTransport(h.made, h.proxy)).CloseIdleConnections()
}

// newTransport makes the connections' pool. HTTP/1.1 alone: with HTTP/2 one cut connection would make every call in
// flight UNKNOWN.
func newTransport(c Config, proxy *url.URL) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: c.DialTimeout, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: c.DialTimeout,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		Protocols:           &protocols,
		// Compressed answers would need a second bound, and a service that was not asked for them sends none.
		DisableCompression: true,
		// As many as there are permits, kept: none is thrown away, and none is waited for. The limit is twice that, for a
		// connection still being made for a call that timed out has a place of its own.
		MaxIdleConns:           c.MaxConns * (1 + len(c.Others)),
		MaxIdleConnsPerHost:    c.MaxConns,
		MaxConnsPerHost:        2 * c.MaxConns,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// Close drops the idle connections. Calls in flight go on.
func (h *HTTP) Close() { h.transport.Load().CloseIdleConnections() }

// trail is what is known of a request's way out.
type trail struct {
	// sent: the head of the request was handed to a connection, so it may have arrived. Before that a server has
	// nothing it could act on. It is set before the connection is written to, and a cancelled call returns after its
	// connection was closed, so a call that returns with sent unset never leaves later.
	sent atomic.Bool
}

func (t *trail) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		WroteHeaders: func() { t.sent.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) { t.sent.Store(true) },
	}
}

// Submit sends the order once. The context's deadline is the call's.
func (h *HTTP) Submit(ctx context.Context, o *order.Order) (a order.Answer) {
	req, bad := h.request(&h.submit, o)
	if bad == nil && h.lookupMayLack {
		_, bad = h.request(&h.lookup, o) // what could not be looked up is not sent
	}
	if bad != nil {
		return order.Answer{Outcome: order.OutcomeInvalid, Reason: bad.reason, Detail: cut(printable(h.secrets.clean(bad.detail)))}
	}
	req.Header["Idempotency-Key"] = []string{o.Number}
	if ctx.Err() != nil {
		return beforeCall(ctx)
	}
	if h.ends != nil {
		to := h.ends.direct(req)
		defer func() { a.OneInstance, a.Detail = h.ends.done(to, a.Outcome, a.Detail) }() // after a panic too
	}
	var t trail
	began := time.Now()
	r, fail := h.do(ctx, req, &t)
	took := time.Since(began)
	if fail != nil {
		a = h.noAnswer(ctx, fail, t.sent.Load())
		a.Took = took
		return a
	}
	a = h.rules.outcome(r.reply)
	a.Took = took
	if a.Outcome == order.OutcomeSucceeded {
		a.Detail = statusLine(r.status)
	} else {
		a.Detail = h.secrets.answer(r.status, r.body)
		a.RequestID = h.secrets.requestID(r.requestID)
	}
	h.free(r)
	return a
}

// Lookup asks for the order by its number. The context's deadline is the call's. net/http may ask a second time over a
// new connection where a reused one broke.
func (h *HTTP) Lookup(ctx context.Context, o *order.Order) (f order.Finding) {
	req, bad := h.request(&h.lookup, o)
	if bad != nil {
		// The service is not to blame: the breaker learns nothing from it.
		return order.Finding{Outcome: order.OutcomeInvalid, Reason: bad.reason, Detail: cut(printable(h.secrets.clean(bad.detail)))}
	}
	if ctx.Err() != nil {
		a := beforeCall(ctx)
		return order.Finding{Verdict: order.VerdictRefused, Outcome: a.Outcome, Reason: a.Reason, Detail: a.Detail}
	}
	if h.ends != nil {
		to := h.ends.direct(req)
		defer func() { f.OneInstance, f.Detail = h.ends.done(to, f.Outcome, f.Detail) }()
	}
	var t trail
	began := time.Now()
	r, fail := h.do(ctx, req, &t)
	took := time.Since(began)
	if fail != nil {
		a := h.noAnswer(ctx, fail, t.sent.Load())
		return order.Finding{Outcome: a.Outcome, Reason: a.Reason, Detail: a.Detail, Status: a.Status, Took: took}
	}
	f = h.rules.verdict(r.reply)
	f.Took = took
	f.Detail = h.secrets.answer(r.status, r.body)
	if f.Outcome != order.OutcomeSucceeded {
		f.RequestID = h.secrets.requestID(r.requestID)
	}
	h.free(r)
	return f
}

// unfit says why no request can be made of an order.
type unfit struct {
	reason order.Reason
	detail string
}

// request renders a call for an order. It is a function of the order and the config alone.
func (h *HTTP) request(c *call, o *order.Order) (*http.Request, *unfit) {
	if !validHeaderValue(o.Number) || o.Number == "" {
		return nil, &unfit{order.NoNumber, "the business number can't stand in a header: no control characters, no space at its ends"}
	}
	if o.Number == "." || o.Number == ".." {
		return nil, &unfit{order.NoNumber, "the business number is . or .., which servers resolve away in a path"}
	}
	u := *h.base
	path, err := c.path.render(make([]byte, 0, c.path.size+64), o)
	if err != nil {
		return nil, &unfit{order.Undecodable, err.Error()}
	}
	if hasDotSegment(string(path)) {
		return nil, &unfit{order.Undecodable, "a segment of the path becomes . or .., which servers resolve away"}
	}
	u.RawPath = string(path)
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, &unfit{order.Undecodable, "the path can't be escaped"}
	}
	if len(c.query.parts) > 0 {
		query, err := c.query.render(nil, o)
		if err != nil {
			return nil, &unfit{order.Undecodable, err.Error()}
		}
		u.RawQuery = string(query)
	}
	req := &http.Request{Method: c.method, URL: &u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	req.Header = make(http.Header, len(c.headers)+2)
	req.Header["User-Agent"] = []string{"spillway"}
	for _, hd := range c.headers {
		value, err := hd.value.render(nil, o)
		if err == nil && !validHeaderValue(string(value)) {
			err = errors.New("it holds a control character or a space at its ends")
		}
		if err != nil {
			return nil, &unfit{order.Undecodable, fmt.Sprintf("header %s: %v", hd.name, err)}
		}
		req.Header[hd.name] = []string{string(value)}
	}
	return req, c.setBody(req, o)
}

func (c *call) setBody(req *http.Request, o *order.Order) *unfit {
	if len(c.body.parts) == 0 && (c.method == http.MethodGet || c.method == http.MethodHead) {
		return nil // a lookup: a submit has a body always, if only of no bytes
	}
	content := o.Message.Value // sent as it is, not copied: nobody writes into a record
	if c.kind != bodyExact || len(c.body.parts) == 0 {
		var err error
		if content, err = c.body.render(make([]byte, 0, c.body.size+128), o); err != nil {
			return &unfit{order.Undecodable, err.Error()}
		}
	}
	// There is no GetBody: with one, or without a body at all, the transport would send a request that has an Idempotency-Key
	// a second time when a reused connection breaks, and nobody would have counted it. And it is a reader of a kind that
	// net/http knows to be in memory: of any other it sends the head of the request in a packet of its own.
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return nil
}

// errTooLarge says that an answer went on beyond what is read of one.
var errTooLarge = errors.New("the answer is larger than is read of one")

// failed is a call without a complete answer.
type failed struct {
	err    error
	status int // of an answer that was cut
}

// received is a complete answer and the buffer that holds it.
type received struct {
	reply
	buf       *bytes.Buffer
	requestID string // its X-Request-Id, as it came
}

// do sends the request and reads its answer to the end, so that the connection can be used again. The caller frees
// the answer.
func (h *HTTP) do(ctx context.Context, req *http.Request, t *trail) (received, *failed) {
	req = req.WithContext(httptrace.WithClientTrace(ctx, t.hooks()))
	// RoundTrip and not a Client: no redirects, no cookies, no URL in the errors.
	resp, err := h.transport.Load().RoundTrip(req)
	if err != nil {
		return received{}, &failed{err: err}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the bare connection, which no context ends: reading it would hold the permit for as long as the service
		// likes.
		_ = resp.Body.Close()
		return received{}, &failed{err: errors.New("101 Switching Protocols"), status: resp.StatusCode}
	}
	r := received{buf: h.buffers.Get().(*bytes.Buffer)} //nolint:errcheck // the pool holds nothing else
	r.status = resp.StatusCode
	r.retryAfter = retryAfter(resp.Header, time.Now())
	r.requestID = resp.Header.Get("X-Request-Id")
	err = h.read(r.buf, resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		h.free(r)
		return received{}, &failed{err: err, status: resp.StatusCode}
	}
	r.body = r.buf.Bytes()
	return r, nil
}

func (h *HTTP) read(dst *bytes.Buffer, src io.Reader) error {
	dst.Reset()
	n, err := dst.ReadFrom(io.LimitReader(src, int64(h.maxAnswer)+1))
	if err != nil {
		return err
	}
	if n > int64(h.maxAnswer) {
		return errTooLarge
	}
	return nil
}

// keepBuffer is the largest buffer kept for another answer, in bytes: one huge answer does not stay for ever.
const keepBuffer = 64 << 10

func (h *HTTP) free(r received) {
	if r.buf.Cap() <= keepBuffer {
		h.buffers.Put(r.buf)
	}
}

// beforeCall is the answer when the context was over before anything was called.
func beforeCall(ctx context.Context) order.Answer {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return order.Answer{Outcome: order.OutcomeRefused, Reason: order.DeadlineExceeded, Detail: "no time was left for the call"}
	}
	return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown, Detail: "stopped before the call"}
}

// noAnswer says what a call without a complete answer shows. The context is looked at before the error, which is the
// context's cause, whatever that is, once the context is over.
func (h *HTTP) noAnswer(ctx context.Context, f *failed, sent bool) order.Answer {
	a := order.Answer{Status: f.status, Sent: sent}
	over := ctx.Err()
	switch {
	case errors.Is(f.err, errTooLarge):
		a.Outcome, a.Reason = order.OutcomeUnknown, order.UpstreamUnexpected
		a.Detail = cut(fmt.Sprintf("%s: the answer is larger than %d bytes", statusLine(f.status), h.maxAnswer))
	case over != nil && !errors.Is(over, context.DeadlineExceeded):
		a.Outcome, a.Reason = order.OutcomeCancelled, order.Shutdown
		a.Detail = "stopped before anything was sent"
		if sent {
			a.Detail = "stopped while the answer was awaited"
		}
	case !sent:
		a.Outcome, a.Reason = order.OutcomeNotSent, order.ConnectFailed
		a.Detail = h.secrets.failure("not sent", f.err)
		if over != nil {
			a.Detail = "not sent: no connection in time"
		}
	case over != nil || timeout(f.err):
		a.Outcome, a.Reason = order.OutcomeUnknown, order.UpstreamTimeout
		a.Detail = "no answer in time"
		if f.status != 0 {
			a.Detail = statusLine(f.status) + ": the answer did not end in time"
		}
	default:
		a.Outcome, a.Reason = order.OutcomeUnknown, order.UpstreamReset
		what := "the connection broke"
		if f.status != 0 {
			what = statusLine(f.status) + ": the answer was cut"
		}
		a.Detail = h.secrets.failure(what, f.err)
	}
	return a
}

// timeout reports whether the network gave up waiting, as TCP does on a peer that is gone.
func timeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
