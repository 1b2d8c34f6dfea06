package consumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// twoParts is a session of two partitions without end.
type twoParts struct{}

func (f *twoParts) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	return serve(ctx, f)
}
func (f *twoParts) Generation() int32                             { return 1 }
func (f *twoParts) Assigned() []Position                          { return []Position{{Partition: 0}, {Partition: 1}} }
func (f *twoParts) Commit(context.Context, map[int32]int64) error { return nil }
func (f *twoParts) Fetch(ctx context.Context, feed Feed) error {
	for ctx.Err() == nil {
		grants := feed.Plan([]int32{0, 1}, nil)
		if len(grants) == 0 {
			c, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			feed.Wait(c)
			cancel()
			continue
		}
		for _, g := range grants {
			n := min(max(int64(g.Bytes)/200, 1), 50)
			b := Batch{Partition: g.Partition, Grant: g.Bytes, Next: g.Offset + n, HighWater: 1e9}
			for o := g.Offset; o < b.Next; o++ {
				b.Messages = append(b.Messages, order.Message{
					Partition: g.Partition, Offset: o, Value: []byte("v"), Key: fmt.Appendf(nil, "T-%d", o*2+int64(g.Partition)),
					Headers: []order.Header{{Key: "t", Value: fmt.Append(nil, g.Partition)}},
				})
			}
			feed.Deliver(b)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// paced gives tenant 0 a right each tenth of a second.
type paced struct {
	*fakeAttempter
	next time.Time
}

func (p *paced) PaceLive(now time.Time, tenant string) (wait time.Duration, ofTenant bool) {
	if tenant != "0" {
		return 0, false
	}
	if now.Before(p.next) {
		return p.next.Sub(now), true
	}
	p.next = now.Add(100 * time.Millisecond)
	return 0, false
}

// routePaced gives all tenants together a right each tenth of a second.
type routePaced struct{ paced }

func (p *routePaced) PaceLive(now time.Time, _ string) (wait time.Duration, ofTenant bool) {
	wait, _ = p.paced.PaceLive(now, "0")
	return wait, false
}

// Where it is the route's rate that is reached, what waits stands in nobody's way. It was set aside all the same, as if each
// tenant were at a rate of its own: the lane went on reading and admitting, and thousands of orders stood admitted that the
// rate had minutes of work with.
func TestTenantsThatWaitForTheRouteWaitAsRecordsWithoutTenantsDo(t *testing.T) {
	t.Parallel()
	for _, from := range []TenantFrom{NoTenants, TenantFromHeader} {
		synctest.Test(t, func(t *testing.T) {
			a := newAttempter(20, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
			l := New(Config{
				Route: "r", Owner: "me", Tenant: Tenant{From: from, Header: "t"},
				Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 20},
			}, &twoParts{}, &fakeStore{rows: map[string]order.Transition{}}, &routePaced{paced{fakeAttempter: a}}, &fakeReplay{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Run(ctx) }()
			time.Sleep(10 * time.Second)
			g := l.now.Load()
			g.mu.Lock()
			held := len(g.held)
			g.mu.Unlock()
			if held > 2*20 {
				t.Errorf("tenants from %d: %d orders stand admitted at ten a second, want one for each permit, or two", from, held)
			}
			if s := l.Level(); s.Constraint != ConstraintRate {
				t.Errorf("tenants from %d: constraint %s", from, s.Constraint)
			}
			if calls, _ := a.made(); calls < 99 || calls > 101 {
				t.Errorf("tenants from %d: %d calls in 10 s", from, calls)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// A tenant at its rate floods one partition: what waits for its rate takes no room from the tenant of the other.
func TestLaneKeepsATenantAtItsRateFromStandingInTheWayOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(20, 0, order.Answer{})
		var mu sync.Mutex
		n := map[int32]int{}
		a.answer = func(o *order.Order) order.Answer {
			mu.Lock()
			n[o.Message.Partition]++
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return order.Answer{Outcome: order.OutcomeSucceeded}
		}
		store := &fakeStore{rows: map[string]order.Transition{}}
		l := New(Config{
			Route: "r", Owner: "me", Tenant: Tenant{From: TenantFromHeader, Header: "t"},
			Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 20},
		}, &twoParts{}, store, &paced{fakeAttempter: a}, &fakeReplay{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_ = l.Run(ctx)
		mu.Lock()
		defer mu.Unlock()
		// Of 20 s: 10 a second for the one, and for the other what 20 permits of 10 ms give beside it.
		if n[0] < 150 || n[0] > 210 || n[1] < 36_000 {
			t.Fatalf("calls of the tenant at its rate %d, want about 200; of the other %d, want about 40,000", n[0], n[1])
		}
	})
}
