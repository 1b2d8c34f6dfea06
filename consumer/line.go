package consumer

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Ordering says which records of a partition wait for each other.
type Ordering int

// The orderings.
const (
	Unordered   Ordering = iota // none
	ByKey                       // those with the same key; a record whose key is null waits for nobody
	ByPartition                 // all of them
)

func (o Ordering) String() string {
	switch o {
	case Unordered:
		return "none"
	case ByKey:
		return "key"
	case ByPartition:
		return "partition"
	}
	return fmt.Sprintf("Ordering(%d)", int(o))
}

// chainID names the records that run one at a time: those of a key in a partition. The same key in another partition is
// another chain, because no order holds between partitions.
type chainID struct {
	partition int32
	key       string
}

// chainOf is the chain of a record, and whether it has one.
func (o Ordering) chainOf(partition int32, key []byte) (chainID, bool) {
	switch o {
	case Unordered:
	case ByKey:
		return chainID{partition, string(key)}, key != nil
	case ByPartition:
		return chainID{partition: partition}, true
	}
	return chainID{}, false
}

// Entry is what waits in a Line. The line owns it from Push to Done, or to Clear.
type Entry[T any] struct {
	Value     T
	Partition int32
	Offset    int64
	Key       []byte
	Tenant    string
	Size      int64 // bytes

	notBefore time.Time
	chained   bool
	chain     chainID
}

// Line is the line of orders that wait for a permit. It gives out the next one that may run: tenants take turns, within
// a tenant its partitions do, and within both the oldest offset goes first, so that what holds back the committed
// offset is never passed over for long. With an ordering, an order waits until the one before it in its chain is Done.
//
// It is pure and not safe for concurrent use. Push, Peek, Take and Done cost O(log n) of what waits. Its size is that of
// what is in it: whoever fills it bounds it.
type Line[T any] struct {
	ordering Ordering
	tenants  int // that have a turn of their own; the others share one

	classes map[string]*class[T]
	rest    *class[T] // of the tenants beyond the bound
	turns   fifo[*class[T]]
	resting heap[*class[T]] // at their rate, the first to be back on top
	flows   map[flowID[T]]*flow[T]
	later   heap[*Entry[T]] // not to run before a time
	chains  map[chainID]*chain[T]
	waiting int       // in chains, behind another
	ready   int       // in flows
	aside   int       // of those, in classes that rest
	until   time.Time // nothing runs before

	// setAside, where set, is told what rests with its class, and with less than zero of what no longer does.
	setAside func(partition int32, records int, bytes int64)

	freeFlows   []*flow[T] // for use again: most lines are short and come and go with each order
	freeClasses []*class[T]
}

// class is the tenants that share a turn; most often one.
type class[T any] struct {
	name  string
	turns fifo[*flow[T]] // with something ready
	until time.Time      // resting until then
	rests bool
}

type flowID[T any] struct {
	class     *class[T]
	partition int32
}

// flow is what a class has ready of one partition.
type flow[T any] struct {
	id    flowID[T]
	ready heap[*Entry[T]] // the oldest offset on top
	bytes int64           // of those
}

// chain is the orders of a key: one that is ready, delayed or under way, and those behind it.
type chain[T any] struct{ behind fifo[*Entry[T]] }

// mostFree bounds what is kept for use again.
const mostFree = 64

// NewLine makes an empty line in which so many tenants have a turn of their own; see SetTenants.
func NewLine[T any](o Ordering, tenants int) *Line[T] {
	l := &Line[T]{
		ordering: o, classes: map[string]*class[T]{}, rest: &class[T]{},
		flows: map[flowID[T]]*flow[T]{}, chains: map[chainID]*chain[T]{},
	}
	l.resting.before = func(a, b *class[T]) bool { return a.until.Before(b.until) }
	l.later.before = func(a, b *Entry[T]) bool { return a.notBefore.Before(b.notBefore) }
	l.SetTenants(tenants)
	return l
}

// SetTenants changes how many tenants have a turn of their own; 0 or less is 100. What waits stays where it is: it counts for
// those that come.
func (l *Line[T]) SetTenants(n int) {
	if n <= 0 {
		n = 100
	}
	l.tenants = n
}

// Len is how many wait, for whatever reason.
func (l *Line[T]) Len() int { return l.ready + l.later.len() + l.waiting }

