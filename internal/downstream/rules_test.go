package downstream

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway/order"
)

func TestDefaultMeaningOfEveryStatus(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, Config{URL: "http://x"})
	for status := 100; status <= 999; status++ {
		want, reason := order.OutcomeUnknown, order.UpstreamUnexpected
		switch status {
		case 402, 409, 422:
			want, reason = order.OutcomeRejected, order.BusinessRejected
		case 400, 404, 413:
			want, reason = order.OutcomeInvalid, order.RequestRejected
		case 429, 503:
			want, reason = order.OutcomeOverloaded, order.UpstreamOverloaded
		case 401, 403, 407:
			want, reason = order.OutcomeOverloaded, order.UpstreamUnexpected
		default:
			switch status / 100 {
			case 2:
				want, reason = order.OutcomeSucceeded, order.Confirmed
			case 5, 6, 7, 8, 9:
				reason = order.Upstream5xx
			}
		}
		a := h.rules.outcome(reply{status: status, retryAfter: 7 * time.Second})
		if a.Outcome != want || a.Reason != reason || a.Status != status || !a.Sent {
			t.Errorf("%d: %s %s, want %s %s", status, a.Outcome, a.Reason, want, reason)
		}
		after := time.Duration(0)
		switch status {
		case 429, 503:
			after = 7 * time.Second
		case 401, 403, 407:
			after = 30 * time.Second
		}
		if a.RetryAfter != after {
			t.Errorf("%d: retry after %v, want %v", status, a.RetryAfter, after)
		}
	}
}

func TestDefaultMeaningOfLookups(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, Config{URL: "http://x"})
	for _, c := range []struct {
		status  int
		body    string
		verdict order.Verdict
		outcome order.Outcome
	}{
		{200, `{"status":"SUCCEEDED"}`, order.VerdictSucceeded, order.OutcomeSucceeded},
		{200, `{"status":"FAILED"}`, order.VerdictFailed, order.OutcomeSucceeded},
		{200, `{"status":"REJECTED"}`, order.VerdictFailed, order.OutcomeSucceeded},
		{202, `{"status":"PROCESSING"}`, order.VerdictProcessing, order.OutcomeSucceeded},
		{200, `{"status":"PENDING"}`, order.VerdictProcessing, order.OutcomeSucceeded},
		{200, `{"status":"NOT_FOUND"}`, order.VerdictNotFound, order.OutcomeSucceeded},
		{404, ``, order.VerdictNotFound, order.OutcomeSucceeded},
		{200, `{"status":"succeeded"}`, order.VerdictNone, order.OutcomeUnknown},
		{200, `{"status":{"a":1}}`, order.VerdictNone, order.OutcomeUnknown},
		{200, `{}`, order.VerdictNone, order.OutcomeUnknown},
		{200, `<html>`, order.VerdictNone, order.OutcomeUnknown},
		{200, ``, order.VerdictNone, order.OutcomeUnknown},
		{200, `{"status":"SUCCEEDED"} {"status":"FAILED"}`, order.VerdictNone, order.OutcomeUnknown},
		{302, ``, order.VerdictNone, order.OutcomeUnknown},
		{401, ``, order.VerdictNone, order.OutcomeUnknown},
		{410, ``, order.VerdictNone, order.OutcomeUnknown},
		{429, ``, order.VerdictNone, order.OutcomeOverloaded},
		{500, `{"status":"SUCCEEDED"}`, order.VerdictNone, order.OutcomeUnknown},
		{503, ``, order.VerdictNone, order.OutcomeOverloaded},
	} {
		f := h.rules.verdict(reply{status: c.status, body: []byte(c.body)})
		if f.Verdict != c.verdict || f.Outcome != c.outcome || f.Reason == order.NoReason {
			t.Errorf("%d %s: %s, breaker learns %s, %q", c.status, c.body, f.Verdict, f.Outcome, f.Reason)
		}
	}
}

