package downstream

import (
	"net/http"
	"strings"
	"testing"

	"spillway/order"
)

func TestWhatTheServiceCallsAFailedRequestIsKnown(t *testing.T) {
	t.Parallel()
	status, id := http.StatusBadGateway, "req-1"
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", id)
		w.WriteHeader(status)
	})
	h := newHTTP(t, Config{URL: s.URL, BearerToken: "C4NARY-token"})
	ask := func() (string, string) {
		o := &order.Order{Number: "A-1", Message: order.Message{Value: []byte("{}")}}
		return h.Submit(t.Context(), o).RequestID, h.Lookup(t.Context(), o).RequestID
	}
	if a, f := ask(); a != "req-1" || f != "req-1" {
		t.Errorf("called %q and %q", a, f)
	}
	id = "x C4NARY-token " + strings.Repeat("y", 500)
	if a, f := ask(); len(a) > 128 || strings.Contains(a+f, "C4NARY") || !strings.HasPrefix(a, "x [redacted] y") {
		t.Errorf("called %q and %q", a, f)
	}
	status = http.StatusOK
	if a, _ := ask(); a != "" {
		t.Errorf("a success is called %q", a)
	}
}
