package downstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"spillway/order"
)

// Defaults and bounds of [Config].
const (
	defaultMaxConns    = 64
	maxMaxConns        = 10_000
	defaultMaxAnswer   = 256 << 10
	maxMaxAnswer       = 16 << 20
	defaultDialTimeout = 5 * time.Second
	defaultDeniedWait  = 30 * time.Second
)

// Config says how one route's downstream is called. The zero value of each field but URL and Lookup.Path is its
// default. How long a call may take is not here: it is the deadline of the context each call is given.
type Config struct {
	// URL is the service's base: http or https, a host, perhaps a path. It holds no user, password, query or
	// fragment: the secrets of a call belong into BearerToken or a secret header.
	URL string
	// Others are the bases of further instances of the same service: at most 15, with the scheme and path of URL, each
	// host once. Each call goes to one instance; see the package's doc.
	Others []string
	// Ejection says when an instance that fails more than the others is taken out.
	Ejection Ejection
	// Route is the label of what Registerer shows of the instances, and Logger hears when one is taken out. nil: nobody.
	Route      string
	Registerer prometheus.Registerer
	Logger     *slog.Logger

	// MaxConns is how many calls are in flight at most, which is the route's permits: 1 to 10000, default 64; see
	// [HTTP.Grow]. As many connections are kept open while idle.
	MaxConns int
	// MaxAnswer bounds how much of an answer's body is read, in bytes: 1 to 16 MiB, default 256 KiB. An answer that
	// is larger was not read to its end, and is taken for no answer.
	MaxAnswer int
	// DialTimeout bounds the making of a connection, default 5 s. It goes on when the call that asked for it is over.
	DialTimeout time.Duration
	// DeniedWait is the pause asked for after 401, 403 and 407, default 30 s.
	DeniedWait time.Duration

	// BearerToken is sent as Authorization: Bearer. It is never part of an error or a detail.
	BearerToken string
	// Headers are sent with every call, but where the call's own Headers have the same name. Values are templates.
	Headers []Header
	// TLS is the client's side of TLS; nil is the system's roots and no client certificate.
	TLS *tls.Config
	// Proxy is the URL of a proxy; empty is none. The environment's HTTP_PROXY is not looked at.
	Proxy string

	// Submit delivers an order. Defaults: POST, path of URL, body {value}, application/json.
	Submit Request
	// Lookup asks for an order by its number, which must stand in its path, a header or the body. Defaults: GET, no
	// body. Path has no default.
	Lookup Request

	// SubmitRules come before the defaults; the first that matches decides.
	SubmitRules []SubmitRule
	// LookupRules come before the defaults; the first that matches decides. Where there are any, the defaults that
	// look into the body of a 2xx answer are off.
	LookupRules []LookupRule
}

// Header is a header to send.
type Header struct {
	Name  string
	Value string // a template
	// Secret keeps the value out of every detail. Authorization, Proxy-Authorization, Cookie and names with key,
	// token, secret, password or signature in them are secret without it.
	Secret bool
}

// Request is the shape of a call. Path, header values and Body are templates: see the package's doc.
type Request struct {
	Method      string
	Path        string // below the base URL, begins with a slash; may hold a query
	Headers     []Header
	ContentType string
	Body        string
}

// plan is a Config that was checked: everything a call needs, compiled.
type plan struct {
	base    *url.URL
	others  []*url.URL
	submit  call
	lookup  call
	rules   rules
	proxy   *url.URL
	secrets redactor
	// lookupMayLack: a lookup asks for more than every record has, so that a record may be sent and never be looked up.
	lookupMayLack bool
}

// call is a Request that was checked.
type call struct {
	method  string
	path    template // base path included
	query   template
	headers []header
	body    template // no parts: no body
	kind    bodyKind
}

type header struct {
	name  string // canonical
	value template
}

// withDefaults checks the numbers and fills in what was left at zero.
func (c Config) withDefaults() (Config, error) {
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = defaultMaxAnswer
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.DeniedWait == 0 {
		c.DeniedWait = defaultDeniedWait
	}
	if c.Submit.Method == "" {
		c.Submit.Method = http.MethodPost
	}
	if c.Submit.Body == "" {
		c.Submit.Body = "{value}"
	}
	if c.Lookup.Method == "" {
		c.Lookup.Method = http.MethodGet
	}
	var err error
	if c.Ejection, err = c.Ejection.withDefaults(); err != nil {
		return c, fmt.Errorf("ejection: %w", err)
	}
	switch {
	case c.MaxConns < 1 || c.MaxConns > maxMaxConns:
		return c, fmt.Errorf("max conns %d: want 1 to %d", c.MaxConns, maxMaxConns)
	case c.MaxAnswer < 1 || c.MaxAnswer > maxMaxAnswer:
		return c, fmt.Errorf("max answer of %d bytes: want 1 to %d", c.MaxAnswer, maxMaxAnswer)
	case c.DialTimeout < 0:
		return c, fmt.Errorf("dial timeout %v: want more than 0", c.DialTimeout)
	case c.DeniedWait < 0:
		return c, fmt.Errorf("denied wait %v: want more than 0", c.DeniedWait)
	}
	return c, nil
}

