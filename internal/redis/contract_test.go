package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	driver "github.com/redis/go-redis/v9"

	"spillway/internal/redis"
	"spillway/internal/testkit"
	"spillway/order"
	"spillway/replay"
)

// rig is one server that the contract is run against, with a queue of its own.
type rig struct {
	t      *testing.T
	client *redis.Client
	queue  *redis.Queue
	prefix string
	shell  *driver.Client // past the queue
}

// route has what must be escaped in a pattern.
const route = "pay[1]*"

// key is the full name of one of the queue's keys.
func (r rig) key(name string) string { return "{" + r.prefix + ":" + route + "}:" + name }

// short and long are leases: one that is over soon after it began, one that outlives every test.
const (
	short = 30 * time.Millisecond
	long  = time.Minute
)

// anySize is room for every entry of these tests.
const anySize = 1 << 30

func open(t *testing.T, url string, capacity int) rig {
	t.Helper()
	prefix := testkit.Prefix(t)
	client, err := redis.Open(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return rig{t: t, client: client, queue: client.Queue(route, capacity), prefix: prefix, shell: shell(t, url)}
}

// onEach runs a test of the contract on an in-memory server and on a real one.
func onEach(t *testing.T, capacity int, test func(r rig)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(open(t, "redis://"+miniredis.RunT(t).Addr(), capacity))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(open(t, testkit.Redis(t), capacity))
	})
}

func entry(id int64) replay.Entry {
	return replay.Entry{ID: id, Data: fmt.Appendf(nil, `{"id":%d}`, id)}
}

func entries(from, to int64) []replay.Entry {
	var es []replay.Entry
	for id := from; id <= to; id++ {
		es = append(es, entry(id))
	}
	return es
}

func (r rig) push(t *testing.T, es ...replay.Entry) {
	t.Helper()
	if err := r.queue.Push(t.Context(), es); err != nil {
		t.Fatal(err)
	}
}

func (r rig) claim(t *testing.T, n int, lease time.Duration) replay.Claim {
	t.Helper()
	c, err := r.queue.Claim(t.Context(), "w1", n, anySize, lease)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claimed polls until a claim brings something.
func (r rig) claimed(t *testing.T, n int) replay.Claim {
	t.Helper()
	var c replay.Claim
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		c = r.claim(t, n, long)
		return len(c.Items) > 0, "nothing to claim"
	})
	return c
}

func (r rig) finish(t *testing.T, c replay.Claim, f replay.Finished) bool {
	t.Helper()
	held, err := r.queue.Finish(t.Context(), c, f)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func (r rig) wantDepths(t *testing.T, ready, delayed, inFlight int) {
	t.Helper()
	d, err := r.queue.Depths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Ready != ready || d.Delayed != delayed || d.InFlight != inFlight {
		t.Errorf("depths: ready %d, delayed %d, in flight %d; want %d, %d, %d", d.Ready, d.Delayed, d.InFlight, ready, delayed, inFlight)
	}
}

func (r rig) wantHas(t *testing.T, want string, ids ...int64) {
	t.Helper()
	has, err := r.queue.Has(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(has); got != want {
		t.Errorf("has %v: %v, want %v", ids, got, want)
	}
}

func wantItems(t *testing.T, c replay.Claim, want ...string) {
	t.Helper()
	if got := string(bytes.Join(c.Items, []byte(" "))); got != strings.Join(want, " ") || len(c.Items) != len(want) {
		t.Errorf("claimed %q, want %q", got, want)
	}
}

func TestQueueHandsOutInOrderWhatWasPushed(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		binary := replay.Entry{ID: 3, Data: []byte("\x00\xff\r\n$5\r\n")}
		r.push(t, entry(1), entry(2), binary)
		r.wantDepths(t, 3, 0, 0)
		first := r.claim(t, 2, long)
		wantItems(t, first, `{"id":1}`, `{"id":2}`)
		r.wantDepths(t, 1, 0, 2)
		second := r.claim(t, 2, long)
		wantItems(t, second, string(binary.Data))
		wantItems(t, r.claim(t, 2, long))
		r.wantHas(t, "[true true]", 1, 3)
		r.wantHas(t, "[true false]", 2, 4)
		if !r.finish(t, first, replay.Finished{Done: []int64{1, 2}}) || !r.finish(t, second, replay.Finished{Done: []int64{3}}) {
			t.Error("a claim in its lease was taken for lost")
		}
		r.wantDepths(t, 0, 0, 0)
		r.wantHas(t, "[false false false]", 1, 2, 3)
	})
}

