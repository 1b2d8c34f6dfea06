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

// lateCommitGroup takes half a second for each commit once its generation is over.
type lateCommitGroup struct {
	*fakeGroup
	over chan struct{}
}

func (g *lateCommitGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	context.AfterFunc(ctx, func() { close(g.over) })
	return serve(ctx, g)
}

func (g *lateCommitGroup) Commit(ctx context.Context, offsets map[int32]int64) error {
	select {
	case <-g.over:
		time.Sleep(500 * time.Millisecond)
	default:
	}
	return g.fakeGroup.Commit(ctx, offsets)
}

// A call that ignores its context comes back when the settlers have ended and the last commit is under way. Its answer fell
// between those that are settled as usual and those that are settled late, and was lost.
func TestAnAnswerThatComesDuringTheLastCommitIsWrittenDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{
			fakeAttempter: newAttempter(3, 10*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded}),
			number:        "T-5", back: make(chan struct{}),
		}
		g := &lateCommitGroup{fakeGroup: &fakeGroup{records: 20}, over: make(chan struct{})}
		store := &fakeStore{rows: map[string]order.Transition{}}
		lane := New(Config{
			Route: "r", Owner: "me", Drain: 5 * time.Second, Overdue: time.Hour,
			Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 3},
			Policy: order.Policy{ReplayAttempts: 3, ReplayAttemptsTotal: 9},
		}, g, store, s, &fakeReplay{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- lane.Run(ctx) }()
		time.Sleep(5700 * time.Millisecond) // at 5.5 s settling ended
		if len(ended) != 0 {
			t.Fatal("the last commit is over already")
		}
		close(s.back)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if n := store.count(order.Succeeded, order.NoPhase); n != 20 {
			t.Errorf("%d orders of 20 are settled", n)
		}
		if committed, _ := g.at(); committed != 5 {
			t.Errorf("committed %d, want 5: for the offset the answer came too late", committed)
		}
	})
}

// A call that was given up comes back while the drain still waits for another: its answer is written down by the settlers,
// and the drain waits for that too.
func TestTheDrainWaitsForTheAnswerOfACallThatWasGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{
			fakeAttempter: newAttempter(2, 900*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded}),
			number:        "T-0", back: make(chan struct{}),
		}
		store := &fakeStore{rows: map[string]order.Transition{}}
		lane := New(Config{
			Route: "r", Owner: "me", Drain: 10 * time.Second, Overdue: 3 * time.Second,
			Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 2},
			Policy: order.Policy{ReplayAttempts: 3, ReplayAttemptsTotal: 9},
		}, &fakeGroup{records: 7}, store, s, &fakeReplay{})
		ended := make(chan error, 1)
		go func() { ended <- lane.Run(t.Context()) }()
		time.Sleep(time.Second)
		g := lane.now.Load()
		until := func(what string, is func() bool) {
			t.Helper()
			for range 10_000 {
				g.mu.Lock()
				ok := is()
				g.mu.Unlock()
				if ok {
					return
				}
				time.Sleep(time.Millisecond)
			}
			t.Fatalf("%s did not come", what)
		}
		until("the end of the generation", func() bool { return g.closed && g.abandoned == 1 })
		store.slowDown(2 * time.Second) // so that each settler has one outcome
		until("the end of the other call", func() bool { return g.flying == 1 })
		time.Sleep(10 * time.Millisecond) // a settler has it now
		close(s.back)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if row := store.rows["T-0"]; row.State != order.Succeeded {
			t.Errorf("the order is left as %+v, want SUCCEEDED", row)
		}
	})
}
