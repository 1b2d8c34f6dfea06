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

// place is where a field stands among a batch's bytes, which are fewer than 2³¹. A size of -1 is null. Places hold no
// pointers, so that noting down a batch's records gives the garbage collector nothing to do.
type place struct{ at, size int32 }

// of returns the field's bytes out of those that begin at base: nil for null, not nil for empty.
func (p place) of(b []byte, base int32) []byte {
	if p.size < 0 {
		return nil
	}
	from := p.at - base
	return b[from : from+p.size : from+p.size]
}

// headerPlace is where one header stands.
type headerPlace struct{ key, value place }

// record is where one record of a batch stands.
type record struct {
	offsetDelta int32
	from, to    int32 // all of it
	timeDelta   int64
	key, value  place
	header      int32 // the first of its headers, in the list that parse appends to
	headers     int32
}

// bad is the position after bytes that could not be read. Reading on from there is bad, too.
const bad = -1

// varintAt reads a zigzag number that fits in 64 bits, and returns the position after it. Most take one or two bytes.
func varintAt(b []byte, at int) (int64, int) {
	if at >= 0 && at+1 < len(b) {
		v := uint64(b[at])
		if v < 0x80 {
			return unzigzag(v), at + 1
		}
		if next := uint64(b[at+1]); next < 0x80 {
			return unzigzag(v&0x7f | next<<7), at + 2
		}
	}
	return longVarintAt(b, at)
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func longVarintAt(b []byte, at int) (int64, int) {
	if at < 0 || at > len(b) {
		return 0, bad
	}
	v, n := binary.Varint(b[at:])
	if n <= 0 {
		return 0, bad
	}
	return v, at + n
}

// placeAt reads a length and steps over so many bytes. A length of -1 is null.
func placeAt(b []byte, at int) (place, int) {
	n, at := varintAt(b, at)
	if n == -1 && at >= 0 {
		return place{size: -1}, at
	}
	if at < 0 || n < 0 || n > int64(len(b)-at) {
		return place{}, bad
	}
	return place{int32(at), int32(n)}, at + int(n) //nolint:gosec // a batch is smaller than 2³¹
}

// parse reads the record that begins at a position and checks it, headers and all. It appends the headers to list and
// returns the position after the record.
func parse(b []byte, at int, into *record, list []headerPlace) ([]headerPlace, int, error) {
	from := at
	size, at := varintAt(b, at)
	if at < 0 || size < 0 || size > int64(len(b)-at) {
		return list, bad, errRecord
	}
	end := at + int(size)
	b = b[:end]
	at++ // attributes, unused
	var delta, count int64
	into.timeDelta, at = varintAt(b, at)
	delta, at = varintAt(b, at)
	into.key, at = placeAt(b, at)
	into.value, at = placeAt(b, at)
	count, at = varintAt(b, at)
	if at < 0 || delta < 0 || delta > int64(1<<31-1) {
		return list, bad, errRecord
	}
	if count < 0 || count > maxHeaders {
		return list, bad, fmt.Errorf("%w: it has %d headers, want at most %d", errRecord, count, maxHeaders)
	}
	into.offsetDelta, into.from, into.to = int32(delta), int32(from), int32(end) //nolint:gosec // a batch is smaller than 2³¹
	into.header, into.headers = int32(len(list)), int32(count)                   //nolint:gosec // so are they
	for range count {
		var h headerPlace
		h.key, at = placeAt(b, at)
		h.value, at = placeAt(b, at)
		if at < 0 || h.key.size < 0 {
			return list, bad, errRecord
		}
		list = append(list, h)
	}
	if at != end {
		return list, bad, errRecord
	}
	return list, end, nil
}
