package sim

import (
	"fmt"
	"sort"
	"time"

	"spillway/consumer"
	"spillway/order"
)

// kind says what a record of the log was made to be.
type kind int

const (
	plain      kind = iota
	repeated        // the number and the value of an earlier record
	clashing        // the number of an earlier record with another value
	unreadable      // no order can be made of it
)

// entry is a record of the log.
type entry struct {
	message order.Message
	number  string // empty for an unreadable one
	kind    kind
	lost    bool // the log lost it before anybody wrote it down
}

// topic is the log: partitions of records at growing offsets, with holes.
type topic struct {
	*world
	partitions [][]*entry
	starts     []int64 // offsets below are gone
	ends       []int64 // high waters
	all        []*entry
	values     map[string][]byte // of the first record of each number
	numbers    []string
	finished   bool
}

func newTopic(s *world) *topic {
	return &topic{
		world: s, partitions: make([][]*entry, s.partitions), starts: make([]int64, s.partitions), ends: make([]int64, s.partitions),
		values: map[string][]byte{},
	}
}

// produce writes a record and plans the next one.
func (t *topic) produce() {
	if t.calmed || len(t.all) >= t.records {
		return
	}
	t.add(t.rng.IntN(len(t.partitions)))
	gap := t.between(0, 2*t.chaos/time.Duration(t.records))
	if t.chance(0.3) {
		gap = 0 // bursts
	}
	t.after(gap, t.produce)
}

// finish gives each partition a last record.
func (t *topic) finish() {
	for p := range t.partitions {
		t.write(p, t.fresh())
	}
	t.finished = true
}

func (t *topic) add(partition int) {
	e := t.fresh()
	switch roll := t.rng.Float64(); {
	case roll < 0.05:
		e = t.garble(e)
	case roll < 0.15 && len(t.numbers) > 0:
		n := t.numbers[t.rng.IntN(len(t.numbers))]
		e.number, e.kind = n, repeated
		e.message.Headers, e.message.Value = numbered(n), t.values[n]
	case roll < 0.20 && len(t.numbers) > 0:
		n := t.numbers[t.rng.IntN(len(t.numbers))]
		e.number, e.kind = n, clashing
		e.message.Headers = numbered(n)
	}
	t.write(partition, e)
}

func (t *topic) fresh() *entry {
	n := fmt.Sprintf("T-%d", 1001+len(t.all))
	e := &entry{number: n, message: order.Message{
		Topic: "orders.in", Value: fmt.Appendf(nil, `{"order_no":%q,"amount":%d}`, n, t.rng.IntN(9000)),
		Headers: numbered(n), Time: t.now,
	}}
	if k := len(t.all) % 5; k > 0 { // some records have no key
		e.message.Key = fmt.Appendf(nil, "k%d", k)
	}
	return e
}

// numberHeader carries the business number.
const numberHeader = "no"

func numbered(n string) []order.Header {
	return []order.Header{{Key: numberHeader, Value: []byte(n)}, {Key: "trace", Value: []byte(n)}}
}

func numberRule() consumer.Number {
	return consumer.Number{From: consumer.FromHeader, Header: numberHeader}
}

// garble makes a record unreadable, in one of the ways a record can be.
func (t *topic) garble(e *entry) *entry {
	e.kind, e.number = unreadable, ""
	switch t.rng.IntN(4) {
	case 0:
		e.message.Value = nil
	case 1:
		e.message.Value = []byte{}
	case 2:
		e.message.Headers = nil
	case 3:
		e.message.Headers = numbered("T-\x00")
	}
	return e
}

func (t *topic) write(partition int, e *entry) {
	if t.chance(0.1) {
		t.ends[partition] += int64(1 + t.rng.IntN(5)) // a hole of compaction
		t.count("hole")
	}
	e.message.Partition, e.message.Offset = int32(partition), t.ends[partition] //nolint:gosec // a handful
	t.ends[partition]++
	if e.kind == plain {
		t.values[e.number] = e.message.Value
		t.numbers = append(t.numbers, e.number)
	}
	t.partitions[partition] = append(t.partitions[partition], e)
	t.all = append(t.all, e)
	t.checker.dirty = true
	switch e.kind {
	case plain:
		t.count("record")
	case repeated:
		t.count("duplicate")
	case clashing:
		t.count("clash")
	case unreadable:
		t.count("undecodable")
	}
	t.note("log: %s at %d/%d", e.number, partition, e.message.Offset)
}

// truncate makes the log lose the beginning of a partition, as retention does to who is too slow.
func (t *topic) truncate(partition int) {
	es := t.partitions[partition]
	if len(es) == 0 {
		return
	}
	start := es[t.rng.IntN(len(es))].message.Offset
	if start <= t.starts[partition] {
		return
	}
	t.starts[partition] = start
	t.note("log: partition %d begins at %d", partition, start)
	for _, e := range es {
		if e.message.Offset < start && t.checker.classify(e) == nowhere {
			e.lost = true
			t.count("lost")
		}
	}
}

// read is what a fetch of a grant brings. The first partition of a request gets a record whatever its size.
func (t *topic) read(g consumer.Grant, first bool) consumer.Batch {
	es, end := t.partitions[g.Partition], t.ends[g.Partition]
	b := consumer.Batch{Partition: g.Partition, Grant: g.Bytes, Next: g.Offset, HighWater: end}
	room := int(g.Bytes)
	i := sort.Search(len(es), func(i int) bool { return es[i].message.Offset >= g.Offset })
	if i > 0 && t.chance(0.1) && es[i-1].message.Offset >= t.starts[g.Partition] {
		i-- // a batch begins where the broker made it begin
		t.count("fetched again")
	}
	for ; i < len(es) && (es[i].message.Size() <= room || first && len(b.Messages) == 0); i++ {
		b.Messages = append(b.Messages, es[i].message)
		room -= es[i].message.Size()
		b.Next = max(b.Next, es[i].message.Offset+1)
	}
	if i == len(es) {
		b.Next = max(g.Offset, end)
	}
	return b
}
