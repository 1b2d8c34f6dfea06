package consumer

import (
	"fmt"
	"testing"

	"spillway/order"
)

// Many hot keys of one partition leave room faster than records may be admitted. What was parked behind them went before
// all that other partitions had, for as long as there was any.
func TestPartitionsTakeTurnsWithWhatWasParked(t *testing.T) {
	t.Parallel()
	const keys, each = 50, 20
	limits := Limits{Bytes: 64 << 20, PartitionBytes: 1 << 20, Records: 5000, Permits: 4}
	l := New(Config{Ordering: ByKey, Limits: limits}, nil, nil, newAttempter(4, 0, order.Answer{}), nil)
	g := newGeneration(l, &twoParts{}, limits, Learned{})
	deliver := func(partition int32, n int, key func(i int) string) {
		b := Batch{Partition: partition, Next: int64(n), HighWater: int64(n)}
		for i := range n {
			b.Messages = append(b.Messages, order.Message{Partition: partition, Offset: int64(i), Key: []byte(key(i)), Value: []byte("v")})
		}
		g.Deliver(b)
	}
	deliver(0, keys*each, func(i int) string { return fmt.Sprint("hot", i%keys) })
	var admitted []record
	for len(admitted) < keys*mostOfChain {
		admitted = append(admitted, g.cutBatch()...)
		g.admitting = 0
	}
	for _, r := range admitted { // they end at once
		g.release(0, r.message.Key)
	}
	deliver(1, 10, func(i int) string { return fmt.Sprint("cold", i) })
	if want := keys*mostOfChain + 10; g.pending < want {
		t.Fatalf("%d may be admitted, want at least %d", g.pending, want)
	}

	last := map[string]int64{}
	for range 4 {
		batch := g.cutBatch()
		g.admitting = 0
		cold := 0
		for _, r := range batch {
			if at, ok := last[string(r.message.Key)]; ok && at > r.message.Offset {
				t.Errorf("offset %d of %s after %d", r.message.Offset, r.message.Key, at)
			}
			last[string(r.message.Key)] = r.message.Offset
			cold += int(r.message.Partition)
		}
		if len(batch) != 4 || cold != 2 {
			t.Errorf("a batch of %d with %d of the other partition, want 4 with 2", len(batch), cold)
		}
	}
	if g.waitingRecords() != g.sum.taken-len(admitted)-16 {
		t.Errorf("%d wait for admission, want all that came but %d", g.waitingRecords(), len(admitted)+16)
	}
	g.dropPending()
	if n := g.waitingRecords(); n != 0 || g.turns.len() != 0 {
		t.Errorf("%d wait after all were dropped", n)
	}
}
