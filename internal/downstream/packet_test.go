package downstream

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"spillway/order"
)

// counted counts what is written to a connection.
type counted struct {
	net.Conn

	writes *atomic.Int32
}

func (c counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// A head in a packet of its own costs both sides a system call for each order.
func TestRequestLeavesInOneWrite(t *testing.T) {
	t.Parallel()
	s := newService(t, func(http.ResponseWriter, *http.Request) {})
	h := newHTTP(t, Config{URL: s.URL})
	var writes atomic.Int32
	dial := h.transport.Load().DialContext
	h.transport.Load().DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		return counted{c, &writes}, err
	}
	const calls = 5
	for range calls {
		if a := h.Submit(within(t, 5*time.Second), testOrder("T-1")); a.Outcome != order.OutcomeSucceeded {
			t.Fatalf("the answer is %+v", a)
		}
	}
	if n := writes.Load(); n != calls {
		t.Errorf("%d writes for %d requests", n, calls)
	}
}