// compile checks everything else.
func (c Config) compile() (p plan, err error) {
	if p.base, err = parseBase(c.URL); err != nil {
		return p, fmt.Errorf("url: %w", err)
	}
	if p.others, err = parseOthers(c.Others, p.base); err != nil {
		return p, fmt.Errorf("others: %w", err)
	}
	if p.proxy, err = parseProxy(c.Proxy); err != nil {
		return p, fmt.Errorf("proxy: %w", err)
	}
	if c.BearerToken != "" && !validHeaderValue(c.BearerToken) {
		return p, errors.New("bearer token: holds a character that can't stand in a header")
	}
	if p.submit, err = c.call(c.Submit, p.base); err != nil {
		return p, fmt.Errorf("submit: %w", err)
	}
	if p.lookup, err = c.call(c.Lookup, p.base); err != nil {
		return p, fmt.Errorf("lookup: %w", err)
	}
	if c.Lookup.Path == "" {
		return p, errors.New("lookup: path is empty: an order with an unknown outcome must be looked up before it is sent again")
	}
	if !p.lookup.names(slotNumber) {
		return p, errors.New("lookup: {number} stands in neither path, headers nor body: want a lookup by business number")
	}
	if p.rules, err = compileRules(c.SubmitRules, c.LookupRules, c.DeniedWait); err != nil {
		return p, err
	}
	for _, s := range []slot{slotKey, slotHeader, slotValue, slotPointer} {
		p.lookupMayLack = p.lookupMayLack || p.lookup.names(s)
	}
	p.secrets = c.redactor(p.proxy)
	return p, nil
}

// parseBase reads the base URL. Its errors never quote the URL, which may hold a password that somebody put there.
func parseBase(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return nil, errors.New("empty: want http:// or https://, a host and perhaps a path")
	case err != nil:
		return nil, errors.New("not a URL: want http:// or https://, a host and perhaps a path")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("want a URL that begins with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("holds a user or password: use a header marked secret")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("holds a query or fragment: put the query into the request's path")
	}
	return u, nil
}

// parseOthers reads the bases of the further instances. They differ from the first in their hosts alone: what is sent is
// the same wherever it goes.
func parseOthers(raw []string, first *url.URL) ([]*url.URL, error) {
	if len(raw) >= MaxEndpoints {
		return nil, fmt.Errorf("%d of them: want at most %d", len(raw), MaxEndpoints-1)
	}
	out := make([]*url.URL, 0, len(raw))
	seen := map[string]bool{hostKey(first): true}
	for i, text := range raw {
		u, err := parseBase(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		case u.Scheme != first.Scheme:
			return nil, fmt.Errorf("number %d: begins with %s:// and the first with %s://", i+1, u.Scheme, first.Scheme)
		case strings.TrimRight(u.EscapedPath(), "/") != strings.TrimRight(first.EscapedPath(), "/"):
			return nil, fmt.Errorf("number %d: has another path than the first", i+1)
		case seen[hostKey(u)]:
			return nil, fmt.Errorf("number %d: %s is there already", i+1, u.Host)
		}
		seen[hostKey(u)] = true
		out = append(out, u)
	}
	return out, nil
}

// hostKey is a host with its port, written the one way.
func hostKey(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}

func parseProxy(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5") {
		return nil, errors.New("want a URL that begins with http://, https:// or socks5:// and has a host")
	}
	return u, nil
}

