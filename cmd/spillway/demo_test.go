package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

func TestDemoRefusesALengthOutOfItsBounds(t *testing.T) {
	t.Parallel()
	for _, length := range []string{"9s", "31m", "60"} {
		code, out, errs := spill(t, nil, "demo", "--duration", length)
		if code != exitUsage || out != "" || !strings.Contains(errs, "duration") {
			t.Errorf("--duration %s: exit %d, printed %q, %q", length, code, out, errs)
		}
	}
}

func TestDemoSaysWhatItCannotReachAndShowsNoPassword(t *testing.T) {
	t.Parallel()
	code, out, errs := spill(t, nil, "demo", "--postgres-url", "postgres://u:hunter2@127.0.0.1:1/x?connect_timeout=2")
	if code != exitFailure || out != "" || !strings.Contains(errs, "postgres") || strings.Contains(errs, "hunter2") {
		t.Errorf("exit %d, printed %q, %q", code, out, errs)
	}
}

func TestWalletServesUntilToldToStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &tape{}
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"wallet", "--listen", "127.0.0.1:0", "--mode", "failing"},
			&surroundings{ctx: ctx, in: strings.NewReader(""), out: io.Discard, err: errs, version: "test"})
	}()
	var address string
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		_, after, found := strings.Cut(errs.String(), "listening on ")
		address, _, _ = strings.Cut(after, ",")
		return found, "the wallet does not say where it listens: " + errs.String()
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/pay", strings.NewReader(`{"order_no":"A1"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "A1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%v; a failing wallet answers %d", err, resp.StatusCode)
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestWalletRefusesAnUnknownMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sleepy", `{"name":`, `{"pay":[{"kind":"nap"}]}`} {
		if code, _, errs := spill(t, nil, "wallet", "--mode", mode); code != exitFailure || !strings.Contains(errs, "mode") {
			t.Errorf("--mode %s: exit %d, %q", mode, code, errs)
		}
	}
}

// tape is a buffer that one goroutine writes and another reads.
type tape struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *tape) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *tape) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
