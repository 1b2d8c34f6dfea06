package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"

	"spillway/order"
)

// made is a batch to be written by hand.
type made struct {
	first      int64
	lastDelta  int32 // -1: that of the last record
	attributes int16
	producer   int64
	firstTime  int64
	maxTime    int64
	count      int32 // 0: as many as there are
	records    []madeRecord
	codec      int
}

type madeRecord struct {
	delta   int64
	time    int64
	key     []byte
	value   []byte
	headers []order.Header
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}

func (r madeRecord) bytes() []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, r.time)
	body = binary.AppendVarint(body, r.delta)
	body = appendNullable(body, r.key)
	body = appendNullable(body, r.value)
	body = binary.AppendVarint(body, int64(len(r.headers)))
	for _, h := range r.headers {
		body = appendNullable(body, []byte(h.Key))
		body = appendNullable(body, h.Value)
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func (m made) bytes() []byte {
	var records []byte
	for _, r := range m.records {
		records = append(records, r.bytes()...)
	}
	return m.around(pack(m.codec, records))
}

// around puts a batch's head before its records.
func (m made) around(records []byte) []byte {
	lastDelta, count := m.lastDelta, m.count
	if lastDelta < 0 {
		lastDelta = int32(m.records[len(m.records)-1].delta)
	}
	if count == 0 {
		count = int32(len(m.records))
	}
	b := make([]byte, headSize, headSize+len(records))
	b = append(b, records...)
	binary.BigEndian.PutUint64(b, uint64(m.first))
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-prefixSize))
	b[posMagic] = format
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(m.attributes)|uint16(m.codec))
	binary.BigEndian.PutUint32(b[posLastDelta:], uint32(lastDelta))
	binary.BigEndian.PutUint64(b[posFirstTime:], uint64(m.firstTime))
	binary.BigEndian.PutUint64(b[posMaxTime:], uint64(m.maxTime))
	binary.BigEndian.PutUint64(b[posProducer:], uint64(m.producer))
	binary.BigEndian.PutUint32(b[posCount:], uint32(count))
	return seal(b)
}

// seal sets a batch's checksum.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

const xerial = 100 // codecSnappy, framed

func pack(codec int, raw []byte) []byte {
	var out bytes.Buffer
	switch codec {
	case codecNone:
		return raw
	case codecGzip:
		w := gzip.NewWriter(&out)
		_, _ = w.Write(raw)
		_ = w.Close()
	case codecSnappy:
		return s2.EncodeSnappy(nil, raw)
	case codecLz4:
		w := lz4.NewWriter(&out)
		_, _ = w.Write(raw)
		_ = w.Close()
	case codecZstd:
		w, _ := zstd.NewWriter(&out)
		_, _ = w.Write(raw)
		_ = w.Close()
	}
	return out.Bytes()
}