// Ready is how many wait for a permit or for a rate, and for nothing else.
func (l *Line[T]) Ready() int { return l.ready }

// Ahead is how many of those are not set aside with a tenant that is at its rate.
func (l *Line[T]) Ahead() int { return l.ready - l.aside }

// SetAside has f told of what rests with its tenant, partition by partition, and with less than zero of what no longer does: a
// tenant at its rate must not take the room of the others. Without it what rests is like all that waits. Before the first Push.
func (l *Line[T]) SetAside(f func(partition int32, records int, bytes int64)) { l.setAside = f }

// Push puts an entry at the end of its chain, and reports whether it waits for nothing but a permit. Entries of a chain
// must come in the order of their offsets.
func (l *Line[T]) Push(e *Entry[T]) (ready bool) {
	if e.chain, e.chained = l.ordering.chainOf(e.Partition, e.Key); e.chained {
		if c := l.chains[e.chain]; c != nil {
			c.behind.push(e)
			l.waiting++
			return false
		}
		l.chains[e.chain] = &chain[T]{}
	}
	l.enter(e)
	return true
}

// Occupy makes a chain wait, as if one of its orders were under way, until Vacate. It must not be in use yet.
func (l *Line[T]) Occupy(partition int32, key []byte) {
	if id, ok := l.ordering.chainOf(partition, key); ok && l.chains[id] == nil {
		l.chains[id] = &chain[T]{}
	}
}

// Vacate ends what Occupy began. It returns the entry that became ready, or nil.
func (l *Line[T]) Vacate(partition int32, key []byte) *Entry[T] {
	id, ok := l.ordering.chainOf(partition, key)
	if !ok {
		return nil
	}
	return l.advance(id)
}

// Peek returns the entry whose turn it is, and leaves it in the line; nil where none may run, and then the time at which
// that changes by itself, zero where it does not.
func (l *Line[T]) Peek(now time.Time) (e *Entry[T], until time.Time) {
	for l.later.len() > 0 && !l.later.top().notBefore.After(now) {
		l.enter(l.later.pop())
	}
	for l.resting.len() > 0 && !l.resting.top().until.After(now) {
		c := l.resting.pop()
		l.shift(c, false)
		l.turns.push(c)
	}
	if l.turns.len() > 0 {
		if now.Before(l.until) {
			return nil, l.until
		}
		return (*(*l.turns.peek()).turns.peek()).ready.top(), time.Time{}
	}
	if l.later.len() > 0 {
		until = l.later.top().notBefore
	}
	if l.resting.len() > 0 && (until.IsZero() || l.resting.top().until.Before(until)) {
		until = l.resting.top().until
	}
	return nil, until
}

// Take removes the entry that Peek returned just before. It is under way until Done or Return.
func (l *Line[T]) Take() *Entry[T] {
	c := l.turns.pop()
	f := c.turns.pop()
	e := f.ready.pop()
	f.bytes -= e.Size
	l.ready--
	if f.ready.len() > 0 {
		c.turns.push(f)
	} else {
		delete(l.flows, f.id)
		if len(l.freeFlows) < mostFree {
			f.id = flowID[T]{}
			l.freeFlows = append(l.freeFlows, f)
		}
	}
	if c.turns.len() > 0 {
		l.turns.push(c)
	} else {
		l.leave(c)
	}
	return e
}

// Rest passes over the class of the entry that Peek returned just before until a time: its tenant is at its rate.
func (l *Line[T]) Rest(until time.Time) {
	c := l.turns.pop()
	c.until = until
	l.resting.push(c)
	l.shift(c, true)
}

// Pause passes over everybody until a time: the limit that all share is reached. Nobody's turn is lost by it, and what waits is
// not set aside: there is nobody it could stand in the way of.
func (l *Line[T]) Pause(until time.Time) { l.until = until }

// shift sets what a class has ready aside, or takes it back: O(partitions).
func (l *Line[T]) shift(c *class[T], rests bool) {
	c.rests = rests
	for _, f := range c.turns.all() {
		n, bytes := f.ready.len(), f.bytes
		if !rests {
			n, bytes = -n, -bytes
		}
		l.toldAside(f.id.partition, n, bytes)
	}
}

func (l *Line[T]) toldAside(partition int32, records int, bytes int64) {
	if l.setAside != nil {
		l.aside += records
		l.setAside(partition, records, bytes)
	}
}

