package compensator

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/permit"
	"spillway/order"
)

// pooled makes lookups under a real pool of permits.
type pooled struct{ *permit.Pool }

func (p pooled) Pace(time.Time, order.Lane, string) time.Duration { return 0 }
func (p pooled) Unpace(order.Lane, string)                        {}

func (p pooled) LookupRoom() (int, bool) { return 1000, false }

func (p pooled) Lookup(_ context.Context, l order.Lane, _ *order.Order) order.Finding {
	defer p.Release(l)
	return order.Finding{Verdict: order.VerdictSucceeded, Outcome: order.OutcomeSucceeded}
}

// A live lane with a backlog leaves no permit idle. The scanner once asked for idle ones alone and looked nothing up until
// the backlog was gone.
func TestLookupsGoOnWhileTheLiveLaneTakesEveryPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := permit.New(permit.Config{Limit: 50})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			for pool.Acquire(ctx, order.LaneLive) == nil {
				go func() {
					time.Sleep(100 * time.Millisecond)
					pool.Release(order.LaneLive)
				}()
			}
		}()
		synctest.Wait()
		store := newStore()
		for id := range int64(10) {
			store.add(id+1, order.Unknown)
		}
		s, err := New(Config{Route: "r", Owner: "w"}, testPolicy(), store, pooled{pool}, newQueue(), slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := store.count(order.Succeeded); n != 10 {
			t.Errorf("%d of 10 orders settled in a minute of a saturated live lane", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		time.Sleep(time.Second) // the calls under way
	})
}