// framed packs as the Java client does with snappy: blocks of a few bytes each, so that there are several.
func framed(raw []byte) []byte {
	out := []byte(xerialHead + "\x00\x00\x00\x01\x00\x00\x00\x01")
	for block := range slices.Chunk(raw, 100) {
		packed := s2.EncodeSnappy(nil, block)
		out = binary.BigEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	return out
}

// simple makes a batch whose records have these offsets, valued by their offset.
func simple(first int64, lastDelta int32, deltas ...int64) made {
	m := made{first: first, lastDelta: lastDelta, producer: -1}
	for _, d := range deltas {
		m.records = append(m.records, madeRecord{delta: d, value: fmt.Appendf(nil, "%d", first+d)})
	}
	return m
}

func decodeAll(t *testing.T, committed bool, p portion) decoded {
	t.Helper()
	out, err := newDecoder("t", committed, 64<<20).decode(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func offsetsOf(messages []order.Message) []int64 {
	var all []int64
	for i := range messages {
		all = append(all, messages[i].Offset)
	}
	return all
}

func TestDecodeStepsOverWhatCompactionRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked   int64
		batches []made
		want    []int64
		next    int64
	}{
		"a hole between batches":             {10, []made{simple(10, -1, 0, 1), simple(500, -1, 0)}, []int64{10, 11, 500}, 501},
		"a hole inside a batch":              {10, []made{simple(10, 9, 0, 7)}, []int64{10, 17}, 20},
		"a batch whose tail was removed":     {5, []made{simple(0, 9, 0, 1, 2, 3, 4)}, nil, 10},
		"a batch without any record":         {5, []made{simple(0, 9)}, nil, 10},
		"asked inside a batch":               {12, []made{simple(10, -1, 0, 1, 2, 3)}, []int64{12, 13}, 14},
		"asked inside a hole":                {100, []made{simple(500, -1, 0, 1)}, []int64{500, 501}, 502},
		"a batch that was read before":       {20, []made{simple(10, -1, 0, 1), simple(20, -1, 0)}, []int64{20}, 21},
		"nothing but what was read before":   {20, []made{simple(10, -1, 0, 1)}, nil, 20},
		"an empty tail behind a full batch":  {0, []made{simple(0, -1, 0), simple(1, 98)}, []int64{0}, 100},
		"no batch at all":                    {7, nil, nil, 7},
		"a batch that begins after its head": {0, []made{simple(0, 9, 4, 5)}, []int64{4, 5}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var raw []byte
			for _, m := range c.batches {
				raw = append(raw, m.bytes()...)
			}
			out := decodeAll(t, true, portion{offset: c.asked, bytes: 1 << 20, raw: raw})
			if got := offsetsOf(out.messages); !slices.Equal(got, c.want) || out.next != c.next {
				t.Errorf("offsets %v, next %d; want %v, next %d", got, out.next, c.want, c.next)
			}
		})
	}
}

func TestDecodeKeepsEveryByte(t *testing.T) {
	t.Parallel()
	headers := []order.Header{{Key: "k", Value: []byte("a")}, {Key: "k", Value: nil}, {Key: "", Value: []byte{}}}
	m := made{
		first: 1000, lastDelta: -1, producer: -1, firstTime: 5_000,
		records: []madeRecord{
			{delta: 0, time: 7, key: []byte("key"), value: []byte("value"), headers: headers},
			{delta: 1, time: -6_000},
			{delta: 2, key: []byte{}, value: []byte{}},
			{delta: 3, key: []byte("big"), value: bytes.Repeat([]byte("0123456789"), 20_000)},
			{delta: 4, value: bytes.Repeat([]byte{0, 255}, 50_000)},
		},
	}
	var raw []byte
	for _, r := range m.records {
		raw = append(raw, r.bytes()...)
	}
	for _, codec := range []int{codecNone, codecGzip, codecSnappy, codecLz4, codecZstd, xerial} {
		m.codec = codec
		batch := m
		packed := pack(codec, raw)
		if codec == xerial {
			batch.codec, packed = codecSnappy, framed(raw)
		}
		response := batch.around(packed)
		out := decodeAll(t, true, portion{partition: 3, offset: 1000, bytes: 1 << 20, raw: response})
		clear(response) // the messages must not point into it
		if len(out.messages) != len(m.records) || out.next != 1005 {
			t.Fatalf("codec %d: %d messages, next %d", codec, len(out.messages), out.next)
		}
		for i, got := range out.messages {
			want := m.records[i]
			if got.Topic != "t" || got.Partition != 3 || got.Offset != 1000+want.delta {
				t.Errorf("codec %d: message %d is at %s/%d/%d", codec, i, got.Topic, got.Partition, got.Offset)
			}
			if !bytes.Equal(got.Key, want.key) || (got.Key == nil) != (want.key == nil) ||
				!bytes.Equal(got.Value, want.value) || (got.Value == nil) != (want.value == nil) {
				t.Errorf("codec %d: message %d: key %q, value of %d bytes", codec, i, got.Key, len(got.Value))
			}
			if len(got.Headers) != len(want.headers) {
				t.Fatalf("codec %d: message %d has headers %v", codec, i, got.Headers)
			}
			for j, h := range got.Headers {
				if h.Key != want.headers[j].Key || !bytes.Equal(h.Value, want.headers[j].Value) ||
					(h.Value == nil) != (want.headers[j].Value == nil) {
					t.Errorf("codec %d: message %d: header %d is %q=%q", codec, i, j, h.Key, h.Value)
				}
			}
		}
		if at := out.messages[0].Time; !at.Equal(time.UnixMilli(5_007)) {
			t.Errorf("time is %v", at)
		}
		if at := out.messages[1].Time; !at.IsZero() {
			t.Errorf("a negative timestamp became %v", at)
		}
	}
}

