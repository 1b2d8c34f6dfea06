package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"spillway/order"
	"spillway/replay"
)

// memQueue is a replay.Queue in memory, on the time of its bubble.
type memQueue struct {
	mu       sync.Mutex
	capacity int
	ready    [][]byte
	delayed  []delayedEntry
	claims   map[string]*memClaim
	ids      map[int64]time.Time
	made     int
	largest  int // number of bytes pushed at once
	pushes   []int
	onClaim  func(n int)
}

type delayedEntry struct {
	at   time.Time
	data []byte
}

type memClaim struct {
	items  [][]byte
	expiry time.Time
}

func newMemQueue(capacity int) *memQueue {
	return &memQueue{capacity: capacity, claims: make(map[string]*memClaim), ids: make(map[int64]time.Time)}
}

// wipe loses everything.
func (q *memQueue) wipe() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready, q.delayed = nil, nil
	clear(q.claims)
	clear(q.ids)
}

// watch calls see with the size of each claim from now on.
func (q *memQueue) watch(see func(n int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onClaim = see
}

// raw pushes bytes past the engine, as somebody with a Redis shell would.
func (q *memQueue) raw(data ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range data {
		q.ready = append(q.ready, []byte(d))
	}
}

func (q *memQueue) depths() replay.Depths {
	d, _ := q.Depths(context.Background())
	return d
}

// queued counts the ids.
func (q *memQueue) queued() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ids)
}

func (q *memQueue) Push(_ context.Context, entries []replay.Entry) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var fresh []replay.Entry
	size := 0
	for _, e := range entries {
		size += len(e.Data)
		if _, ok := q.ids[e.ID]; !ok {
			fresh = append(fresh, e)
		}
	}
	if len(q.ids)+len(fresh) > q.capacity {
		return fmt.Errorf("%w: bound %d", order.ErrQueueFull, q.capacity)
	}
	q.largest = max(q.largest, size)
	q.pushes = append(q.pushes, len(entries))
	for _, e := range fresh {
		q.add(e)
	}
	return nil
}

func (q *memQueue) add(e replay.Entry) {
	if _, ok := q.ids[e.ID]; !ok {
		q.ids[e.ID] = time.Now()
	}
	data := bytes.Clone(e.Data)
	if e.NotBefore.After(time.Now()) {
		q.delayed = append(q.delayed, delayedEntry{e.NotBefore, data})
		return
	}
	q.ready = append(q.ready, data)
}

func (q *memQueue) Has(_ context.Context, ids []int64) ([]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	has := make([]bool, len(ids))
	for i, id := range ids {
		_, has[i] = q.ids[id]
	}
	return has, nil
}

func (q *memQueue) Depths(context.Context) (replay.Depths, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := replay.Depths{Ready: len(q.ready), Delayed: len(q.delayed)}
	for _, c := range q.claims {
		d.InFlight += len(c.items)
	}
	for _, at := range q.ids {
		d.Oldest = max(d.Oldest, time.Since(at))
	}
	return d, nil
}

func (q *memQueue) Probe(context.Context) error { return nil }

func (q *memQueue) Claim(_ context.Context, worker string, n, room int, lease time.Duration) (replay.Claim, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onClaim != nil {
		q.onClaim(n)
	}
	now := time.Now()
	for key, c := range q.claims {
		if !now.Before(c.expiry) {
			q.ready = append(slices.Clone(c.items), q.ready...)
			delete(q.claims, key)
		}
	}
	q.delayed = slices.DeleteFunc(q.delayed, func(e delayedEntry) bool {
		due := !now.Before(e.at)
		if due {
			q.ready = append(q.ready, e.data)
		}
		return due
	})
	taken, size := 0, 0
	for taken < min(n, len(q.ready)) {
		size += len(q.ready[taken])
		if taken > 0 && size > room {
			break
		}
		taken++
	}
	if taken == 0 {
		return replay.Claim{}, nil
	}
	q.made++
	c := replay.Claim{Key: fmt.Sprint(worker, ":", q.made), Items: slices.Clone(q.ready[:taken])}
	q.ready = slices.Clone(q.ready[taken:])
	q.claims[c.Key] = &memClaim{items: c.Items, expiry: now.Add(lease)}
	return c, nil
}

func (q *memQueue) Renew(_ context.Context, c replay.Claim, lease time.Duration) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	held, ok := q.claims[c.Key]
	if ok {
		held.expiry = time.Now().Add(lease)
	}
	return ok, nil
}

func (q *memQueue) Finish(_ context.Context, c replay.Claim, f replay.Finished) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, held := q.claims[c.Key]
	if held {
		delete(q.claims, c.Key)
		for _, id := range f.Done {
			delete(q.ids, id)
		}
		for _, i := range f.Keep {
			q.ready = append(q.ready, c.Items[i])
		}
	}
	for _, e := range f.Again {
		if _, queued := q.ids[e.ID]; held || !queued {
			q.add(e)
		}
	}
	return held, nil
}

func (q *memQueue) Mend(context.Context) (int, error) { return 0, nil }
