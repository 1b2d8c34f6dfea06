package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/order"
)

// Where the fields of a record batch (format 2) stand.
const (
	posLength     = 8
	posMagic      = 16
	posCRC        = 17
	posAttributes = 21
	posLastDelta  = 23
	posFirstTime  = 27
	posMaxTime    = 35
	posProducer   = 43
	posCount      = 57
	headSize      = 61
	prefixSize    = 12 // first offset and length, which the length does not count
)

// Bits of a batch's attributes.
const (
	attrCodec         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

// format is the only batch format that is read. Brokers since Kafka 0.11 write it, and 4.x writes nothing else.
const format = 2

// errCorrupt says that bytes of the log can't be read. Trying again may help: the broker may have sent them wrong.
var errCorrupt = errors.New("corrupt batch")

// head is the fixed part of a batch.
type head struct {
	first, last int64 // offsets, inclusive; a compacted batch need not hold records at either
	attributes  uint16
	firstTime   int64
	maxTime     int64
	producer    int64
	count       int32
	size        int // of the whole batch
}

// decoder turns the record batches of a fetch response into messages. It is for one goroutine.
type decoder struct {
	topic     string
	committed bool // leave out what aborted transactions wrote
	unpack    unpacker
	names     map[string]string // header names seen, so that each is held once
	recent    []string          // the names of the last record's headers, by place: most often the next one's are the same
	kept      []record          // of the batch under way, those that will become messages
	headers   []headerPlace     // theirs, and those of records left out
	castagno  *crc32.Table
}

func newDecoder(topic string, committed bool, limit int) *decoder {
	return &decoder{
		topic: topic, committed: committed, unpack: unpacker{limit: limit},
		names: map[string]string{}, castagno: crc32.MakeTable(crc32.Castagnoli),
	}
}

// portion is what decode is asked for.
type portion struct {
	partition int32
	offset    int64 // records before it are left out
	bytes     int   // stop at a batch's end once the messages take so much memory, inside a batch at twice of it
	raw       []byte
	aborted   []kmsg.FetchResponseTopicPartitionAbortedTransaction
}

// decoded is what became of a portion.
type decoded struct {
	messages []order.Message
	next     int64 // the offset to go on from
	size     int   // memory of the messages
	wire     int   // bytes of the batches that were used up
	partial  bool  // the last batch was cut off
}

// decode reads batches until there are no more, the last one is cut off, or there are enough messages. With an error it
// also returns what came before the batch that is at fault, where next stands.
func (d *decoder) decode(p portion) (decoded, error) {
	out := decoded{next: p.offset}
	if n := p.expect(); n > 0 {
		out.messages = make([]order.Message, 0, n)
	}
	aborts := newAborts(p.aborted)
	last := int64(-1)
	for rest := p.raw; len(rest) > 0 && out.size < max(p.bytes, 1); {
		h, err := readHead(rest)
		if errors.Is(err, errCut) {
			out.partial = true
			return out, nil
		}
		if err == nil && h.first <= last {
			err = fmt.Errorf("%w: its offsets begin at %d, after a batch that ends at %d", errCorrupt, h.first, last)
		}
		if err != nil {
			return out, at(p.partition, out.next, err)
		}
		last = h.last
		batch := rest[:h.size]
		rest = rest[h.size:]
		aborts.upTo(h.last)
		if h.last < out.next {
			out.wire += h.size
			continue // all of it was read before
		}
		if sum := crc32.Checksum(batch[posAttributes:], d.castagno); sum != binary.BigEndian.Uint32(batch[posCRC:]) {
			return out, at(p.partition, out.next, fmt.Errorf("%w at offset %d: the checksum does not match", errCorrupt, h.first))
		}
		done, err := d.batch(p, h, batch, aborts, &out)
		if err != nil {
			return out, at(p.partition, out.next, err)
		}
		if !done {
			break
		}
		out.wire += h.size
	}
	return out, nil
}

// at names the place of an error.
func at(partition int32, offset int64, err error) error {
	return fmt.Errorf("partition %d, reading on from offset %d: %w", partition, offset, err)
}

// errCut says that the bytes end inside a batch, which a broker is free to do.
var errCut = errors.New("the batch is cut off")

// int32At reads a signed number of the wire, which is two's complement as ours are.
func int32At(b []byte, at int) int32 {
	return int32(binary.BigEndian.Uint32(b[at:])) //nolint:gosec // the same bits
}

// int64At is int32At for eight bytes.
func int64At(b []byte, at int) int64 {
	return int64(binary.BigEndian.Uint64(b[at:])) //nolint:gosec // the same bits
}

// readHead reads and checks the fixed part of the next batch.
func readHead(raw []byte) (head, error) {
	if len(raw) < posMagic+1 {
		return head{}, errCut
	}
	first := int64At(raw, 0)
	length := int64(int32At(raw, posLength))
	if magic := raw[posMagic]; magic != format {
		return head{}, fmt.Errorf("%w at offset %d: message format %d is not read, only %d", errCorrupt, first, magic, format)
	}
	if length < headSize-prefixSize {
		return head{}, fmt.Errorf("%w at offset %d: its length is %d", errCorrupt, first, length)
	}
	if length+prefixSize > int64(len(raw)) {
		return head{}, errCut
	}
	delta := int32At(raw, posLastDelta)
	h := head{
		first:      first,
		last:       first + int64(delta),
		attributes: binary.BigEndian.Uint16(raw[posAttributes:]),
		firstTime:  int64At(raw, posFirstTime),
		maxTime:    int64At(raw, posMaxTime),
		producer:   int64At(raw, posProducer),
		count:      int32At(raw, posCount),
		size:       int(length + prefixSize),
	}
	switch {
	case first < 0 || delta < 0 || first > math.MaxInt64-math.MaxInt32-1:
		return head{}, fmt.Errorf("%w: its offsets are %d and %d more", errCorrupt, first, delta)
	case h.count < 0:
		return head{}, fmt.Errorf("%w at offset %d: it has %d records", errCorrupt, first, h.count)
	}
	return h, nil
}

// batch decodes one batch and adds its messages to out, and reports whether it got to the batch's end. If it did not,
// out.next stands behind the last record taken.
func (d *decoder) batch(p portion, h head, batch []byte, aborts *aborts, out *decoded) (bool, error) {
	if h.attributes&attrControl != 0 {
		if err := d.control(h, batch, aborts); err != nil {
			return false, err
		}
		out.next = h.last + 1
		return true, nil
	}
	if d.committed && h.attributes&attrTransactional != 0 && aborts.has(h.producer) {
		out.next = h.last + 1
		return true, nil
	}
	raw, err := d.unpack.unpack(int(h.attributes&attrCodec), batch[headSize:])
	if err != nil {
		return false, fmt.Errorf("%w at offset %d: %w", errCorrupt, h.first, err)
	}
	done, err := d.keep(p, h, raw, out)
	if err != nil {
		return false, fmt.Errorf("%w at offset %d: %w", errCorrupt, h.first, err)
	}
	out.messages = d.copyOut(out.messages, p.partition, h, raw)
	return done, nil
}

// keep notes down the records of a batch that will become messages, and moves out.next behind them. It reports whether it
// got to the batch's end.
func (d *decoder) keep(p portion, h head, raw []byte, out *decoded) (bool, error) {
	d.kept, d.headers = d.kept[:0], d.headers[:0]
	size, enough := out.size, 2*max(p.bytes, 1)
	at, previous := 0, int64(-1)
	for range h.count {
		if size >= enough {
			out.next, out.size = previous+1, size
			return false, nil
		}
		var r record
		var err error
		if d.headers, at, err = parse(raw, at, &r, d.headers); err != nil {
			return false, err
		}
		offset := h.first + int64(r.offsetDelta)
		if offset > h.last || offset <= previous {
			return false, fmt.Errorf("a record at %d after one at %d", offset, previous)
		}
		previous = offset
		if offset >= out.next {
			d.kept = append(d.kept, r)
			size += d.memory(&r)
		}
	}
	if at < len(raw) {
		return false, fmt.Errorf("%d bytes follow its records", len(raw)-at)
	}
	out.next, out.size = h.last+1, size
	return true, nil
}

// Memory of a message and of a header beside their bytes, as [order.Message.Size] counts it.
const (
	messageCost = 160
	headerCost  = 40
)

// memory is what a record will cost as a message.
func (d *decoder) memory(r *record) int {
	n := messageCost + int(max(r.key.size, 0)) + int(max(r.value.size, 0))
	for _, h := range d.headers[r.header : r.header+r.headers] {
		n += headerCost + int(h.key.size) + int(max(h.value.size, 0))
	}
	return n
}

// expect is how many messages a portion is likely to become, to make room for them at once: what the batches' heads say,
// and no more than the grant can pay for.
func (p *portion) expect() int {
	n, most := 0, 2*max(p.bytes, 1)/messageCost+1
	for rest := p.raw; n < most; {
		h, err := readHead(rest)
		if err != nil {
			break
		}
		if h.last >= p.offset {
			n += int(h.count)
		}
		rest = rest[h.size:]
	}
	return min(n, most)
}

// slabSize bounds how much of its neighbours a message that is held for long keeps alive.
const slabSize = 64 << 10

// copyOut turns the kept records into messages that own their bytes: records that stand beside each other are copied as
// they stand, and share the copy.
func (d *decoder) copyOut(messages []order.Message, partition int32, h head, raw []byte) []order.Message {
	messages = slices.Grow(messages, len(d.kept))
	for from := 0; from < len(d.kept); {
		base := d.kept[from].from
		to, count := from, 0
		for to < len(d.kept) && (to == from || d.kept[to].to-base <= slabSize) {
			count += int(d.kept[to].headers)
			to++
		}
		slab := append([]byte(nil), raw[base:d.kept[to-1].to]...)
		var headers []order.Header
		if count > 0 {
			headers = make([]order.Header, 0, count)
		}
		for i := from; i < to; i++ {
			r := &d.kept[i]
			n := len(messages)
			messages = messages[:n+1]
			m := &messages[n]
			m.Topic, m.Partition, m.Offset = d.topic, partition, h.first+int64(r.offsetDelta)
			m.Key, m.Value, m.Time = r.key.of(slab, base), r.value.of(slab, base), stamp(h, r.timeDelta)
			if r.headers > 0 {
				first := len(headers)
				for j, place := range d.headers[r.header : r.header+r.headers] {
					headers = append(headers, order.Header{Key: d.name(j, place.key.of(slab, base)), Value: place.value.of(slab, base)})
				}
				m.Headers = headers[first:len(headers):len(headers)]
			}
		}
		from = to
	}
	return messages
}

// name returns the name of a record's nth header, the same string each time it is one of the usual ones.
func (d *decoder) name(n int, key []byte) string {
	if n < len(d.recent) && d.recent[n] == string(key) {
		return d.recent[n]
	}
	const most, longest, places = 256, 128, 32
	s, ok := d.names[string(key)]
	if !ok {
		s = string(key)
		if len(d.names) < most && len(s) <= longest {
			d.names[s] = s
		}
	}
	if n == len(d.recent) && n < places {
		d.recent = append(d.recent, s)
	} else if n < len(d.recent) {
		d.recent[n] = s
	}
	return s
}

// stamp is a record's time: zero where it has none.
func stamp(h head, delta int64) time.Time {
	ms := h.firstTime + delta
	if h.attributes&attrAppendTime != 0 {
		ms = h.maxTime
	}
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// control reads a control batch: the one that ends an aborted transaction ends the leaving out.
func (d *decoder) control(h head, batch []byte, aborts *aborts) error {
	raw, err := d.unpack.unpack(int(h.attributes&attrCodec), batch[headSize:])
	if err != nil {
		return fmt.Errorf("%w at offset %d: %w", errCorrupt, h.first, err)
	}
	at := 0
	for range h.count {
		var r record
		if d.headers, at, err = parse(raw, at, &r, d.headers[:0]); err != nil {
			return fmt.Errorf("%w at offset %d: %w", errCorrupt, h.first, err)
		}
		// The key is a version and a type, of two bytes each; type 0 aborts.
		if key := r.key.of(raw, 0); len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == 0 {
			aborts.end(h.producer)
		}
	}
	return nil
}

// aborts knows whose transactions were aborted, as one walks along the log.
type aborts struct {
	coming []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	open   map[int64]struct{}                                   // producers whose aborted transaction has begun
}

func newAborts(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) *aborts {
	a := &aborts{coming: slices.Clone(list)}
	slices.SortFunc(a.coming, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(max(x.FirstOffset-y.FirstOffset, -1), 1))
	})
	return a
}

// upTo opens the transactions that begin at or before an offset.
func (a *aborts) upTo(offset int64) {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= offset {
		if a.open == nil {
			a.open = map[int64]struct{}{}
		}
		a.open[a.coming[0].ProducerID] = struct{}{}
		a.coming = a.coming[1:]
	}
}

func (a *aborts) has(producer int64) bool {
	_, ok := a.open[producer]
	return ok
}

func (a *aborts) end(producer int64) { delete(a.open, producer) }
