package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"

	"spillway/consumer"
	"spillway/order"
)

// testFeed grants every partition that is not paused the same bytes and keeps what comes.
type testFeed struct {
	bytes int32

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever Plan may answer differently
	next     map[int32]int64
	busy     map[int32]bool
	paused   map[int32]bool
	messages map[int32][]order.Message
	ends     map[int32]int64
	gaps     []consumer.Gap
	biggest  int // of the messages of one batch, in bytes
	given    int // grants given
	back     int // grants that came back
}

func newTestFeed(bytes int32, positions []consumer.Position) *testFeed {
	f := &testFeed{
		bytes: bytes, changed: make(chan struct{}),
		next: map[int32]int64{}, busy: map[int32]bool{}, paused: map[int32]bool{},
		messages: map[int32][]order.Message{}, ends: map[int32]int64{},
	}
	for _, p := range positions {
		f.next[p.Partition] = p.Offset
	}
	return f
}

func (f *testFeed) Plan(candidates []int32, grants []consumer.Grant) []consumer.Grant {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range candidates {
		if !f.busy[p] && !f.paused[p] {
			f.busy[p] = true
			f.given++
			grants = append(grants, consumer.Grant{Partition: p, Offset: f.next[p], Bytes: f.bytes})
		}
	}
	return grants
}

func (f *testFeed) Wait(ctx context.Context) {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-changed:
	}
}

// wake lets Wait return. The mutex is held.
func (f *testFeed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *testFeed) Deliver(b consumer.Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := 0
	for i := range b.Messages {
		size += b.Messages[i].Size()
	}
	f.biggest = max(f.biggest, size)
	f.messages[b.Partition] = append(f.messages[b.Partition], b.Messages...)
	f.next[b.Partition], f.ends[b.Partition] = b.Next, b.HighWater
	f.busy[b.Partition] = false
	f.back++
	f.wake()
}

func (f *testFeed) Release(g consumer.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy[g.Partition] = false
	f.back++
	f.wake()
}

func (f *testFeed) Lost(g consumer.Gap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gaps = append(f.gaps, g)
	f.next[g.Partition] = g.To
}

// pause leaves partitions out of the next plans, or lets them in again.
func (f *testFeed) pause(paused bool, partitions ...int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range partitions {
		f.paused[p] = paused
	}
	f.wake()
}

// positions returns where each partition stands.
func (f *testFeed) positions() map[int32]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.next)
}

// values returns the values read so far, in order per partition, partitions ascending.
func (f *testFeed) values() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, p := range slices.Sorted(maps.Keys(f.messages)) {
		for i := range f.messages[p] {
			all = append(all, string(f.messages[p][i].Value))
		}
	}
	return all
}

// count returns how many messages were read.
func (f *testFeed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.messages {
		n += len(m)
	}
	return n
}

// lost returns the gaps reported so far.
func (f *testFeed) lost() []consumer.Gap {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gaps)
}
