package wallet

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func serve(t *testing.T, w *Wallet) string {
	t.Helper()
	s := httptest.NewServer(w.Admin())
	t.Cleanup(s.Close)
	return s.URL
}

// send makes a request and returns its status, 0 where there is no complete answer, and its body.
func send(t *testing.T, ctx context.Context, method, url, key, body string) (int, string) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	b, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err != nil || closeErr != nil {
		return 0, "cut"
	}
	return resp.StatusCode, string(b)
}

func pay(t *testing.T, url, number string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	status, _ := send(t, ctx, "POST", url+"/pay", number, `{"order_no":"`+number+`","amount":1}`)
	return status
}

func TestEveryPostTakesEffectUnlessDeduped(t *testing.T) {
	t.Parallel()
	for _, dedupe := range []bool{false, true} {
		w := New(Config{Dedupe: dedupe})
		url := serve(t, w)
		for range 2 {
			if s := pay(t, url, "T-1"); s != 200 {
				t.Fatalf("status %d", s)
			}
		}
		want := Entry{Posts: 2, Effects: 2, Bodies: 1}
		if dedupe {
			want.Effects = 1
		}
		if e, ok := w.Entry("T-1"); !ok || e.Posts != want.Posts || e.Effects != want.Effects || e.Bodies != want.Bodies {
			t.Errorf("dedupe %v: entry %+v, want %+v", dedupe, e, want)
		}
		if err := w.Verify([]string{"T-1"}); (err == nil) != dedupe {
			t.Errorf("dedupe %v: verify says %v", dedupe, err)
		}
		if d := w.Duplicates(); (len(d) == 0) != dedupe {
			t.Errorf("dedupe %v: duplicates %v", dedupe, d)
		}
	}
}

func TestLookupTellsTheTruth(t *testing.T) {
	t.Parallel()
	w := New(Config{})
	url := serve(t, w)
	look := func(path string) (int, string) { return send(t, t.Context(), "GET", url+"/pay/"+path, "", "") }
	if s, b := look("T-1"); s != 404 || !strings.Contains(b, "NOT_FOUND") {
		t.Errorf("before: %d %s", s, b)
	}
	for number, escaped := range map[string]string{"T-1": "T-1", "a/b c%": "a%2Fb%20c%25", "/": "%2F"} {
		if s := pay(t, url, number); s != 200 {
			t.Fatalf("pay %q: %d", number, s)
		}
		if s, b := look(escaped); s != 200 || b != `{"status":"SUCCEEDED"}` {
			t.Errorf("after %q: %d %s", number, s, b)
		}
	}
	w.SetMode(Mode{Undecided: true})
	if s, b := look("T-1"); s != 200 || b != `{"status":"PROCESSING"}` {
		t.Errorf("undecided: %d %s", s, b)
	}
	w.SetMode(Healthy(0).RefuseLookups(500))
	if s, _ := look("T-1"); s != 500 {
		t.Errorf("refused: %d", s)
	}
	if c := w.Counts(); c.Lookups != 6 || c.Numbers != 3 || c.InFlight != 0 {
		t.Errorf("counts %+v", c)
	}
}

func TestBadPaymentsHaveNoEffect(t *testing.T) {
	t.Parallel()
	w := New(Config{MaxBody: 30})
	url := serve(t, w)
	for name, c := range map[string]struct {
		key, body string
		status    int
	}{
		"no key":         {"", `{}`, 400},
		"not JSON":       {"T-1", `x`, 400},
		"another number": {"T-1", `{"order_no":"T-2"}`, 400},
		"too large":      {"T-1", `{"order_no":"` + strings.Repeat("x", 40) + `"}`, 413},
	} {
		if s, b := send(t, t.Context(), "POST", url+"/pay", c.key, c.body); s != c.status {
			t.Errorf("%s: %d %s", name, s, b)
		}
	}
	if c := w.Counts(); c.Effects != 0 || c.Posts != 0 || c.Bad != 3 {
		t.Errorf("counts %+v", c)
	}
}

func TestAlteredBodyIsSeen(t *testing.T) {
	t.Parallel()
	w := New(Config{Dedupe: true})
	url := serve(t, w)
	for _, body := range []string{`{"amount":1}`, `{"amount":2}`} {
		if s, _ := send(t, t.Context(), "POST", url+"/pay", "T-1", body); s != 200 {
			t.Fatalf("status %d", s)
		}
	}
	if err := w.Verify(nil); err == nil || !strings.Contains(err.Error(), `"T-1"`) {
		t.Errorf("verify says %v", err)
	}
}

func TestKindsOfFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode    Mode
		effects int
	}{
		"hang, applied before":    {Timeouts(1, 0, 0), 1},
		"hang, applied after":     {Timeouts(1, 1, 60*time.Millisecond), 1},
		"hang, not applied":       {Timeouts(0, 0, 0), 0},
		"reset after applying":    {Resets(1), 1},
		"reset before applying":   {Resets(0), 0},
		"cut answer":              {Mix(Behaviour{Kind: Cut, Applied: 1}), 1},
		"500, applied":            {Mix(Behaviour{Kind: Answer, Status: 500, Applied: 1}), 1},
		"500, not applied":        {Failing(500), 0},
		"slow beyond the timeout": {Healthy(80 * time.Millisecond), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := New(Config{Mode: c.mode, MaxHang: 200 * time.Millisecond})
			url := serve(t, w)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			defer cancel()
			if s, b := send(t, ctx, "POST", url+"/pay", "T-1", `{}`); s != 0 && s != 500 {
				t.Errorf("answered %d %s", s, b)
			}
			until(t, func() bool { return w.Counts().InFlight == 0 && w.Counts().Posts == 1 })
			if e, _ := w.Entry("T-1"); e.Effects != c.effects || e.Posts != 1 {
				t.Errorf("entry %+v, want %d effects", e, c.effects)
			}
		})
	}
}

// until waits for a condition, looking every millisecond.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("the condition did not come true in 10s")
		}
	}
}

func TestOneMoreThanCapacityIsRefused(t *testing.T) {
	t.Parallel()
	w := New(Config{Mode: Timeouts(1, 0, 0).Limit(3), MaxHang: 5 * time.Second})
	url := serve(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, n := range []string{"a", "b", "c"} {
		wg.Go(func() { send(t, ctx, "POST", url+"/pay", n, `{}`) })
	}
	until(t, func() bool { return w.Counts().InFlight == 3 })
	if s := pay(t, url, "d"); s != 503 {
		t.Errorf("status %d: want 503", s)
	}
	cancel()
	wg.Wait()
	if c := w.Counts(); c.Refused != 1 || c.MaxFlight != 3 || c.MaxPayment != 3 {
		t.Errorf("counts %+v", c)
	}
	if _, ok := w.Entry("d"); !ok || w.Verify([]string{"d"}) == nil {
		t.Error("the refused order was seen and must have no effect")
	}
}

func TestMixKeepsItsWeights(t *testing.T) {
	t.Parallel()
	w := New(Config{Seed: 7, Mode: Mix(Behaviour{Kind: Answer, Weight: 70}, Behaviour{Kind: Answer, Weight: 30, Status: 500})})
	const n = 10_000
	bad := 0
	for range n {
		if f, _ := w.draw(false); f.Status == 500 {
			bad++
		}
	}
	if bad < n*28/100 || bad > n*32/100 {
		t.Errorf("%d of %d failed: want about 30 %%", bad, n)
	}
}

func TestModesOverTheWire(t *testing.T) {
	t.Parallel()
	w := New(Config{})
	url := serve(t, w)
	for body, want := range map[string]int{
		`{"name":"flaky"}`:  200,
		`{"name":"nosuch"}`: 400,
		`{"capacity":-1}`:   400,
		`{"pay":[{"kind":"answer","latency":"5ms","status":503}]}`: 200,
		`{"pay":[{"kind":"answer","latency":5}]}`:                  400,
		`{"pay":[{"kind":"sulk"}]}`:                                400,
		`{"pay":[{"kind":"hang","applied":1.5}]}`:                  400,
	} {
		if s, b := send(t, t.Context(), "PUT", url+"/mode", "", body); s != want {
			t.Errorf("%s: %d %s, want %d", body, s, b, want)
		}
	}
	if s, _ := send(t, t.Context(), "PUT", url+"/mode", "", `{"name":"failing","capacity":5}`); s != 200 {
		t.Fatal(s)
	}
	if m := w.Mode(); m.Capacity != 5 || len(m.Pay) != 1 || m.Pay[0].Status != 500 {
		t.Errorf("mode %+v", m)
	}
	if s := pay(t, url, "T-1"); s != 500 {
		t.Errorf("paid with %d", s)
	}
	s, b := send(t, t.Context(), "GET", url+"/counts", "", "")
	var c Counts
	if err := json.Unmarshal([]byte(b), &c); s != 200 || err != nil || c.Posts != 1 || c.Effects != 0 {
		t.Errorf("%d %s: %v", s, b, err)
	}
	if s, b := send(t, t.Context(), "POST", url+"/forget", "", ""); s != 200 || !strings.Contains(b, `"posts":0`) {
		t.Errorf("%d %s", s, b)
	}
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := New(Config{Mode: Timeouts(0, 0, 0)})
	addr := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, "127.0.0.1:0", func(a net.Addr) { addr <- a.String() }) }()
	url := "http://" + <-addr
	if s, _ := send(t, t.Context(), "GET", url+"/healthz", "", ""); s != 200 {
		t.Errorf("health %d", s)
	}
	var wg sync.WaitGroup
	wg.Go(func() { send(t, t.Context(), "POST", url+"/pay", "T-1", `{}`) })
	until(t, func() bool { return w.Counts().InFlight == 1 })
	stop()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	wg.Wait()
}