func TestDecodeTakesTheBrokersTimeWhereTheTopicSaysSo(t *testing.T) {
	t.Parallel()
	m := simple(0, -1, 0)
	m.attributes, m.firstTime, m.maxTime = attrAppendTime, 1_000, 9_000
	out := decodeAll(t, true, portion{bytes: 1 << 20, raw: m.bytes()})
	if at := out.messages[0].Time; !at.Equal(time.UnixMilli(9_000)) {
		t.Errorf("time is %v", at)
	}
}

// marker makes the control batch that ends a transaction.
func marker(first, producer int64, commit bool) made {
	kind := byte(0)
	if commit {
		kind = 1
	}
	return made{
		first: first, lastDelta: -1, producer: producer, attributes: attrControl | attrTransactional,
		records: []madeRecord{{key: []byte{0, 0, 0, kind}, value: []byte{0, 0, 0, 0, 0, 0}}},
	}
}

func transactional(producer int64, m made) made {
	m.producer, m.attributes = producer, m.attributes|attrTransactional
	return m
}

func TestDecodeLeavesOutAbortedTransactions(t *testing.T) {
	t.Parallel()
	log := []made{
		transactional(1, simple(0, -1, 0)),    // aborted
		transactional(2, simple(1, -1, 0, 1)), // committed, between
		simple(3, -1, 0),                      // no transaction
		marker(4, 1, false),
		transactional(1, simple(5, -1, 0)), // the same producer's next, committed
		marker(6, 1, true),
		marker(7, 2, true),
		transactional(1, simple(8, -1, 0)), // aborted again
		marker(9, 1, false),
		simple(10, -1, 0),
	}
	var raw []byte
	for _, m := range log {
		raw = append(raw, m.bytes()...)
	}
	// The broker need not list them in order.
	aborted := []kmsg.FetchResponseTopicPartitionAbortedTransaction{
		{ProducerID: 1, FirstOffset: 8}, {ProducerID: 1, FirstOffset: 0},
	}
	out := decodeAll(t, true, portion{bytes: 1 << 20, raw: raw, aborted: aborted})
	if got, want := offsetsOf(out.messages), []int64{1, 2, 3, 5, 10}; !slices.Equal(got, want) || out.next != 11 {
		t.Errorf("read_committed: %v, next %d; want %v, next 11", got, out.next, want)
	}
	out = decodeAll(t, false, portion{bytes: 1 << 20, raw: raw})
	if got, want := offsetsOf(out.messages), []int64{0, 1, 2, 3, 5, 8, 10}; !slices.Equal(got, want) {
		t.Errorf("read_uncommitted: %v, want %v", got, want)
	}
	// A control record as the log's last thing still moves the position.
	out = decodeAll(t, true, portion{offset: 9, bytes: 1 << 20, raw: marker(9, 1, false).bytes()})
	if out.next != 10 || len(out.messages) != 0 {
		t.Errorf("after a marker: next %d, %d messages", out.next, len(out.messages))
	}
}

