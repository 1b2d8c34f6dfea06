package demo

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// meter stands before the wallet and measures how many requests were there at once that somebody waited for. A caller
// that gave up has hung up; that the wallet works on unasked is no call in flight.
type meter struct {
	next http.Handler

	mu     sync.Mutex // guards what follows
	flying map[*flight]struct{}
	most   int
}

// flight is one request inside the wallet.
type flight struct{ conn net.Conn }

type connKey struct{}

func newMeter(next http.Handler) *meter {
	return &meter{next: next, flying: map[*flight]struct{}{}}
}

// remember is the http.Server's ConnContext: it lets ServeHTTP know the connection.
func (m *meter) remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ServeHTTP counts the request and passes it on.
func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := &flight{}
	f.conn, _ = r.Context().Value(connKey{}).(net.Conn)
	m.enter(f)
	defer m.leave(f)
	m.next.ServeHTTP(w, r)
}

// enter counts a request in. net/http learns of a hang-up some time after the kernel did; so where the count would be
// the highest yet, the sockets themselves are asked.
func (m *meter) enter(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flying[f] = struct{}{}
	if len(m.flying) <= m.most {
		return
	}
	for other := range m.flying {
		if hungUp(other.conn) {
			delete(m.flying, other)
		}
	}
	m.most = max(m.most, len(m.flying))
}

func (m *meter) leave(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.flying, f)
}

// highest is the most requests at once, submits and lookups together.
func (m *meter) highest() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// hungUp reports whether the other side has closed the connection, without reading from it or waiting.
func hungUp(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true // closed on this side
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		one := make([]byte, 1)
		n, _, err := syscall.Recvfrom(int(fd), one, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch err {
		case nil:
			gone = n == 0
		case syscall.EAGAIN, syscall.EINTR:
		default:
			gone = true
		}
	})
	return gone || err != nil
}