// Return puts an entry that was taken and not run back to its place, not to run before a time; zero is at once.
func (l *Line[T]) Return(e *Entry[T], notBefore time.Time) {
	if notBefore.IsZero() {
		l.enter(e)
		return
	}
	e.notBefore = notBefore
	l.later.push(e)
}

// Done says that an entry that was taken is over. It returns the next of its chain, which became ready by that, or nil.
func (l *Line[T]) Done(e *Entry[T]) *Entry[T] {
	if !e.chained {
		return nil
	}
	e.chained = false
	return l.advance(e.chain)
}

// Clear empties the line for good and returns everything that waited, by partition and offset. What is under way may
// still be Done; nothing may be pushed any more, because the line has forgotten who waits for it.
func (l *Line[T]) Clear() []*Entry[T] {
	all := make([]*Entry[T], 0, l.Len())
	for l.resting.len() > 0 {
		l.shift(l.resting.pop(), false)
	}
	for _, f := range l.flows {
		all = append(all, f.ready.items...)
	}
	all = append(all, l.later.items...)
	for _, c := range l.chains {
		for c.behind.len() > 0 {
			all = append(all, c.behind.pop())
		}
	}
	*l = *NewLine[T](l.ordering, l.tenants)
	slices.SortFunc(all, func(a, b *Entry[T]) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

func (l *Line[T]) advance(id chainID) *Entry[T] {
	c := l.chains[id]
	if c == nil {
		return nil
	}
	if c.behind.len() == 0 {
		delete(l.chains, id)
		return nil
	}
	e := c.behind.pop()
	l.waiting--
	l.enter(e)
	return e
}

// enter makes an entry ready.
func (l *Line[T]) enter(e *Entry[T]) {
	c := l.classOf(e.Tenant)
	e.notBefore = time.Time{}
	id := flowID[T]{c, e.Partition}
	f := l.flows[id]
	if f == nil {
		f = l.newFlow(id)
		l.flows[id] = f
		if c.turns.len() == 0 { // what rests has something ready
			l.turns.push(c)
		}
		c.turns.push(f)
	}
	f.ready.push(e)
	f.bytes += e.Size
	l.ready++
	if c.rests {
		l.toldAside(e.Partition, 1, e.Size)
	}
}

// classOf is the class in which a tenant waits: its own, as long as there is room for one.
func (l *Line[T]) classOf(tenant string) *class[T] {
	if c := l.classes[tenant]; c != nil {
		return c
	}
	if len(l.classes) >= l.tenants {
		return l.rest
	}
	c := &class[T]{}
	if n := len(l.freeClasses); n > 0 {
		c, l.freeClasses = l.freeClasses[n-1], l.freeClasses[:n-1]
	}
	c.name = tenant
	l.classes[tenant] = c
	return c
}

// leave forgets a class that has nothing ready.
func (l *Line[T]) leave(c *class[T]) {
	if c == l.rest {
		return
	}
	delete(l.classes, c.name)
	if len(l.freeClasses) < mostFree {
		l.freeClasses = append(l.freeClasses, c)
	}
}

func (l *Line[T]) newFlow(id flowID[T]) *flow[T] {
	f := &flow[T]{}
	if n := len(l.freeFlows); n > 0 {
		f, l.freeFlows = l.freeFlows[n-1], l.freeFlows[:n-1]
	}
	f.id = id
	f.ready.before = func(a, b *Entry[T]) bool { return a.Offset < b.Offset }
	return f
}

// heap is a binary heap that calls no interface and keeps its memory. before is its order.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
}

func (h *heap[T]) len() int { return len(h.items) }

func (h *heap[T]) top() T { return h.items[0] }

func (h *heap[T]) push(v T) {
	h.items = append(h.items, v)
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(h.items[i], h.items[up]) {
			return
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

func (h *heap[T]) pop() T {
	var zero T
	top, last := h.items[0], len(h.items)-1
	h.items[0] = h.items[last]
	h.items[last] = zero
	h.items = h.items[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return top
		}
		if right := down + 1; right < last && h.before(h.items[right], h.items[down]) {
			down = right
		}
		if !h.before(h.items[down], h.items[i]) {
			return top
		}
		h.items[i], h.items[down] = h.items[down], h.items[i]
		i = down
	}
}
