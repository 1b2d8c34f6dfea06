package kafka

import (
	"context"
	"net"
	"sync"
)

// dials opens the member's connections and can cut them: kafka-go's group waits for an answer to its join for as long
// as the other members take to drain, and a worker that was told to end must not.
type dials struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex // guards open
	open map[*tracked]struct{}
}

// tracked is a connection that is forgotten when it is closed.
type tracked struct {
	net.Conn
	from *dials
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.from.mu.Lock()
	delete(t.from.open, t)
	t.from.mu.Unlock()
	return t.Conn.Close()
}

// DialContext opens a connection that cut will close.
func (d *dials) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &tracked{Conn: conn, from: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[*tracked]struct{}{}
	}
	d.open[t] = struct{}{}
	return t, nil
}

// cut closes the connections there are. Later ones are not affected.
func (d *dials) cut() {
	d.mu.Lock()
	open := d.open
	d.open = nil
	d.mu.Unlock()
	for t := range open {
		_ = t.Conn.Close()
	}
}
