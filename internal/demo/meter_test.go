package demo

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// metered is a meter before a handler that says that it was called, and hangs until it is let go.
func metered(t *testing.T) (m *meter, server *httptest.Server, arrived chan struct{}, release func()) {
	t.Helper()
	hang := make(chan struct{})
	arrived = make(chan struct{}, 100)
	m = newMeter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hang
	}))
	server = httptest.NewUnstartedServer(m)
	server.Config.ConnContext = m.remember
	server.Start()
	release = sync.OnceFunc(func() { close(hang) })
	t.Cleanup(server.Close)
	t.Cleanup(release)
	return m, server, arrived, release
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestMeterCountsWhatIsThereAtOnce(t *testing.T) {
	t.Parallel()
	m, server, arrived, release := metered(t)
	var calls sync.WaitGroup
	for range 7 {
		calls.Go(func() {
			if err := get(t.Context(), server.URL); err != nil {
				t.Error(err)
			}
		})
	}
	for range 7 {
		<-arrived
	}
	release()
	calls.Wait()
	if err := get(t.Context(), server.URL); err != nil || m.highest() != 7 {
		t.Errorf("%v; the highest is %d, want 7", err, m.highest())
	}
}

// A caller that gives up and calls again at once has one call in flight, whatever the handler of the first still does:
// a permit covers no more. net/http may learn of the hang-up after the next call has come.
func TestMeterDoesNotCountWhoHasHungUp(t *testing.T) {
	t.Parallel()
	m, server, arrived, _ := metered(t)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- get(ctx, server.URL) }()
		<-arrived
		cancel()
		if err := <-done; err == nil {
			t.Fatal("a call that was given up has an answer")
		}
	}
	if m.highest() != 1 {
		t.Errorf("the highest is %d, want 1: the calls came one after the other", m.highest())
	}
}

func TestHungUpTellsAnOpenConnectionFromAClosedOne(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var dialer net.Dialer
	client, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if hungUp(server) {
		t.Error("an idle connection counts as closed")
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if hungUp(server) {
		t.Error("a connection with bytes to read counts as closed")
	}
	one := make([]byte, 1)
	if _, err := server.Read(one); err != nil || one[0] != 'x' {
		t.Fatalf("the byte was taken: %q, %v", one, err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 5*time.Second, func() (bool, string) { return hungUp(server), "a closed connection counts as open" })
	if err := server.Close(); err != nil || !hungUp(server) {
		t.Errorf("closed on this side: %v, and counts as open", err)
	}
}
