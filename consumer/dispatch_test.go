package consumer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// keyWatch checks that the orders of a key run one at a time, in the order of their offsets.
type keyWatch struct {
	t    *testing.T
	took atomic.Int64 // a time.Duration

	mu      sync.Mutex
	running map[string]bool
	last    map[string]int64
	calls   int
	most    int // at once
}

func (k *keyWatch) answer(o *order.Order) order.Answer {
	key := string(o.Message.Key)
	k.mu.Lock()
	if o.Message.Key != nil {
		if k.running[key] {
			k.t.Errorf("two orders of key %q run at once", key)
		}
		if last, ok := k.last[key]; ok && last >= o.Message.Offset {
			k.t.Errorf("offset %d of key %q runs after %d", o.Message.Offset, key, last)
		}
		k.running[key], k.last[key] = true, o.Message.Offset
	}
	k.calls++
	k.most = max(k.most, len(k.running))
	k.mu.Unlock()
	time.Sleep(time.Duration(k.took.Load()))
	k.mu.Lock()
	delete(k.running, key)
	k.mu.Unlock()
	return order.Answer{Outcome: order.OutcomeSucceeded}
}

func (k *keyWatch) seen() (calls, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls, k.most
}

// startKeyed starts a lane whose records carry keys. Their business number is in a header.
func startKeyed(t *testing.T, records int64, permits int, key func(int64) []byte, edit func(*Config)) (*bench, *keyWatch) {
	t.Helper()
	k := &keyWatch{t: t, running: map[string]bool{}, last: map[string]int64{}}
	k.took.Store(int64(10 * time.Millisecond))
	a := newAttempter(permits, 0, order.Answer{})
	a.answer = k.answer
	b := startLane(t, records, a, func(c *Config) {
		c.Number = Number{From: FromHeader, Header: "no"}
		c.Ordering = ByKey
		if edit != nil {
			edit(c)
		}
	}, func(g *fakeGroup) { g.key = key })
	return b, k
}

func TestLaneRunsTheOrdersOfAKeyOneAtATimeAndDifferentKeysTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 3000
		b, k := startKeyed(t, records, 20, func(o int64) []byte {
			if o%7 == 0 {
				return nil
			}
			return fmt.Append(nil, "k", o%100)
		}, nil)
		time.Sleep(3 * time.Second) // 20 permits at 10 ms: 2,000 a second
		calls, most := k.seen()
		if calls != records || most < 15 {
			t.Errorf("%d calls, at most %d keys at once", calls, most)
		}
		if c, _ := b.group.at(); c != records {
			t.Errorf("committed %d of %d", c, records)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A key with far more records than may be admitted: the others, read after it, go on at their own pace.
func TestLaneLetsAHotKeyHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hot, cold = 1500, 1500
		b, k := startKeyed(t, hot+cold, 10, func(o int64) []byte {
			if o < hot {
				return []byte("hot")
			}
			return fmt.Append(nil, "k", o)
		}, nil)
		time.Sleep(3 * time.Second) // 1,000 a second
		calls, _ := k.seen()
		k.mu.Lock()
		hotAt := k.last["hot"]
		k.mu.Unlock()
		if others := calls - int(hotAt) - 1; others != cold {
			t.Errorf("%d of %d orders of other keys ran in 3 s, beside %d of the hot one", others, cold, hotAt+1)
		}
		if s := b.lane.Level(); s.Queued > 100 {
			t.Errorf("%d records count as waiting for a permit: those behind the hot key do not", s.Queued)
		}
		time.Sleep(15 * time.Second)
		if calls, _ := k.seen(); calls != hot+cold {
			t.Errorf("%d calls, want %d", calls, hot+cold)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneBoundsWhatWaitsForAHotKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := startKeyed(t, 100_000, 10, func(int64) []byte { return []byte("hot") }, nil)
		k.took.Store(int64(time.Second))
		time.Sleep(5 * time.Second)
		// One partition may have half of prefetch.records aside; what was fetched before that was known comes on top.
		g := b.lane.now.Load()
		g.mu.Lock()
		aside := g.parts[0].aside
		g.mu.Unlock()
		if aside < 2500 || aside > 2500+5000+10 {
			t.Errorf("%d records wait for the key", aside)
		}
		_, before := b.group.at()
		time.Sleep(5 * time.Second)
		if _, after := b.group.at(); after != before {
			t.Errorf("%d fetches of a partition that is full of one key", after-before)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestLaneRunsAPartitionInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := startKeyed(t, 50, 10, func(int64) []byte { return nil }, func(c *Config) { c.Ordering = ByPartition })
		time.Sleep(245 * time.Millisecond) // between two calls: at 250 ms it is open which of the two comes first
		if calls, _ := k.seen(); calls > 25 {
			t.Errorf("%d calls in a time for 25, one after the other", calls)
		}
		time.Sleep(time.Second)
		if calls, _ := k.seen(); calls != 50 {
			t.Errorf("%d calls, want 50", calls)
		}
		if err := b.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
