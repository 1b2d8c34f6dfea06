package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/internal/batch"
)

// double answers each number with its double.
func double(_ context.Context, ins []int) ([]int, error) {
	outs := make([]int, len(ins))
	for i, in := range ins {
		outs[i] = 2 * in
	}
	return outs, nil
}

// run runs b until the test ends.
func run[In, Out any](t *testing.T, b *batch.Batcher[In, Out]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func TestEachCallerGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	b := batch.New(batch.Config{MaxItems: 7, Queue: 3}, nil, double)
	defer run(t, b)()
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			if got, err := b.Do(t.Context(), i); err != nil || got != 2*i {
				t.Errorf("%d: %d, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

func TestWhatComesDuringAFlushIsFlushedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		b := batch.New(batch.Config{Flushers: 1, MaxItems: 50}, nil, func(ctx context.Context, ins []int) ([]int, error) {
			sizes = append(sizes, len(ins))
			time.Sleep(time.Second)
			return double(ctx, ins)
		})
		stop := run(t, b)
		began := time.Now()
		var all sync.WaitGroup
		send := func(n int) {
			for i := range n {
				all.Go(func() {
					if _, err := b.Do(t.Context(), i); err != nil {
						t.Error(err)
					}
				})
			}
		}
		send(1)
		synctest.Wait() // one item does not wait for company
		send(120)
		all.Wait()
		stop()
		if !slices.Equal(sizes, []int{1, 50, 50, 20}) {
			t.Errorf("flushes of %v items, want 1, 50, 50 and 20", sizes)
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %s, want the four flushes and no wait between them", took)
		}
	})
}

func TestFlushersRunSideBySideAndNoMoreOfThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := batch.New(batch.Config{Flushers: 3, MaxItems: 1}, nil, func(ctx context.Context, ins []int) ([]int, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return double(ctx, ins)
		})
		stop := run(t, b)
		began := time.Now()
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() { _, _ = b.Do(t.Context(), i) })
		}
		all.Wait()
		stop()
		if most.Load() != 3 || time.Since(began) != 3*time.Second {
			t.Errorf("%d flushes at once, %s in all; want 3 and 3s", most.Load(), time.Since(began))
		}
	})
}

func TestABatchStaysUnderItsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var batches [][]int
		size := func(in *int) int { return *in }
		b := batch.New(batch.Config{Flushers: 1, MaxBytes: 10}, size, func(ctx context.Context, ins []int) ([]int, error) {
			batches = append(batches, slices.Clone(ins))
			time.Sleep(time.Second)
			return double(ctx, ins)
		})
		stop := run(t, b)
		var all sync.WaitGroup
		for _, n := range []int{1, 4, 6, 5, 25, 2, 3} {
			all.Go(func() { _, _ = b.Do(t.Context(), n) })
			synctest.Wait() // in this order
		}
		all.Wait()
		stop()
		if got := fmt.Sprint(batches); got != "[[1] [4 6] [5] [25] [2 3]]" {
			t.Errorf("batches %s", got)
		}
	})
}

func TestAnErrorReachesEachCallerOfTheFlush(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	b := batch.New(batch.Config{}, nil, func(context.Context, []int) ([]int, error) { return nil, away })
	defer run(t, b)()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := b.Do(t.Context(), i); !errors.Is(err, away) {
				t.Errorf("%d: %v, want %v", i, err, away)
			}
		})
	}
	all.Wait()
}

func TestAnAnswerOfTheWrongLengthIsAnError(t *testing.T) {
	t.Parallel()
	b := batch.New(batch.Config{}, nil, func(context.Context, []int) ([]int, error) { return []int{1, 2, 3}, nil })
	defer run(t, b)()
	if _, err := b.Do(t.Context(), 1); err == nil {
		t.Error("no error")
	}
}

func TestACallerThatGaveUpIsNotFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var flushed []int
		b := batch.New(batch.Config{Flushers: 1}, nil, func(ctx context.Context, ins []int) ([]int, error) {
			flushed = append(flushed, ins...)
			time.Sleep(10 * time.Second)
			return double(ctx, ins)
		})
		stop := run(t, b)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := b.Do(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		reason := errors.New("lost the partition")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, reason)
		defer cancel()
		began := time.Now()
		if _, err := b.Do(ctx, 2); !errors.Is(err, reason) || time.Since(began) != time.Second {
			t.Errorf("%v after %s, want %v after 1s", err, time.Since(began), reason)
		}
		all.Wait()
		stop()
		if !slices.Equal(flushed, []int{1}) {
			t.Errorf("flushed %v, want 1 alone", flushed)
		}
	})
}

func TestACallerBeyondTheQueueWaitsForItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := batch.New(batch.Config{Queue: 1}, nil, double) // nobody runs it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				if _, err := b.Do(ctx, i); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
	})
}

func TestAStoppedBatcherRefusesAndAnswersWhatItTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := batch.New(batch.Config{Flushers: 1, MaxItems: 1}, nil, func(ctx context.Context, ins []int) ([]int, error) {
			time.Sleep(time.Second) // a flush under way is finished
			return double(ctx, ins)
		})
		stop := run(t, b)
		var done, refused atomic.Int32
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				switch _, err := b.Do(t.Context(), i); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, batch.ErrStopped):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		stop()
		all.Wait()
		if done.Load() != 1 || refused.Load() != 4 {
			t.Errorf("%d done, %d refused, want 1 and 4", done.Load(), refused.Load())
		}
		if _, err := b.Do(t.Context(), 1); !errors.Is(err, batch.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestNothingIsLostOrDoneTwiceUnderStress(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 300
	var mu sync.Mutex
	flushed := map[int]int{}
	b := batch.New(batch.Config{Flushers: 3, MaxItems: 20, MaxBytes: 100, Queue: 16}, func(in *int) int { return *in % 50 },
		func(ctx context.Context, ins []int) ([]int, error) {
			mu.Lock()
			for _, in := range ins {
				flushed[in]++
			}
			mu.Unlock()
			if len(ins) > 20 {
				return nil, errors.New("too many")
			}
			return double(ctx, ins)
		})
	stop := run(t, b)
	var given sync.Map
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				in := c*each + i
				ctx, cancel := context.WithCancel(t.Context())
				if in%10 == 0 {
					go cancel() // gives up at some point, or not
				}
				got, err := b.Do(ctx, in)
				cancel()
				switch {
				case err == nil && got != 2*in:
					t.Errorf("%d: %d", in, got)
				case errors.Is(err, context.Canceled) && in%10 == 0:
					given.Store(in, true)
				case err != nil:
					t.Errorf("%d: %v", in, err)
				}
			}
		})
	}
	all.Wait()
	stop()
	for in := range callers * each {
		_, gave := given.Load(in)
		if n := flushed[in]; n > 1 || (n == 0 && !gave) {
			t.Errorf("%d was flushed %d times", in, n)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	w := batch.New(batch.Config{}, nil, double)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.Do(ctx, 1); err != nil {
				b.Error(err)
			}
		}
	})
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