func TestDecodeRefusesWhatItCanNotTrust(t *testing.T) {
	t.Parallel()
	good := simple(0, -1, 0, 1)
	change := func(at int, to ...byte) []byte {
		b := good.bytes()
		copy(b[at:], to)
		return seal(b)
	}
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"a flipped bit":             {func() []byte { b := good.bytes(); b[len(b)-1] ^= 1; return b }(), "checksum"},
		"an old format":             {change(posMagic, 1), "message format 1"},
		"an unknown codec":          {change(posAttributes, 0, 7), "codec 7"},
		"a negative count":          {change(posCount, 0xff, 0xff, 0xff, 0xff), "it has -1 records"},
		"a count too large":         {change(posCount, 0x7f, 0xff, 0xff, 0xff), "malformed record"},
		"a count too small":         {change(posCount, 0, 0, 0, 1), "follow its records"},
		"a negative length":         {change(posLength, 0xff, 0xff, 0xff, 0xff), "its length is -1"},
		"a length below the head":   {change(posLength, 0, 0, 0, 10), "its length is 10"},
		"a negative last offset":    {change(posLastDelta, 0x80, 0, 0, 0), "its offsets"},
		"a negative offset":         {change(0, 0xff), "its offsets"},
		"a record past the end":     {change(posLastDelta, 0, 0, 0, 0), "a record at 1"},
		"records out of order":      {simple(0, 5, 3, 2).bytes(), "a record at 2 after one at 3"},
		"batches out of order":      {append(simple(5, -1, 0).bytes(), simple(5, -1, 0).bytes()...), "after a batch that ends at 5"},
		"not gzip at all":           {made{codec: codecGzip, records: good.records}.around([]byte("nonsense")), "decompress"},
		"not snappy at all":         {made{codec: codecSnappy, records: good.records}.around([]byte("\xff\xff\xff\xff\xff\xff")), "decompress"},
		"not lz4 at all":            {made{codec: codecLz4, records: good.records}.around([]byte("nonsense")), "decompress"},
		"not zstd at all":           {made{codec: codecZstd, records: good.records}.around([]byte("nonsense")), "decompress"},
		"a cut frame of snappy":     {made{codec: codecSnappy, records: good.records}.around(framed([]byte("x"))[:20]), "decompress"},
		"a record that is too long": {good.around(binary.AppendVarint(nil, 1<<40)), "malformed record"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := newDecoder("t", true, 1<<20).decode(portion{partition: 9, offset: 0, bytes: 1 << 20, raw: c.raw})
			if !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "partition 9") {
				t.Fatalf("error is %v, want one that says %q", err, c.says)
			}
			if name != "batches out of order" && (out.next != 0 || len(out.messages) > 0) {
				t.Errorf("%d messages came out of it, next is %d", len(out.messages), out.next)
			}
		})
	}
}

func TestDecodeReturnsWhatCameBeforeACorruptBatch(t *testing.T) {
	t.Parallel()
	bad := simple(2, -1, 0).bytes()
	bad[len(bad)-1] ^= 1
	raw := slices.Concat(simple(0, -1, 0, 1).bytes(), bad, simple(3, -1, 0).bytes())
	out, err := newDecoder("t", true, 1<<20).decode(portion{bytes: 1 << 20, raw: raw})
	if !errors.Is(err, errCorrupt) || !strings.Contains(err.Error(), "offset 2") {
		t.Errorf("error is %v", err)
	}
	if got := offsetsOf(out.messages); !slices.Equal(got, []int64{0, 1}) || out.next != 2 {
		t.Errorf("offsets %v, next %d", got, out.next)
	}
}

func TestDecodeStopsAtABatchThatIsCutOff(t *testing.T) {
	t.Parallel()
	whole := simple(0, -1, 0, 1).bytes()
	second := simple(2, -1, 0).bytes()
	for cut := range second {
		out := decodeAll(t, true, portion{bytes: 1 << 20, raw: slices.Concat(whole, second[:cut])})
		if got := offsetsOf(out.messages); !slices.Equal(got, []int64{0, 1}) || out.next != 2 || out.partial != (cut > 0) {
			t.Fatalf("cut at %d: offsets %v, next %d, partial %v", cut, got, out.next, out.partial)
		}
	}
}

