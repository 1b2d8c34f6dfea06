package sim

import (
	"fmt"
	"slices"
	"time"

	"spillway/order"
)

// queued is an entry of the replay queue: the order's id and when it may be tried.
type queued struct {
	id    int64
	ready time.Time
}

// held is a claim of the replay queue.
type held struct {
	key   string
	items []int64
	until time.Time
}

// queue is the replay queue: ready entries, delayed ones, claims with leases, and the set of queued ids. It forgets all
// or part of itself now and then, and is away for a while.
type queue struct {
	*world
	ready     []int64
	delayed   []queued // by time
	claims    []held
	ids       map[int64]bool
	names     int
	awayUntil time.Time
}

func newQueue(s *world) *queue { return &queue{world: s, ids: map[int64]bool{}} }

func (q *queue) away() bool { return q.now.Before(q.awayUntil) }

func (q *queue) total() int {
	n := len(q.ready) + len(q.delayed)
	for _, c := range q.claims {
		n += len(c.items)
	}
	return n
}

// wipe forgets everything.
func (q *queue) wipe() {
	if q.total() > 0 {
		q.count("queue wiped")
		q.note("queue: wiped %d", q.total())
	}
	q.ready, q.delayed, q.claims, q.ids = nil, nil, nil, map[int64]bool{}
}

// wipeEntries loses entries and keeps their ids, which then stand in the way of a push until the queue is mended.
func (q *queue) wipeEntries() {
	if q.total() > 0 {
		q.count("queue entries lost")
		q.note("queue: lost %d entries", q.total())
	}
	q.ready, q.delayed, q.claims = nil, nil, nil
}

// push adds what is not queued: all of it, or none.
func (q *queue) push(entries []queued) error {
	if q.away() {
		return errAway
	}
	fresh := make([]queued, 0, len(entries))
	for _, e := range entries {
		if !q.ids[e.id] {
			fresh = append(fresh, e)
		}
	}
	if len(fresh) > 0 && max(q.total(), len(q.ids))+len(fresh) > q.queueBound {
		q.count("queue full")
		return order.ErrQueueFull
	}
	for _, e := range fresh {
		q.add(e)
	}
	return nil
}

func (q *queue) add(e queued) {
	q.ids[e.id] = true
	if !e.ready.After(q.now) {
		q.ready = append(q.ready, e.id)
		return
	}
	at, _ := slices.BinarySearchFunc(q.delayed, e, func(a, b queued) int { return a.ready.Compare(b.ready) })
	q.delayed = slices.Insert(q.delayed, at, e)
}

func (q *queue) has(ids []int64) ([]bool, error) {
	if q.away() {
		return nil, errAway
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = q.ids[id]
	}
	return out, nil
}

// claim brings back claims whose lease is over and makes due entries ready, then takes up to n.
func (q *queue) claim(n int, lease time.Duration) (held, error) {
	if q.away() {
		return held{}, errAway
	}
	kept := q.claims[:0]
	for _, c := range q.claims {
		if q.now.Before(c.until) {
			kept = append(kept, c)
			continue
		}
		q.count("claim brought back")
		q.ready = append(slices.Clone(c.items), q.ready...)
	}
	q.claims = kept
	for len(q.delayed) > 0 && !q.delayed[0].ready.After(q.now) {
		q.ready = append(q.ready, q.delayed[0].id)
		q.delayed = q.delayed[1:]
	}
	n = min(n, len(q.ready))
	if n == 0 {
		return held{}, nil
	}
	q.names++
	c := held{key: fmt.Sprintf("c%d", q.names), items: slices.Clone(q.ready[:n]), until: q.now.Add(lease)}
	q.ready = q.ready[n:]
	q.claims = append(q.claims, c)
	return c, nil
}

func (q *queue) extend(key string, lease time.Duration) (bool, error) {
	if q.away() {
		return false, errAway
	}
	for i := range q.claims {
		if q.claims[i].key == key {
			q.claims[i].until = q.now.Add(lease)
			return true, nil
		}
	}
	return false, nil
}

// finish ends a claim: done leaves the queue, again is queued anew, keep goes back as it is.
func (q *queue) finish(key string, done []int64, again []queued, keep []int64) error {
	if q.away() {
		return errAway
	}
	at := slices.IndexFunc(q.claims, func(c held) bool { return c.key == key })
	if at < 0 {
		q.count("claim lost")
		for _, e := range again {
			if !q.ids[e.id] {
				q.add(e)
			}
		}
		return nil
	}
	q.claims = slices.Delete(q.claims, at, at+1)
	for _, id := range done {
		delete(q.ids, id)
	}
	q.ready = append(q.ready, keep...)
	for _, e := range again {
		q.add(e)
	}
	return nil
}

// mend forgets the ids if there are more of them than entries.
func (q *queue) mend() {
	if q.away() || len(q.ids) <= q.total() {
		return
	}
	q.count("queue mended")
	clear(q.ids)
}
