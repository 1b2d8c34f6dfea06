package consumer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/memstore"
	"spillway/order"
)

func TestLaneHandsBackWhatItNeverSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, 3*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		b := startLane(t, 100, a, func(c *Config) { c.Drain = 10 * time.Second })
		time.Sleep(time.Second)
		g := b.lane.now.Load()
		start := time.Now()
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("drained in %s: it waits for the calls under way, and begins no others", took)
		}
		calls, _ := a.made()
		committed, _ := b.group.at()
		if calls != 2 || committed != 2 {
			t.Errorf("%d calls, committed %d: want 2 and 2", calls, committed)
		}
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		for number, row := range b.store.rows {
			o := order.Order{State: row.State, Phase: row.Phase, AttemptsTotal: row.AttemptsTotal, Outcome: row.Outcome}
			if row.State != order.Succeeded && (!order.Withdrawn(&o) || row.Reason != order.Shutdown) {
				t.Errorf("%s is left as %+v, want withdrawn for the worker's shutdown", number, row)
			}
		}
		if items, _ := b.replay.seen(); items != 0 {
			t.Errorf("%d orders in the replay queue: they would be overtaken by their successors", items)
		}
		if len(g.held) != 0 || g.sum.taken != g.sum.closed+g.sum.dropped {
			t.Errorf("%d held, sum %+v", len(g.held), g.sum)
		}
		if l := g.gate.Level(); l != (Level{}) {
			t.Errorf("the gate still counts %+v", l)
		}
	})
}

// fencedGroup refuses the last commit, as after an eviction.
type fencedGroup struct{ *fakeGroup }

func (f *fencedGroup) Run(ctx context.Context, serve func(context.Context, Session) error) error {
	return serve(ctx, f)
}

func (f *fencedGroup) Commit(context.Context, map[int32]int64) error {
	return fmt.Errorf("evicted: %w", ErrFenced)
}

func TestLanePutsIntoTheQueueWhatItsSuccessorMayHavePassedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, 3*time.Second, order.Answer{Outcome: order.OutcomeSucceeded})
		store, replay := &fakeStore{rows: map[string]order.Transition{}}, &fakeReplay{}
		l := New(Config{
			Number: Number{}, Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 2},
		}, &fencedGroup{&fakeGroup{records: 10}}, store, a, replay)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		n := store.count(order.Processing, order.Replaying)
		if items, _ := replay.seen(); items != n || n == 0 {
			t.Errorf("%d orders in the queue, %d withdrawn", items, n)
		}
	})
}

// A member that the group has put out hears of it with its next commit, seconds before its heartbeat says so. It sent on
// meanwhile, beside the partition's next owner.
func TestLaneSendsNothingMoreOnceACommitIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAttempter(2, 100*time.Millisecond, order.Answer{Outcome: order.OutcomeSucceeded})
		l := New(Config{
			Commit: time.Second, Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 2},
		}, &fencedGroup{&fakeGroup{records: 10_000}}, &fakeStore{rows: map[string]order.Transition{}}, a, &fakeReplay{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took > 1200*time.Millisecond {
			t.Errorf("the generation lasted %s, want it to end with the first commit", took)
		}
		if calls, _ := a.made(); calls > 22 {
			t.Errorf("%d calls, want the 20 that begin before the commit", calls)
		}
	})
}

// A key's orders run in turn over many readers, each of which is stopped with calls under way and more in line.
func TestKeyOrderHoldsFromOneReaderToTheNext(t *testing.T) {
	t.Parallel()
	for _, o := range []Ordering{ByKey, ByPartition} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const records = 600
				store := memstore.New(time.Now)
				k := &keyWatch{t: t, running: map[string]bool{}, last: map[string]int64{}}
				k.took.Store(int64(30 * time.Millisecond))
				group := &fakeGroup{records: records, key: func(offset int64) []byte {
					return fmt.Append(nil, "k", offset*offset%7)
				}}
				seen := map[string]int{}
				for reader := 0; ; reader++ {
					if committed, _ := group.at(); committed == records {
						t.Logf("%d readers", reader)
						break
					}
					if reader == 200 {
						t.Fatal("the readers do not get on")
					}
					a := newAttempter(5, 0, order.Answer{})
					a.answer = k.answer
					l := New(Config{
						Route: "r", Owner: fmt.Sprint("w", reader), Ordering: o, Number: Number{From: FromHeader, Header: "no"},
						Limits: Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 5},
						Policy: order.Policy{Reread: time.Hour, ReplayAttempts: 3, ReplayAttemptsTotal: 9},
					}, group, store, a, &fakeReplay{})
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					if err := l.Run(ctx); err != nil {
						t.Errorf("Run: %v", err)
					}
					cancel()
					for number, calls := range a.calls {
						seen[number] += calls
					}
				}
				for number, calls := range seen {
					if calls != 1 {
						t.Errorf("%s was called %d times", number, calls)
					}
				}
				if len(seen) != records {
					t.Errorf("%d orders were called, want %d", len(seen), records)
				}
			})
		})
	}
}