func TestDecodeStaysInsideTheMemoryItWasGranted(t *testing.T) {
	t.Parallel()
	const grant = 64 << 10
	// A batch of 2 MB that is some hundred bytes on the wire, and small ones around it.
	large := made{first: 100, lastDelta: -1, producer: -1, codec: codecZstd}
	for i := range 2_000 {
		large.records = append(large.records, madeRecord{delta: int64(i), value: bytes.Repeat([]byte("x"), 1_000)})
	}
	raw := slices.Concat(simple(0, -1, 0).bytes(), large.bytes(), simple(20_000, -1, 0).bytes())
	at, rounds := int64(0), 0
	var seen []int64
	for at < 20_001 {
		out := decodeAll(t, true, portion{offset: at, bytes: grant, raw: raw})
		if out.size > 2*grant+2_000 || out.next <= at {
			t.Fatalf("a portion of %d bytes, from %d to %d", out.size, at, out.next)
		}
		seen = append(seen, offsetsOf(out.messages)...)
		at, rounds = out.next, rounds+1
	}
	if len(seen) != 2_002 || !slices.IsSorted(seen) {
		t.Errorf("%d records came in %d rounds", len(seen), rounds)
	}
	for _, codec := range []int{codecGzip, codecSnappy, codecLz4, codecZstd} {
		large.codec = codec
		_, err := newDecoder("t", true, 1<<20).decode(portion{offset: 0, bytes: grant, raw: large.bytes()})
		if !errors.Is(err, errTooLarge) {
			t.Errorf("codec %d: a batch over the limit: %v", codec, err)
		}
	}
}

func TestAMessageKeepsLittleOfItsNeighboursAlive(t *testing.T) {
	t.Parallel()
	m := made{lastDelta: -1, producer: -1}
	for i := range 1000 {
		m.records = append(m.records, madeRecord{delta: int64(i), value: bytes.Repeat([]byte("x"), 1000)})
	}
	out := decodeAll(t, true, portion{bytes: 8 << 20, raw: m.bytes()})
	for i := range out.messages {
		if n := cap(out.messages[i].Value); n != 1000 {
			t.Fatalf("message %d could append into its neighbour: capacity %d", i, n)
		}
	}
}

func TestAMessagesMemoryIsForeseen(t *testing.T) {
	t.Parallel()
	m := made{lastDelta: -1, producer: -1}
	for i := range 100 {
		r := madeRecord{delta: int64(i), key: bytes.Repeat([]byte("k"), i%3), value: bytes.Repeat([]byte("v"), i)}
		for h := range i % 5 {
			r.headers = append(r.headers, order.Header{Key: strings.Repeat("h", h), Value: bytes.Repeat([]byte("v"), h)})
		}
		m.records = append(m.records, r)
	}
	out := decodeAll(t, true, portion{bytes: 8 << 20, raw: m.bytes()})
	size := 0
	for i := range out.messages {
		size += out.messages[i].Size()
	}
	if out.size != size || len(out.messages) != 100 || cap(out.messages) != 100 {
		t.Errorf("%d messages (room for %d) of %d bytes, want 100 of %d", len(out.messages), cap(out.messages), out.size, size)
	}
}

//nolint:paralleltest // allocations are counted for the whole process
func TestDecodeAllocatesPerBatchAndNotPerRecord(t *testing.T) {
	m := made{lastDelta: -1, producer: -1}
	for i := range 1000 {
		m.records = append(m.records, madeRecord{
			delta: int64(i), key: []byte("key"), value: []byte("value"), headers: []order.Header{{Key: "k", Value: []byte("v")}},
		})
	}
	raw, d := m.bytes(), newDecoder("t", true, 1<<20)
	n := testing.AllocsPerRun(5, func() {
		if _, err := d.decode(portion{bytes: 8 << 20, raw: raw}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 10 {
		t.Errorf("%v allocations for 1000 records", n)
	}
}