func TestFirstRuleThatMatchesDecides(t *testing.T) {
	t.Parallel()
	ok := []StatusRange{{From: 200, To: 299}}
	h := newHTTP(t, Config{
		URL: "http://x",
		SubmitRules: []SubmitRule{
			{When{Status: ok, Pointer: "/code", Equals: []string{"0", "OK"}}, order.OutcomeSucceeded},
			{When{Status: ok, Pointer: "/code", Equals: []string{"BUSY"}}, order.OutcomeOverloaded},
			{When{Status: []StatusRange{{From: 409}}, Pointer: "/error/0/code", Equals: []string{"DUPLICATE"}}, order.OutcomeSucceeded},
			{When{Status: []StatusRange{{From: 410, To: 412}}}, order.OutcomeInvalid},
			{When{Pointer: "/a~1b/~0", Equals: []string{"true"}}, order.OutcomeRejected},
		},
		LookupRules: []LookupRule{
			{When{Status: ok, Pointer: "/state", Equals: []string{"PAID"}}, order.VerdictSucceeded},
			{When{Status: []StatusRange{{From: 404}}, Pointer: "/code", Equals: []string{"NO_ORDER"}}, order.VerdictNotFound},
		},
	})
	for _, c := range []struct {
		status int
		body   string
		want   order.Outcome
	}{
		{200, `{"code":"OK"}`, order.OutcomeSucceeded},
		{200, `{"code":0}`, order.OutcomeSucceeded},
		{200, `{"code":0.0}`, order.OutcomeUnknown},
		{200, `{"code":"BUSY"}`, order.OutcomeOverloaded},
		{200, `{"code":"17"}`, order.OutcomeUnknown}, // the route says how success looks, and this is not it
		{200, `not JSON`, order.OutcomeUnknown},
		{204, ``, order.OutcomeUnknown},
		{409, `{"error":[{"code":"DUPLICATE"}]}`, order.OutcomeSucceeded},
		{409, `{"error":[]}`, order.OutcomeRejected},
		{409, `{"error":[{"code":"DUPLICATE"}]} trailing`, order.OutcomeRejected},
		{411, ``, order.OutcomeInvalid},
		{413, `{"a/b":{"~":true}}`, order.OutcomeRejected},
		{413, `{"a/b":{"~":false}}`, order.OutcomeInvalid},
		{500, `{"code":"OK"}`, order.OutcomeUnknown},
	} {
		if a := h.rules.outcome(reply{status: c.status, body: []byte(c.body)}); a.Outcome != c.want {
			t.Errorf("submit %d %s: %s, want %s", c.status, c.body, a.Outcome, c.want)
		}
	}
	for _, c := range []struct {
		status int
		body   string
		want   order.Verdict
	}{
		{200, `{"state":"PAID"}`, order.VerdictSucceeded},
		{200, `{"state":"OPEN","status":"SUCCEEDED"}`, order.VerdictNone}, // the default reading is off
		{404, `{"code":"NO_ORDER"}`, order.VerdictNotFound},
		{404, `<html>no such page`, order.VerdictNone}, // a proxy's 404 is not the service's
	} {
		if f := h.rules.verdict(reply{status: c.status, body: []byte(c.body)}); f.Verdict != c.want {
			t.Errorf("lookup %d %s: %s, want %s", c.status, c.body, f.Verdict, c.want)
		}
	}
}

func TestRefusalRuleLeavesPlainSuccessAlone(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, Config{URL: "http://x", SubmitRules: []SubmitRule{
		{When{Status: []StatusRange{{From: 200}}, Pointer: "/ok", Equals: []string{"false"}}, order.OutcomeRejected},
	}})
	for body, want := range map[string]order.Outcome{`{"ok":false}`: order.OutcomeRejected, `{"ok":true}`: order.OutcomeSucceeded} {
		if a := h.rules.outcome(reply{status: 200, body: []byte(body)}); a.Outcome != want {
			t.Errorf("%s: %s, want %s", body, a.Outcome, want)
		}
	}
}

func TestRetryAfterInSecondsAndAsDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for _, c := range []struct {
		text, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"7", "", 7 * time.Second},
		{"4294967295", "", 24 * time.Hour},
		{"99999999999999999999", "", 24 * time.Hour},
		{"-5", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"Mon, 04 May 2026 03:02:31 GMT", "", 30 * time.Second},
		{"Mon, 04 May 2026 03:00:00 GMT", "", 0},
		{"Mon, 04 May 2036 03:00:00 GMT", "", 24 * time.Hour},
		{"Mon, 04 May 2026 10:00:10 GMT", "Mon, 04 May 2026 10:00:00 GMT", 10 * time.Second}, // another clock than ours
	} {
		h := http.Header{}
		h.Set("Retry-After", c.text)
		h.Set("Date", c.date)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.text, c.date, got, c.want)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	t.Parallel()
	ok := []StatusRange{{From: 200}}
	for want, c := range map[string]Config{
		"submit rule 1: matches every answer":    {SubmitRules: []SubmitRule{{Outcome: order.OutcomeSucceeded}}},
		"submit rule 1: an answer can't be":      {SubmitRules: []SubmitRule{{When: When{Status: ok}, Outcome: order.OutcomeNotSent}}},
		"submit rule 2: an answer can't be -":    {SubmitRules: []SubmitRule{{When{Status: ok}, order.OutcomeUnknown}, {When: When{Status: ok}}}},
		"status 700-700":                         {SubmitRules: []SubmitRule{{When{Status: []StatusRange{{From: 700}}}, order.OutcomeUnknown}}},
		"status 300-200":                         {LookupRules: []LookupRule{{When{Status: []StatusRange{{300, 200}}}, order.VerdictFailed}}},
		"lookup rule 1: an answer can't be":      {LookupRules: []LookupRule{{When{Status: ok}, order.VerdictRefused}}},
		"go together":                            {LookupRules: []LookupRule{{When{Status: ok, Pointer: "/a"}, order.VerdictFailed}}},
		`JSON pointer "a": want it to begin`:     {LookupRules: []LookupRule{{When{Pointer: "a", Equals: []string{"x"}}, order.VerdictFailed}}},
		`JSON pointer "/a~2": a ~ is written ~0`: {LookupRules: []LookupRule{{When{Pointer: "/a~2", Equals: []string{"x"}}, order.VerdictFailed}}},
	} {
		c.URL, c.Lookup.Path = "http://x", "/{number}"
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestPointerFindsWhatIsThere(t *testing.T) {
	t.Parallel()
	doc := []byte(" {\"a\":{\"\":[10, 2.50 ,{\"b\":null}]},\"a/b\":\"x\",\"01\":[true]}\n")
	for text, want := range map[string]string{
		"/a//0": "10", "/a//1": "2.50", "/a//2/b": "null", "/a~1b": `"x"`, "/01/0": "true",
		"/a//01": "", "/a//3": "", "/a//-1": "", "/a//-": "", "/A": "", "/a//0/x": "", "/a/b": "",
	} {
		p, err := parsePointer(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, ok := p.find(doc); string(got) != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", text, got, ok, want)
		}
	}
}
