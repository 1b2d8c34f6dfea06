package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"spillway/order"
)

func BenchmarkDecode(b *testing.B) {
	m := made{lastDelta: -1, producer: -1}
	for i := range 5000 {
		m.records = append(m.records, madeRecord{
			delta: int64(i), key: []byte("T-1001"), value: bytes.Repeat([]byte("x"), 200),
			headers: []order.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}},
		})
	}
	raw, d := m.bytes(), newDecoder("t", true, 8<<20)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if out, err := d.decode(portion{bytes: 8 << 20, raw: raw}); err != nil || len(out.messages) != 5000 {
			b.Fatal(err)
		}
	}
}

// FuzzDecode feeds the decoder bytes that anybody may have sent. Whatever they are, it must not panic, must not move
// the position back or past what it read, and must not take more memory than its limits allow.
func FuzzDecode(f *testing.F) {
	f.Add(simple(0, -1, 0, 1, 2).bytes(), int64(0), false)
	f.Add(slices.Concat(simple(0, 9, 0).bytes(), simple(10, -1, 0).bytes()), int64(5), true)
	f.Add(marker(3, 1, false).bytes(), int64(3), true)
	for _, codec := range []int{codecGzip, codecSnappy, codecLz4, codecZstd} {
		m := simple(0, -1, 0, 1, 2)
		m.codec = codec
		f.Add(m.bytes(), int64(1), true)
	}
	f.Add(made{codec: codecSnappy, records: simple(0, -1, 0).records}.around(framed(bytes.Repeat([]byte("x"), 500))), int64(0), true)
	f.Add(simple(0, -1, 0, 1).bytes()[:30], int64(0), true)
	f.Fuzz(func(t *testing.T, raw []byte, offset int64, fix bool) {
		offset &= 1<<62 - 1
		if fix && len(raw) > headSize {
			// Without this, hardly an input would get past the checksum.
			raw = slices.Clone(raw)
			raw[posMagic] = format
			binary.BigEndian.PutUint32(raw[posLength:], uint32(len(raw)-prefixSize))
			seal(raw)
		}
		const limit, grant = 1 << 20, 1 << 16
		d := newDecoder("t", true, limit)
		defer d.unpack.close()
		out, err := d.decode(portion{offset: offset, bytes: grant, raw: raw})
		if out.next < offset {
			t.Fatalf("the position went back from %d to %d", offset, out.next)
		}
		if err != nil && !errors.Is(err, errCorrupt) {
			t.Fatalf("error %v is of no known kind", err)
		}
		size, last := 0, offset-1
		for i := range out.messages {
			m := &out.messages[i]
			if m.Offset <= last || m.Offset >= out.next {
				t.Fatalf("message at %d after one at %d, next is %d", m.Offset, last, out.next)
			}
			last = m.Offset
			size += m.Size()
		}
		// One record may be as large as a batch, and headers weigh more in memory than on the wire.
		if most := 2*grant + limit + maxHeaders*headerCost; size > most || cap(d.unpack.buffer) > 2*limit {
			t.Fatalf("%d bytes of messages and a buffer of %d, the grant is %d", size, cap(d.unpack.buffer), grant)
		}
	})
}
