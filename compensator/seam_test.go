package compensator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"spillway/breaker"
	"spillway/compensator"
	"spillway/internal/attempt"
	"spillway/internal/downstream"
	"spillway/internal/memstore"
	"spillway/internal/permit"
	"spillway/internal/rate"
	"spillway/internal/wallet"
	"spillway/order"
)

// queue takes down what is to be sent again.
type queue struct {
	mu     sync.Mutex
	queued map[int64]bool
}

func (q *queue) Push(_ context.Context, spilled []order.Spilled) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range spilled {
		q.queued[s.Order.ID] = true
	}
	return nil
}

func (q *queue) Has(_ context.Context, ids []int64) ([]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = q.queued[id]
	}
	return out, nil
}

// Orders go to a service that hangs on every second call after applying it, over real connections. The scanner settles
// those that were applied, and hands the others to the replay queue; it sends nothing itself.
func TestOrdersThatTimedOutAreSettledByWhatTheServiceDid(t *testing.T) {
	t.Parallel()
	const orders = 40
	w := wallet.New(wallet.Config{Seed: 3, MaxHang: time.Second, Mode: wallet.Timeouts(0.5, 0, 0)})
	server := httptest.NewServer(w)
	defer server.Close()
	handler, err := downstream.New(downstream.Config{
		URL: server.URL, Submit: downstream.Request{Path: "/pay"}, Lookup: downstream.Request{Path: "/pay/{number}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	permits := permit.New(permit.Config{Limit: orders})
	idle := permits.Free(order.LaneCompensate)
	var breakers [2]*breaker.Breaker
	for i, endpoint := range []string{"submit", "lookup"} {
		// The submits all time out: their breaker only watches.
		if breakers[i], err = breaker.New(breaker.Key{Service: "r", Endpoint: endpoint}, breaker.Config{Mode: breaker.ModeObserve}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	calls := attempt.New(attempt.Config{Submit: 100 * time.Millisecond, Lookup: 5 * time.Second}, rate.New(rate.Config{}, time.Now()), permits, handler, breakers[0], breakers[1], nil)
	policy := order.Policy{
		ReplayAttempts: 3, ReplayAttemptsTotal: 20, RetryDelay: time.Second, RetryDelayMax: time.Minute,
		RetryAfterMax: time.Minute, ReplayPatience: time.Hour, CompensateAttempts: 5,
		LookupDelay: 10 * time.Millisecond, LookupDelayMax: time.Second, Grace: 500 * time.Millisecond,
	}
	store := memstore.New(time.Now)
	admissions := make([]order.Admission, orders)
	for i := range admissions {
		number := fmt.Sprintf("T/%d", i)
		admissions[i] = order.Admission{Number: number, Message: order.Message{Topic: "in", Offset: int64(i), Value: []byte(`{"order_no":"` + number + `"}`)}}
	}
	admitted, err := store.Admit(t.Context(), "r", "w1", time.Minute, admissions)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range admitted {
		wg.Go(func() {
			o := &admitted[i].Order
			if err := calls.Acquire(t.Context(), order.LaneLive); err != nil {
				t.Error(err)
				return
			}
			a := calls.Submit(t.Context(), order.LaneLive, o)
			calls.Release(order.LaneLive)
			if a.Outcome != order.OutcomeUnknown || a.Reason != order.UpstreamTimeout {
				t.Errorf("%s: %+v", o.Number, a)
			}
			if how, err := store.Settle(t.Context(), "w1", []order.Settlement{o.Settle(policy.AfterAttempt(o, a, time.Now(), 0))}); err != nil || how[0] != order.Applied {
				t.Errorf("%s: %v %v", o.Number, how, err)
			}
		})
	}
	wg.Wait()

	q := &queue{queued: map[int64]bool{}}
	s, err := compensator.New(compensator.Config{Route: "r", Owner: "w1", Interval: 10 * time.Millisecond, LookupTimeout: 5 * time.Second},
		policy, store, calls, q, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	settled := func() (succeeded, replaying int) {
		for i := range admissions {
			v, err := store.ShowOrder(t.Context(), "r", admissions[i].Number)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case v.Order.State == order.Succeeded:
				succeeded++
			case v.Order.Phase == order.Replaying:
				replaying++
			}
		}
		return succeeded, replaying
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if succeeded, replaying := settled(); succeeded+replaying == orders || ctx.Err() != nil {
			break
		}
		<-tick.C
	}
	stop()
	wg.Wait()
	succeeded, replaying := settled()
	applied := len(w.Numbers())
	if succeeded != applied || replaying != orders-applied || applied == 0 || applied == orders || len(q.queued) != replaying {
		t.Errorf("%d SUCCEEDED, %d REPLAYING, %d queued; the service applied %d of %d", succeeded, replaying, len(q.queued), applied, orders)
	}
	if c := w.Counts(); c.Posts != orders || c.Duplicates != 0 || c.Altered != 0 {
		t.Errorf("the service saw %+v", c)
	}
	if free := permits.Free(order.LaneCompensate); free != idle {
		t.Errorf("%d of %d permits came back", free, idle)
	}
}
