package replay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
	"spillway/replay"
)

// slowQueue takes its time for a claim, so that claims are of more than one.
type slowQueue struct {
	*memQueue

	claims *atomic.Int64 // that brought something
}

func (q slowQueue) Claim(ctx context.Context, worker string, n, room int, lease time.Duration) (replay.Claim, error) {
	time.Sleep(10 * time.Millisecond)
	c, err := q.memQueue.Claim(ctx, worker, n, room, lease)
	if len(c.Items) > 0 {
		q.claims.Add(1)
	}
	return c, err
}

func TestAnswersThatComeSoonAfterEachOtherAreSettledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var calls, claims atomic.Int64
		w.service.answer = func(context.Context, *order.Order) order.Answer {
			time.Sleep(50*time.Millisecond + time.Duration(calls.Add(1)%10)*time.Millisecond)
			return order.Answer{Outcome: order.OutcomeSucceeded, Sent: true}
		}
		e, err := replay.New(w.cfg, w.policy, slowQueue{w.queue, &claims}, faultyStore{w.store, w.faults}, w.service, discard(), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.spill(e, 2000)
		w.run(e)
		time.Sleep(20 * time.Second)
		w.wantRows(2000, order.Succeeded, order.NoPhase)
		if n := len(w.faults.tried("settle before")); int64(n) > 3*claims.Load()/2 {
			t.Errorf("%d statements settled %d claims", n, claims.Load())
		}
	})
}

func TestTheLastAnswerOfAClaimIsSettledAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ended time.Time
		w.service.answer = func(context.Context, *order.Order) order.Answer {
			time.Sleep(50 * time.Millisecond)
			ended = time.Now()
			return order.Answer{Outcome: order.OutcomeSucceeded, Sent: true}
		}
		e := w.engine()
		w.spill(e, 1)
		w.run(e)
		time.Sleep(5 * time.Second)
		if at := w.faults.tried("settle before"); len(at) != 1 || !at[0].Equal(ended) {
			t.Errorf("settled at %v, want once, at %v", at, ended)
		}
	})
}
