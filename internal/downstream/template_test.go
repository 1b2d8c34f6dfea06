package downstream

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"spillway/order"
)

func TestNumberCantLeaveItsPlace(t *testing.T) {
	t.Parallel()
	for _, number := range []string{
		"T-1001", "../admin", "a/b", "/", "?x=1", "a?b#c", "#", "%2e%2e", "100%", "a b", " x"[1:], "ü/中文", "a;b,c", "a&b=c+d", `"quoted"\`,
		"{number}", "a\u00a0b", "....", ".a", "x/../y",
	} {
		t.Run(number, func(t *testing.T) {
			t.Parallel()
			var path, query string
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				segments := strings.Split(r.URL.EscapedPath(), "/")
				if len(segments) != 5 || strings.Join(segments[:3], "/") != "/v1/pay" || segments[4] != "state" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				var err error
				if path, err = url.PathUnescape(segments[3]); err != nil {
					t.Error(err)
				}
				query = r.URL.Query().Get("q")
			})
			h := newHTTP(t, Config{
				URL:    s.URL + "/v1",
				Submit: Request{Path: "/pay/{number}/state?q={number}", ContentType: "application/json", Body: `{"no":"{number}"}`},
				Lookup: Request{Path: "/pay/{number}/state?q={number}&z=1"},
			})
			o := testOrder(number)
			for what, got := range map[string]int{
				"submit": h.Submit(within(t, 5*time.Second), o).Status, "lookup": h.Lookup(within(t, 5*time.Second), o).Status,
			} {
				if got != http.StatusOK {
					t.Fatalf("%s: status %d", what, got)
				}
			}
			if path != number || query != number {
				t.Errorf("server saw path %q, query %q", path, query)
			}
			for _, c := range s.log() {
				if c.method == "POST" && c.key != number {
					t.Errorf("key %q", c.key)
				}
			}
		})
	}
}

func TestNumberThatCantBeCarriedIsNotSent(t *testing.T) {
	t.Parallel()
	s := newService(t, func(http.ResponseWriter, *http.Request) {})
	h := newHTTP(t, Config{URL: s.URL})
	for _, number := range []string{"", " x", "x ", "a\nb", "a\x00b", ".", ".."} {
		o := testOrder(number)
		if a := h.Submit(within(t, time.Second), o); a.Outcome != order.OutcomeInvalid || a.Reason != order.NoNumber || a.Sent || a.Detail == "" {
			t.Errorf("%q: submit %+v", number, a)
		}
		if f := h.Lookup(within(t, time.Second), o); f.Verdict != order.VerdictNone || f.Outcome != order.OutcomeInvalid {
			t.Errorf("%q: lookup %+v", number, f)
		}
	}
	if n := len(s.log()); n != 0 {
		t.Errorf("server saw %d calls", n)
	}
}

func TestTemplatesOfBodiesAndHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, contentType, want string
	}{
		"all in strings":    {`{"a":"{number}/{route}/{topic}/{key}/{header:trace}/{value:/amount}/{value:/who/name}"}`, "", "{\"a\":\"N\\\"1/payments/orders.in/N\\\"1/new/1250.00/a\\\"b/ü\"}"},
		"JSON as it is":     {`{"v":{value},"who":{value:/who},"n":{value:/amount}}`, "", `{"v":VALUE,"who":{"name":"a\"b/ü"},"n":1250.00}`},
		"the value alone":   {`{value}`, "application/octet-stream", `VALUE`},
		"a form":            {`no={number}&name={value:/who/name}`, "application/x-www-form-urlencoded", `no=N%221&name=a%22b%2F%C3%BC`},
		"braces are braces": {`{"a":{},"b":[{"c":"{number}"}],"d":"{ x }"}`, "application/vnd.x+json", `{"a":{},"b":[{"c":"N\"1"}],"d":"{ x }"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(http.ResponseWriter, *http.Request) {})
			h := newHTTP(t, Config{
				URL: s.URL, Headers: []Header{{Name: "x-trace", Value: "t={header:trace}"}, {Name: "X-Mode", Value: "general"}},
				Submit: Request{Body: c.body, ContentType: c.contentType, Headers: []Header{{Name: "x-mode", Value: "own"}}},
			})
			o := testOrder(`N"1`)
			if a := h.Submit(within(t, 5*time.Second), o); a.Outcome != order.OutcomeSucceeded {
				t.Fatalf("%+v", a)
			}
			got := s.log()[0]
			if want := strings.ReplaceAll(c.want, "VALUE", string(o.Message.Value)); got.body != want {
				t.Errorf("body %s\nwant %s", got.body, want)
			}
			if got.header.Get("X-Trace") != "t=new" || got.header.Get("X-Mode") != "own" || len(got.header.Values("X-Mode")) != 1 {
				t.Errorf("headers %v", got.header)
			}
		})
	}
}