func TestQueueTakesAnOrderOnceWhileItIsQueued(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		late := entry(3)
		late.NotBefore = time.Now().Add(time.Hour)
		r.push(t, entry(1), entry(1), entry(2), late)
		c := r.claim(t, 1, long) // 1 is claimed, 2 ready, 3 delayed
		r.push(t, entry(1), entry(2), entry(3))
		r.wantDepths(t, 1, 1, 1)
		r.finish(t, c, replay.Finished{Done: []int64{1}})
		r.push(t, entry(1))
		r.wantDepths(t, 2, 1, 0)
	})
}

func TestFullQueueTakesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, 5, func(r rig) {
		t := r.t
		late := entry(3)
		late.NotBefore = time.Now().Add(time.Hour)
		r.push(t, entry(1), entry(2), late)
		c := r.claim(t, 1, long)
		if err := r.queue.Push(t.Context(), entries(4, 6)); !errors.Is(err, order.ErrQueueFull) {
			t.Fatalf("three more than two places: %v, want %v", err, order.ErrQueueFull)
		}
		r.wantHas(t, "[false false false]", 4, 5, 6)
		r.push(t, entry(1), entry(2), entry(3), entry(4), entry(5)) // three of them are there already
		if err := r.queue.Push(t.Context(), entries(6, 6)); !errors.Is(err, order.ErrQueueFull) {
			t.Fatalf("one more than the bound: %v, want %v", err, order.ErrQueueFull)
		}
		r.finish(t, c, replay.Finished{Done: []int64{1}})
		r.push(t, entry(6))
	})
}

func TestDelayedEntriesComeWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		soon, late := entry(1), entry(2)
		soon.NotBefore = time.Now().Add(60 * time.Millisecond)
		late.NotBefore = time.Now().Add(time.Hour)
		began := time.Now()
		r.push(t, late, soon)
		c := r.claimed(t, 10)
		if took := time.Since(began); took < 55*time.Millisecond {
			t.Errorf("it came after %v", took)
		}
		wantItems(t, c, `{"id":1}`)
		again := entry(1)
		again.NotBefore = time.Now().Add(time.Hour)
		r.finish(t, c, replay.Finished{Again: []replay.Entry{again}})
		r.wantDepths(t, 0, 2, 0)
		r.wantHas(t, "[true true]", 1, 2)
	})
}

func TestExpiredClaimReturnsToTheFront(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entries(1, 4)...)
		dead := r.claim(t, 2, short)
		wantItems(t, dead, `{"id":1}`, `{"id":2}`)
		var c replay.Claim
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			c = r.claim(t, 3, long)
			if len(c.Items) == 3 {
				return true, ""
			}
			r.finish(t, c, replay.Finished{Again: entries(3, 4)})
			return false, fmt.Sprintf("claimed %q", c.Items)
		})
		got := string(bytes.Join(c.Items[:2], []byte(" ")))
		if got != `{"id":1} {"id":2}` {
			t.Errorf("first came %s", got)
		}
		// The dead worker comes back to life: its claim is void.
		if held, err := r.queue.Renew(t.Context(), dead, long); err != nil || held {
			t.Errorf("renew of a lost claim: %v, %v", held, err)
		}
		if r.finish(t, dead, replay.Finished{Done: []int64{1}, Again: []replay.Entry{entry(2), entry(9)}}) {
			t.Error("finish of a lost claim says it was held")
		}
		r.wantHas(t, "[true true true]", 1, 2, 9)
		r.wantDepths(t, 1, 1, 3)
	})
}

func TestRenewedClaimStays(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entries(1, 2)...)
		c := r.claim(t, 1, time.Second)
		if held, err := r.queue.Renew(t.Context(), c, long); err != nil || !held {
			t.Fatalf("renew: %v, %v", held, err)
		}
		expired := r.claim(t, 1, short) // stands for the time that passes
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			back := r.claim(t, 10, long)
			return len(back.Items) == 1 && bytes.Equal(back.Items[0], expired.Items[0]), "the short lease does not end"
		})
		r.wantDepths(t, 0, 0, 2)
		if !r.finish(t, c, replay.Finished{Done: []int64{1}}) {
			t.Error("the renewed claim was lost")
		}
	})
}

