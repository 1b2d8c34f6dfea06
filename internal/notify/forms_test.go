package notify

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"spillway/internal/desk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// opening is an event with everything in it, and with text that services could take for their own markup.
func opening() desk.BreakerEvent {
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC)
	return desk.BreakerEvent{
		At: at, Worker: "host-1-42-0a1b2c", Route: "wallet", Endpoint: "submit", From: "closed", To: "open", Reason: "failure-rate",
		Source: "local", Mode: "enforce", Generation: 7, Window: 10 * time.Second, Samples: 20, Failures: 12, Slow: 1, Rate: 0.6,
		Bound: 0.6, Threshold: 0.5, Wait: 31_234 * time.Millisecond,
		Errors: []desk.CallError{
			{At: at.Add(-2 * time.Second), Number: "A-1", Outcome: "UNKNOWN", Reason: "UPSTREAM_TIMEOUT", Detail: "no answer in time"},
			{
				At: at.Add(-time.Second), Number: "A-2", RequestID: "req-77", Outcome: "OVERLOADED", Reason: "UPSTREAM_OVERLOADED", Status: 503,
				Detail: "<!channel> <at user_id=\"all\">all</at> @all & \u202e\n*x*",
			},
		},
	}
}

func reopening() desk.BreakerEvent {
	return desk.BreakerEvent{
		At: time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC), Worker: "host-1-42-0a1b2c", Route: "ledger", Endpoint: "lookup", From: "half-open",
		To: "open", Reason: "forced", Source: "forced", Mode: "enforce", Generation: 9, Wait: time.Hour, Operator: "ada", Note: "maintenance",
	}
}

func TestEveryFormIsExactlyWhatItsServiceTakes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	for f := Generic; f <= WeCom; f++ {
		for _, secret := range []string{"", "s3cret"} {
			if secret != "" && (f == Slack || f == WeCom) {
				continue
			}
			w := Webhook{Name: "x", Form: f, URL: "https://hooks.example/robot/send?access_token=t0ken", Secret: secret}
			r, err := w.request([]desk.BreakerEvent{opening(), reopening()}, 3, now)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(body)) != r.ContentLength {
				t.Errorf("%s: %d bytes, announced %d", f, len(body), r.ContentLength)
			}
			var b bytes.Buffer
			fmt.Fprintf(&b, "%s %s\n", r.Method, r.URL)
			for _, name := range []string{"Content-Type", "X-Spillway-Signature"} {
				if v := r.Header.Get(name); v != "" {
					fmt.Fprintf(&b, "%s: %s\n", name, v)
				}
			}
			b.WriteString("\n")
			if err := json.Indent(&b, body, "", "  "); err != nil {
				t.Fatalf("%s is no JSON: %v", f, err)
			}
			b.WriteString("\n")
			name := "testdata/" + f.String()
			if secret != "" {
				name += "-signed"
			}
			golden(t, name+".txt", b.Bytes())
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs, got:\n%s", path, got)
	}
}

func TestTheWebhooksPageShowsTheGenericBodyAsItIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	request, err := os.ReadFile("testdata/generic.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(request, []byte("\n\n"))
	if !bytes.Contains(page, append([]byte("```json\n"), append(body, "```\n"...)...)) {
		t.Error("docs/webhooks.md does not hold the body of testdata/generic.txt")
	}
}

func TestFormsHaveNames(t *testing.T) {
	t.Parallel()
	for f := Generic; f <= WeCom; f++ {
		if got, err := ParseForm(f.String()); err != nil || got != f {
			t.Errorf("%s is read as %v, %v", f, got, err)
		}
	}
	if _, err := ParseForm("teams"); err == nil || !strings.Contains(err.Error(), "want generic, slack, feishu, dingtalk or wecom") {
		t.Errorf("err = %v", err)
	}
}

func TestAMessageIsBoundedWhateverIsInIt(t *testing.T) {
	t.Parallel()
	e := opening()
	long := strings.Repeat("長", 4000)
	e.Route, e.Worker, e.Operator, e.Note = long, long, long, long
	for i := range e.Errors {
		e.Errors[i].Number, e.Errors[i].Detail, e.Errors[i].Reason = long, long, long
	}
	var many []desk.BreakerEvent
	for i := range 200 {
		e.Endpoint = fmt.Sprint(i)
		many = append(many, e)
	}
	shown, rest := collapse(many)
	if len(shown) != maxShown || len(rest) != 190 {
		t.Errorf("%d shown, %d not", len(shown), len(rest))
	}
	if n := len(text(shown, len(rest))); n > 2048 {
		t.Errorf("a message of %d bytes", n)
	}
	for f := Generic; f <= WeCom; f++ {
		w := Webhook{Form: f}
		body, err := w.body(shown, len(rest), time.Now())
		if err != nil || (f != Generic && len(body) > 8<<10) {
			t.Errorf("%s: %d bytes, %v", f, len(body), err)
		}
	}
}

func TestTheLatestMoveOfEachBreakerIsShownOpeningsFirst(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	move := func(route, to string, generation uint64, second int) desk.BreakerEvent {
		return desk.BreakerEvent{Route: route, Endpoint: "submit", To: to, Generation: generation, At: at.Add(time.Duration(second) * time.Second)}
	}
	shown, rest := collapse([]desk.BreakerEvent{
		move("a", "open", 1, 0), move("a", "closed", 3, 4), move("a", "half-open", 2, 3), // told in another order than they came
		move("b", "closed", 4, 9), move("c", "open", 1, 1),
	})
	var got []string
	for _, e := range shown {
		got = append(got, e.Route+" "+e.To)
	}
	if strings.Join(got, ", ") != "c open, b closed, a closed" || len(rest) != 2 {
		t.Errorf("shown %q, %d not", got, len(rest))
	}
}
