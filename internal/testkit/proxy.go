package testkit

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"spillway/internal/testkit/server"
)

// Proxy is a TCP proxy on loopback that breaks connections on demand. Its methods may be called from any goroutine.
type Proxy struct {
	t    testing.TB
	port int
	wait sync.WaitGroup // the accept loop and both directions of every connection

	mu       sync.Mutex // guards everything below
	target   string
	listener net.Listener  // nil while refusing
	served   chan struct{} // closed when nobody accepts from listener any more
	pairs    map[*pair]struct{}
	delay    time.Duration
	stalled  chan struct{} // closed when bytes may flow
	total    int
	closed   bool
}

// pair is one proxied connection.
type pair struct{ client, target *net.TCPConn }

// StartProxy starts a proxy in front of target (host:port). It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	port, err := server.FreePort(t.Context())
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	flowing := make(chan struct{})
	close(flowing)
	p := &Proxy{t: t, port: port, target: target, pairs: map[*pair]struct{}{}, stalled: flowing}
	p.Accept()
	t.Cleanup(func() {
		p.Flow()
		p.Refuse()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.Cut()
		p.wait.Wait()
	})
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort(server.Host, strconv.Itoa(p.port)) }

// Retarget sends later connections to another target.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse closes the port: later dials are refused. Open connections go on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		<-p.served // the port stays open until the last accept has returned
		p.listener = nil
	}
}

// Accept opens the port again after Refuse.
func (p *Proxy) Accept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(context.Background(), "tcp", p.Addr())
	if err != nil {
		p.t.Errorf("proxy: %v", err)
		return
	}
	p.listener, p.served = listener, make(chan struct{})
	served := p.served
	p.wait.Go(func() {
		defer close(served)
		p.serve(listener)
	})
}

// Cut resets every open connection, on both sides and at once. Later connections are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.reset()
	}
}

// HalfClose ends the direction from the target to the client on every open connection: the client reads the end of
// the stream while what it sends still arrives.
func (p *Proxy) HalfClose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		_ = pair.client.CloseWrite()
	}
}

// Delay holds back each piece of data for d, in both directions; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall lets no byte through, in either direction, until Flow: a network that swallows packets.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stalled:
		p.stalled = make(chan struct{})
	default:
	}
}

// Flow ends Stall; what was held back goes on.
func (p *Proxy) Flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stalled:
	default:
		close(p.stalled)
	}
}

// Connections returns how many connections were accepted since the start, and how many are open now.
func (p *Proxy) Connections() (total, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, len(p.pairs)
}

// serve accepts until the listener is closed.
func (p *Proxy) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		client, ok := conn.(*net.TCPConn)
		if !ok {
			_ = conn.Close()
			continue
		}
		p.wait.Go(func() { p.connect(client) })
	}
}

// connect joins a client with the target until both directions have ended.
func (p *Proxy) connect(client *net.TCPConn) {
	p.mu.Lock()
	p.total++
	address := p.target
	p.mu.Unlock()
	conn, err := net.DialTimeout("tcp", address, time.Second)
	target, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		reset(client)
		return
	}
	joined := &pair{client: client, target: target}
	p.mu.Lock()
	if p.closed {
		joined.reset()
	}
	p.pairs[joined] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.copy(target, client) })
	both.Go(func() { p.copy(client, target) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, joined)
	p.mu.Unlock()
	_ = errors.Join(client.Close(), target.Close())
}

// copy moves bytes in one direction until its end, and passes the end on. A reset on one side resets the other.
func (p *Proxy) copy(to, from *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		delay, flowing := p.delay, p.stalled
		p.mu.Unlock()
		<-flowing
		if delay > 0 {
			<-time.After(delay)
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				// This direction is half-closed. The kernel takes and drops what still comes, so that the other goes on.
				_ = from.CloseRead()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		default:
			reset(to)
			return
		}
	}
}

// reset ends both sides with a reset.
func (c *pair) reset() {
	reset(c.client)
	reset(c.target)
}

// reset closes a connection so that its peer sees a reset instead of an end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