// call checks one request and compiles its templates.
func (c Config) call(r Request, base *url.URL) (call, error) {
	out := call{method: r.Method}
	if !validToken(r.Method) || r.Method != strings.ToUpper(r.Method) {
		return out, fmt.Errorf("method %q: want one in capitals, such as POST", r.Method)
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace || r.Method == http.MethodHead && r.Body != "" {
		return out, fmt.Errorf("method %s can't carry a call", r.Method)
	}
	if err := out.setPath(r.Path, base); err != nil {
		return out, fmt.Errorf("path: %w", err)
	}
	contentType := r.ContentType
	if r.Body == "" && contentType != "" {
		return out, errors.New("content type without a body")
	}
	if r.Body != "" {
		if contentType == "" {
			contentType = "application/json"
		}
		if !validHeaderValue(contentType) {
			return out, fmt.Errorf("content type %q can't stand in a header", contentType)
		}
		body, kind, err := parseBody(r.Body, contentType)
		if err != nil {
			return out, fmt.Errorf("body: %w", err)
		}
		out.body, out.kind = body, kind
		out.headers = append(out.headers, header{"Content-Type", literal(contentType)})
	}
	own, err := parseHeaders(r.Headers)
	if err != nil {
		return out, err
	}
	all, err := parseHeaders(c.Headers)
	if err != nil {
		return out, err
	}
	out.headers = append(out.headers, own...)
	for _, h := range all {
		if !slices.ContainsFunc(own, func(o header) bool { return o.name == h.name }) {
			out.headers = append(out.headers, h)
		}
	}
	if c.BearerToken != "" {
		if slices.ContainsFunc(out.headers, func(o header) bool { return o.name == "Authorization" }) {
			return out, errors.New("header Authorization: there is a bearer token too")
		}
		out.headers = append(out.headers, header{"Authorization", literal("Bearer " + c.BearerToken)})
	}
	return out, nil
}

func (c *call) setPath(raw string, base *url.URL) error {
	if raw != "" && !strings.HasPrefix(raw, "/") && !strings.HasPrefix(raw, "?") {
		return fmt.Errorf("%q: want it to begin with a slash", raw)
	}
	path, query, _ := strings.Cut(raw, "?")
	prefix := base.EscapedPath()
	if path != "" {
		prefix = strings.TrimRight(prefix, "/")
	}
	if prefix+path == "" {
		path = "/"
	}
	var err error
	if c.path, err = parseTemplate(prefix+path, inPath); err != nil {
		return err
	}
	if c.query, err = parseTemplate(query, inQuery); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	return nil
}

// parseHeaders checks a list of headers and compiles their values. Its errors quote no value that may be secret.
func parseHeaders(hs []Header) ([]header, error) {
	var out []header
	for _, h := range hs {
		if !validToken(h.Name) {
			return nil, fmt.Errorf("header name %q: want letters, digits and dashes", h.Name)
		}
		name := http.CanonicalHeaderKey(h.Name)
		switch name {
		case "Idempotency-Key", "X-Idempotency-Key":
			return nil, fmt.Errorf("header %s: the business number is sent as Idempotency-Key, nothing else may be", name)
		case "Content-Type":
			return nil, fmt.Errorf("header %s: use the request's content type", name)
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect",
			"Proxy-Connection", "Accept-Encoding":
			return nil, fmt.Errorf("header %s: belongs to the connection and can't be set", name)
		}
		if slices.ContainsFunc(out, func(have header) bool { return have.name == name }) {
			return nil, fmt.Errorf("header %s: is set twice", name)
		}
		value, err := parseTemplate(h.Value, inHeader)
		switch {
		case err != nil && (h.Secret || secretName(name)):
			return nil, fmt.Errorf("header %s: its value, which is not shown, is no template or can't stand in a header", name)
		case err != nil:
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		out = append(out, header{name, value})
	}
	return out, nil
}

// names reports whether a placeholder of this kind stands anywhere in the call.
func (c *call) names(s slot) bool {
	if c.path.has(s) || c.query.has(s) || c.body.has(s) {
		return true
	}
	for _, h := range c.headers {
		if h.value.has(s) {
			return true
		}
	}
	return false
}

// compileRules checks the rules of both calls.
func compileRules(submit []SubmitRule, lookup []LookupRule, deniedWait time.Duration) (rules, error) {
	r := rules{deniedWait: deniedWait}
	for i, s := range submit {
		cond, err := compileCondition(s.When)
		if err != nil {
			return r, fmt.Errorf("submit rule %d: %w", i+1, err)
		}
		switch s.Outcome {
		case order.OutcomeSucceeded, order.OutcomeRejected, order.OutcomeInvalid, order.OutcomeOverloaded, order.OutcomeUnknown:
		case order.NoOutcome, order.OutcomeNotSent, order.OutcomeRefused, order.OutcomeCancelled:
			return r, fmt.Errorf("submit rule %d: an answer can't be %s: want SUCCEEDED, REJECTED, INVALID, OVERLOADED or UNKNOWN", i+1, s.Outcome)
		}
		r.submit = append(r.submit, submitRule{cond, s.Outcome})
	}
	for i, l := range lookup {
		cond, err := compileCondition(l.When)
		if err != nil {
			return r, fmt.Errorf("lookup rule %d: %w", i+1, err)
		}
		switch l.Verdict {
		case order.VerdictNone, order.VerdictSucceeded, order.VerdictFailed, order.VerdictProcessing, order.VerdictNotFound:
		case order.VerdictRefused:
			return r, fmt.Errorf("lookup rule %d: an answer can't be REFUSED: want SUCCEEDED, FAILED, PROCESSING, NOT_FOUND or NO_VERDICT", i+1)
		}
		r.lookup = append(r.lookup, lookupRule{cond, l.Verdict})
	}
	return r, nil
}
