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

// revokedGroup takes its first generation away after a while, and lets no commit of it through from then on: the group
// has put the member out. The second generation begins where the group stands.
type revokedGroup struct {
	*fakeGroup
	after time.Duration
	over  chan struct{} // closed when the first generation is

	mu      sync.Mutex
	refused []int64 // offsets
}

func (g *revokedGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	first, revoke := context.WithTimeout(ctx, g.after)
	defer revoke()
	context.AfterFunc(first, func() { close(g.over) })
	if err := serve(first, revokedSession{g}); err != nil {
		return err
	}
	return serve(ctx, g.fakeGroup)
}

// revokedSession is the first generation's.
type revokedSession struct{ *revokedGroup }

func (s revokedSession) Commit(ctx context.Context, offsets map[int32]int64) error {
	select {
	case <-s.over:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = append(s.refused, offsets[0])
		return fmt.Errorf("commit offsets: %w", ErrFenced)
	default:
		return s.fakeGroup.Commit(ctx, offsets)
	}
}

// TestLateResultsOfRevokedPartitionsCountForOrdersAndNotForOffsets: the calls under way when the group put the worker
// out end after that. Their orders are settled by what they say; the offsets stay where they are; whoever reads the
// records again finds duplicates and calls nobody.
func TestLateResultsOfRevokedPartitionsCountForOrdersAndNotForOffsets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records, permits = 10, 10
		g := &revokedGroup{fakeGroup: &fakeGroup{records: records}, after: time.Second, over: make(chan struct{})}
		store := &fakeStore{rows: map[string]order.Transition{}}
		a := newAttempter(permits, 3*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		lane := New(Config{
			Route: "r", Owner: "me", Drain: 10 * time.Second,
			Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: permits},
			Policy: order.Policy{ReplayAttempts: 3, ReplayAttemptsTotal: 20, RetryDelay: time.Second, RetryDelayMax: time.Minute},
		}, g, store, a, &fakeReplay{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- lane.Run(ctx) }()

		time.Sleep(3500 * time.Millisecond) // the calls have ended, the first generation is over
		synctest.Wait()
		if n := store.count(order.Succeeded, order.NoPhase); n != records {
			t.Errorf("%d orders of %d are settled by their late results", n, records)
		}
		g.mu.Lock()
		if len(g.refused) == 0 {
			t.Error("no commit was tried after the group had put the worker out")
		}
		g.mu.Unlock()
		time.Sleep(2 * time.Second)
		if calls, _ := a.made(); calls != records {
			t.Errorf("%d calls for %d orders: the records that were read again were called again", calls, records)
		}
		if committed, _ := g.at(); committed != records {
			t.Errorf("the next generation has committed %d, want %d", committed, records)
		}
		if n := lane.Level().Imbalance; n != 0 {
			t.Errorf("%d records are in no place they can be in", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