func TestKeptEntriesGoBackAsTheyAre(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entries(1, 4)...)
		c := r.claim(t, 3, long)
		r.finish(t, c, replay.Finished{Done: []int64{2}, Keep: []int{0, 2}})
		wantItems(t, r.claim(t, 10, long), `{"id":4}`, `{"id":1}`, `{"id":3}`)
		r.wantHas(t, "[true false true]", 1, 2, 3)
	})
}

func TestClaimKeepsToItsRoom(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		for id := int64(1); id <= 40; id++ {
			r.push(t, replay.Entry{ID: id, Data: bytes.Repeat([]byte{'x'}, 1000)})
		}
		r.push(t, replay.Entry{ID: 41, Data: bytes.Repeat([]byte{'y'}, 1<<20)})
		for _, want := range []int{33, 7, 1, 0} { // 40 small ones, then the large one alone
			c, err := r.queue.Claim(t.Context(), "w1", 100, 33_999, long)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Items) != want {
				t.Errorf("claimed %d entries, want %d", len(c.Items), want)
			}
		}
	})
}

func TestQueueHandsOutEachEntryOnceToManyWorkers(t *testing.T) {
	t.Parallel()
	onEach(t, 10_000, func(r rig) {
		t := r.t
		const n = 600
		for id := int64(1); id <= n; id += 100 {
			r.push(t, entries(id, id+99)...)
		}
		got := make(chan string, 2*n)
		failed := make(chan error, 4)
		for w := range 4 {
			go func() {
				failed <- drain(t.Context(), r.queue, fmt.Sprint("w", w), got)
			}()
		}
		for range 4 {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
		close(got)
		seen := make(map[string]bool)
		for item := range got {
			if seen[item] {
				t.Errorf("%s was handed out twice", item)
			}
			seen[item] = true
		}
		if len(seen) != n {
			t.Errorf("%d entries came out, want %d", len(seen), n)
		}
		r.wantDepths(t, 0, 0, 0)
	})
}

// drain claims and finishes until the queue is empty.
func drain(ctx context.Context, q replay.Claims, worker string, got chan<- string) error {
	for {
		c, err := q.Claim(ctx, worker, 7, anySize, long)
		if err != nil || len(c.Items) == 0 {
			return err
		}
		for _, item := range c.Items {
			got <- string(item)
		}
		if held, err := q.Finish(ctx, c, replay.Finished{}); err != nil || !held {
			return fmt.Errorf("finish: %v, %w", held, err)
		}
	}
}

func TestQueueKnowsTheAgeOfItsOldestOrder(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		r.push(t, entry(1))
		testkit.Eventually(t, 5*time.Second, func() (bool, string) {
			d, err := r.queue.Depths(t.Context())
			return err == nil && d.Oldest >= 50*time.Millisecond, fmt.Sprint(d, err)
		})
		c := r.claim(t, 1, long)
		r.finish(t, c, replay.Finished{Again: []replay.Entry{entry(1)}}) // its age goes on
		if d, err := r.queue.Depths(t.Context()); err != nil || d.Oldest < 50*time.Millisecond {
			t.Errorf("oldest %v after another try (%v)", d.Oldest, err)
		}
	})
}

func TestTwoRoutesDoNotMeet(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		other := r.client.Queue("pay1", 1000)
		r.push(t, entry(1))
		c, err := other.Claim(t.Context(), "w1", 10, anySize, long)
		if err != nil {
			t.Fatal(err)
		}
		wantItems(t, c)
	})
}

func TestQueueRefusesMoreThanItsBounds(t *testing.T) {
	t.Parallel()
	onEach(t, 1000, func(r rig) {
		t := r.t
		if err := r.queue.Push(t.Context(), entries(1, replay.MaxPush+1)); err == nil {
			t.Error("a push beyond its bound was taken")
		}
		for _, n := range []int{0, replay.MaxClaim + 1} {
			if _, err := r.queue.Claim(t.Context(), "w1", n, anySize, long); err == nil {
				t.Errorf("a claim of %d was taken", n)
			}
		}
		if err := r.queue.Push(t.Context(), nil); err != nil {
			t.Errorf("a push of nothing: %v", err)
		}
	})
}
