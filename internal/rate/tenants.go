package rate

import "time"

// tenants is the buckets of those tenants that asked last, at most max of them, all with the same limit.
type tenants struct {
	limit float64 // per second; 0: no limit, and nothing is kept
	max   int

	index       map[string]int32
	entries     []entry
	first, last int32  // of the entries, the one that asked last first; none is -1
	other       bucket // of all that the table has no room for
	overflow    uint64 // asked of other
}

// entry is a tenant's bucket in the list.
type entry struct {
	name       string
	bucket     bucket
	prev, next int32
}

// lookBack is how many of those that have been quiet longest are looked at for a place.
const lookBack = 4

// configure sets limit and bound. Tenants that are known keep their tokens, unless the bound shrinks.
func (t *tenants) configure(now time.Time, limit float64, most int) {
	if t.index == nil || most < len(t.entries) || limit <= 0 {
		t.index, t.entries, t.first, t.last = make(map[string]int32), nil, -1, -1
	}
	t.limit, t.max = limit, most
	for i := range t.entries {
		t.entries[i].bucket.set(now, true, limit, burst(limit), 0)
	}
	t.other.set(now, limit > 0, limit, burst(limit), burst(limit))
}

// of is the tenant's bucket, filled up to now. It is nil where tenants have no limit.
func (t *tenants) of(now time.Time, name string) *bucket {
	if t.limit <= 0 {
		return nil
	}
	i, known := t.index[name]
	if !known {
		if i = t.place(now); i < 0 {
			t.overflow++
			t.other.fill(now)
			return &t.other
		}
		e := &t.entries[i]
		e.name, e.bucket = name, bucket{}
		e.bucket.set(now, true, t.limit, burst(t.limit), burst(t.limit))
		t.index[name] = i
	}
	t.toFront(i)
	b := &t.entries[i].bucket
	b.fill(now)
	return b
}

// known is the bucket of a tenant that need not be there any more; nil where the limit is off.
func (t *tenants) known(name string) *bucket {
	if t.limit <= 0 {
		return nil
	}
	if i, ok := t.index[name]; ok {
		return &t.entries[i].bucket
	}
	return &t.other
}

// place finds room for one more: a new entry, or that of a tenant who has been quiet for so long that his bucket is full
// again, and who therefore loses nothing. It is -1 where there is neither.
func (t *tenants) place(now time.Time) int32 {
	if len(t.entries) < t.max {
		t.entries = append(t.entries, entry{prev: -1, next: -1})
		return int32(len(t.entries) - 1) //nolint:gosec // at most max
	}
	for i, n := t.last, 0; i >= 0 && n < lookBack; i, n = t.entries[i].prev, n+1 {
		e := &t.entries[i]
		e.bucket.fill(now)
		if e.bucket.tokens >= e.bucket.most {
			delete(t.index, e.name)
			return i
		}
	}
	return -1
}

// toFront makes an entry the one that asked last.
func (t *tenants) toFront(i int32) {
	if t.first == i {
		return
	}
	e := &t.entries[i]
	if e.prev >= 0 {
		t.entries[e.prev].next = e.next
	}
	if e.next >= 0 {
		t.entries[e.next].prev = e.prev
	}
	if t.last == i {
		t.last = e.prev
	}
	e.prev, e.next = -1, t.first
	if t.first >= 0 {
		t.entries[t.first].prev = i
	}
	t.first = i
	if t.last < 0 {
		t.last = i
	}
}
