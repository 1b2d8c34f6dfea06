package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errRecord says that the records of a batch are not what its head promises.
var errRecord = errors.New("malformed record")

// maxHeaders bounds the headers of one record: each costs far more memory than the two bytes it takes on the wire.
const maxHeaders = 1 << 16

// record is one record of a batch. Its slices point into the batch.
type record struct {
	offsetDelta int32
	timeDelta   int64
	key, value  []byte // nil for null
	headers     reader // still encoded
	headerCount int
}

// reader steps over the bytes of a batch's records. After the first short read it is bad and reads zeros.
type reader struct {
	bytes []byte
	bad   bool
}

// varint reads a zigzag number that fits in 64 bits.
func (r *reader) varint() int64 {
	v, n := binary.Varint(r.bytes)
	if n <= 0 {
		r.bad, r.bytes = true, nil
		return 0
	}
	r.bytes = r.bytes[n:]
	return v
}

// span reads the next n bytes.
func (r *reader) span(n int64) []byte {
	if n < 0 || n > int64(len(r.bytes)) {
		r.bad, r.bytes = true, nil
		return nil
	}
	s := r.bytes[:n:n]
	r.bytes = r.bytes[n:]
	return s
}

// nullable reads a length and so many bytes. A length of -1 is null, which is nil; an empty slice is not nil.
func (r *reader) nullable() []byte {
	n := r.varint()
	if n == -1 {
		return nil
	}
	s := r.span(n)
	if s == nil && !r.bad {
		return []byte{}
	}
	return s
}

// next reads one record. The headers are checked and left encoded.
func (r *reader) next(into *record) error {
	body := reader{bytes: r.span(r.varint())}
	if r.bad {
		return errRecord
	}
	body.span(1) // attributes, unused
	into.timeDelta = body.varint()
	delta := body.varint()
	into.key = body.nullable()
	into.value = body.nullable()
	count := body.varint()
	if body.bad || delta < 0 || delta > int64(1<<31-1) {
		return errRecord
	}
	if count < 0 || count > maxHeaders {
		return fmt.Errorf("%w: it has %d headers, want at most %d", errRecord, count, maxHeaders)
	}
	into.offsetDelta, into.headerCount, into.headers = int32(delta), int(count), body
	for range count {
		if _, _, ok := body.header(); !ok {
			return errRecord
		}
	}
	if len(body.bytes) > 0 {
		return errRecord
	}
	return nil
}

// header reads one header.
func (r *reader) header() (key, value []byte, ok bool) {
	n := r.varint()
	key = r.span(n)
	value = r.nullable()
	return key, value, !r.bad
}
