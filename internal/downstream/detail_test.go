package downstream

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"spillway/order"
)

func TestNoSecretReachesADetail(t *testing.T) {
	t.Parallel()
	const (
		token  = `CANARY-to"ken/+1=`
		apiKey = "CANARY-api-key"
		cookie = "CANARY-cookie"
	)
	echo := func(h http.Header) map[string]string {
		auth := h.Get("Authorization")
		return map[string]string{
			"plain":         "headers: Authorization: " + auth + " X-Api-Key: " + h.Get("X-Api-Key") + " x-odd: " + h.Get("X-Odd"),
			"JSON":          fmt.Sprintf(`{"authorization":%q,"k":%q}`, auth, h.Get("X-Api-Key")),
			"in a URL":      "/?t=" + url.QueryEscape(auth) + "&k=" + url.PathEscape(strings.TrimPrefix(auth, "Bearer ")),
			"base64":        base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(auth, "Bearer "))),
			"upper case":    strings.ToUpper(auth + h.Get("X-Api-Key")),
			"at the cut":    strings.Repeat("x", order.MaxDetail-30) + auth,
			"many":          strings.Repeat(auth+h.Get("X-Api-Key"), 50),
			"another token": "Authorization: Bearer eyJhbGciOi.CANARY.x",
		}
	}
	for _, status := range []int{200, 302, 400, 401, 403, 407, 422, 429, 500, 503} {
		for form := range echo(http.Header{}) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(status)
				write(t, w, echo(r.Header)[form])
			})
			h := newHTTP(t, Config{
				URL: s.URL, BearerToken: token,
				Headers: []Header{{Name: "X-Api-Key", Value: apiKey}, {Name: "X-Odd", Value: cookie, Secret: true}},
			})
			a := h.Submit(within(t, 5*time.Second), testOrder("T-1"))
			f := h.Lookup(within(t, 5*time.Second), testOrder("T-1"))
			if a.Status != status || f.Status != status {
				t.Fatalf("%d %s: submit %+v, lookup %+v", status, form, a, f)
			}
			for _, detail := range []string{a.Detail, f.Detail} {
				if up := strings.ToUpper(detail); strings.Contains(up, "CANARY") || strings.Contains(up, "KEN%2F%2B1") || strings.Contains(up, `KEN/+1`) ||
					strings.Contains(detail, base64.StdEncoding.EncodeToString([]byte(token))) {
					t.Errorf("%d %s: %s", status, form, detail)
				}
				if !strings.HasPrefix(detail, fmt.Sprint(status)) || len(detail) > order.MaxDetail {
					t.Errorf("%d %s: detail %q", status, form, detail)
				}
			}
		}
	}
}

func TestNoSecretReachesAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"password in the url":        {URL: "http://user:CANARY@host/"},
		"url that can't be parsed":   {URL: "http://:CANARY@ho st:99999"},
		"port that is none":          {URL: "http://host:CANARY/"},
		"secret in the url's query":  {URL: "http://host/?key=CANARY"},
		"proxy that can't be parsed": {URL: "http://x", Proxy: "http://u:CANARY@pro xy"},
		"bearer token":               {URL: "http://x", BearerToken: "CANARY\n"},
		"secret header":              {URL: "http://x", Headers: []Header{{Name: "X-Odd", Value: "CANARY\n", Secret: true}}},
		"secret header, template":    {URL: "http://x", Headers: []Header{{Name: "X-Odd", Value: "{CANARY}", Secret: true}}},
		"header secret by name":      {URL: "http://x", Submit: Request{Headers: []Header{{Name: "x-api-key", Value: "a{CANARY"}}}},
	} {
		c.Lookup.Path = "/{number}"
		_, err := New(c)
		if err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// No service there: the error names the host and no secret.
	h := newHTTP(t, Config{URL: "http://127.0.0.1:1/CANARY-PATH", BearerToken: "CANARY", Proxy: "http://u:CANARY@127.0.0.1:1"})
	a := h.Submit(within(t, 5*time.Second), testOrder("T-1"))
	if a.Outcome != order.OutcomeNotSent || strings.Contains(a.Detail, "CANARY") || !strings.Contains(a.Detail, "127.0.0.1:1") {
		t.Errorf("%+v", a)
	}
}

func TestDetailIsSafeToShow(t *testing.T) {
	t.Parallel()
	r := Config{}.redactor(nil)
	for body, want := range map[string]string{
		"":                               "422 Unprocessable Entity",
		" \n ":                           "422 Unprocessable Entity",
		"no\n\tmoney":                    "422 Unprocessable Entity: no money",
		"a\x1b[2Jb\x00c":                 "422 Unprocessable Entity: a?[2Jb?c",
		"\u202egnp.exe":                  "422 Unprocessable Entity: ?gnp.exe",
		"\xff\xfe余额不足":                   "422 Unprocessable Entity: ??余额不足",
		`{"error":"<script>1</script>"}`: `422 Unprocessable Entity: {"error":"<script>1</script>"}`,
	} {
		if got := r.answer(422, []byte(body)); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
	for _, fill := range []string{"x", "中", "é"} {
		got := r.answer(422, []byte(strings.Repeat(fill, 1000)))
		if len(got) > order.MaxDetail || len(got) < order.MaxDetail-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
			t.Errorf("%q: %d bytes, %q", fill, len(got), got[len(got)-10:])
		}
	}
}