func TestRecordThatLacksWhatIsAskedForIsInvalid(t *testing.T) {
	t.Parallel()
	s := newService(t, func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		config Config
		change func(m *order.Message)
		detail string
	}{
		"no header": {Config{Submit: Request{Path: "/{header:shop}"}}, nil, `no header "shop"`},
		"no key":    {Config{Submit: Request{Body: `{"k":"{key}"}`}}, func(m *order.Message) { m.Key = nil }, "no key"},
		"empty key in a path": {
			Config{Submit: Request{Path: "/{key}"}},
			func(m *order.Message) { m.Key = []byte{} }, "empty",
		},
		"dots in a path": {
			Config{Submit: Request{Path: "/a/{key}/b"}},
			func(m *order.Message) { m.Key = []byte("..") }, "resolve away",
		},
		"nothing at the pointer": {Config{Submit: Request{Body: `{"k":{value:/nosuch}}`}}, nil, "nothing at /nosuch"},
		"an object in a string":  {Config{Submit: Request{Body: `{"k":"{value:/who}"}`}}, nil, "at /who"},
		"value that is not JSON": {
			Config{Submit: Request{Body: `{"k":{value}}`}},
			func(m *order.Message) { m.Value = []byte(`1},"admin":{"a":1`) }, "not JSON",
		},
		"line break in a header": {
			Config{Submit: Request{Headers: []Header{{Name: "X-A", Value: "{key}"}}}},
			func(m *order.Message) { m.Key = []byte("a\r\nX-Admin: 1") }, "X-A",
		},
		"not UTF-8": {
			Config{Submit: Request{Body: `{"k":"{key}"}`}},
			func(m *order.Message) { m.Key = []byte{0xff} }, "UTF-8",
		},
		"what could not be looked up": {Config{Lookup: Request{Path: "/{number}/{header:shop}"}}, nil, `no header "shop"`},
	} {
		c.config.URL = s.URL
		h := newHTTP(t, c.config)
		o := testOrder("T-1")
		if c.change != nil {
			c.change(&o.Message)
		}
		a := h.Submit(within(t, time.Second), o)
		if a.Outcome != order.OutcomeInvalid || a.Reason != order.Undecodable || a.Sent || !strings.Contains(a.Detail, c.detail) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if n := len(s.log()); n != 0 {
		t.Errorf("server saw %d calls", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"url: empty":                     {URL: "-"},
		"url: want a URL":                {URL: "ftp://x"},
		"url: has no host":               {URL: "http://"},
		"url: holds a query":             {URL: "http://x/?a=1"},
		"max conns":                      {MaxConns: -1},
		"max answer":                     {MaxAnswer: 1 << 30},
		"proxy: want a URL":              {Proxy: "x:1"},
		"bearer token":                   {BearerToken: "a\nb"},
		"submit: method":                 {Submit: Request{Method: "post"}},
		"submit: path: \"pay\": want":    {Submit: Request{Path: "pay"}},
		"is not a path":                  {Submit: Request{Path: "/a b"}},
		"holds a . or .. segment":        {Submit: Request{Path: "/a/../b"}},
		"placeholder {nosuch}":           {Submit: Request{Path: "/{nosuch}"}},
		"the placeholder does not end":   {Submit: Request{Path: "/{number"}},
		"placeholder {header:}":          {Submit: Request{Path: "/{header:}"}},
		"JSON pointer \"a\"":             {Submit: Request{Path: "/{value:a}"}},
		"{value} may stand in a body":    {Submit: Request{Path: "/{value}"}},
		"query: ":                        {Submit: Request{Path: "/a?b=c d"}},
		"content type without a body":    {Lookup: Request{Path: "/{number}", ContentType: "text/plain"}},
		"can't be escaped safely":        {Submit: Request{Body: "<a>{number}</a>", ContentType: "application/xml"}},
		"is not JSON":                    {Submit: Request{Body: `{"a":"{number}"`}},
		`write "{number}" with its quot`: {Submit: Request{Body: `{"a":{number}}`}},
		"can't be within a string":       {Submit: Request{Body: `{"a":"{value}"}`}},
		"header name":                    {Headers: []Header{{Name: "a b"}}},
		"header Idempotency-Key":         {Headers: []Header{{Name: "idempotency-key", Value: "x"}}},
		"header Content-Length":          {Submit: Request{Headers: []Header{{Name: "Content-length", Value: "1"}}}},
		"header X-A: is set twice":       {Headers: []Header{{Name: "X-A"}, {Name: "x-a"}}},
		"there is a bearer token too":    {BearerToken: "abc", Headers: []Header{{Name: "authorization", Value: "x"}}},
		"header X-A: its value":          {Headers: []Header{{Name: "X-A", Value: "a\nb"}}},
		"lookup: path is empty":          {Lookup: Request{Method: "POST", Body: `{"a":"{number}"}`}},
		"lookup: {number} stands":        {Lookup: Request{Path: "/pay"}},
	} {
		switch c.URL {
		case "":
			c.URL = "http://x"
		case "-":
			c.URL = ""
		}
		if c.Lookup.Path == "" && c.Lookup.Body == "" {
			c.Lookup.Path = "/{number}"
		}
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v\nwant %q in it", err, want)
		}
	}
}

func TestLookupMayBeAPost(t *testing.T) {
	t.Parallel()
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) { write(t, w, `{"status":"PENDING"}`) })
	h := newHTTP(t, Config{URL: s.URL, Lookup: Request{Method: "POST", Path: "/query", Body: `{"no":"{number}"}`}})
	if f := h.Lookup(within(t, 5*time.Second), testOrder("T-1")); f.Verdict != order.VerdictProcessing {
		t.Errorf("%+v", f)
	}
	if c := s.log()[0]; c.body != `{"no":"T-1"}` || c.key != "" || c.uri != "/query" {
		t.Errorf("server saw %+v", c)
	}
}

// FuzzJSONTextStaysInItsString looks for a text that gets out of its JSON string, or changes on its way.
func FuzzJSONTextStaysInItsString(f *testing.F) {
	for _, s := range []string{"", `"`, `\`, `\"`, "a\nb", "\x00\x1f\x7f", "ü中\u2028", `","admin":true,"a":"`, "{value}", "\\u0022"} {
		f.Add(s)
	}
	t, _, err := parseBody(`{"a":"<{number}>","b":1}`, "application/json")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(tt *testing.T, s string) {
		raw, err := t.render(nil, &order.Order{Number: s})
		if err != nil {
			return // not valid UTF-8
		}
		p := pointer{tokens: []string{"a"}}
		got, ok := p.find(raw)
		if !ok {
			tt.Fatalf("%q is not JSON: %s", s, raw)
		}
		if text, _ := scalar(got); text != "<"+s+">" {
			tt.Errorf("%q came out as %q", s, text)
		}
	})
}
