package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"

	"spillway/order"
)

// errHeaders says that a headers column holds bytes that encodeHeaders does not write.
var errHeaders = errors.New("headers column is damaged")

// encodeHeaders packs record headers, in order and with repeats: a varint count, then per header the name's length and
// bytes, and the value's length plus one, 0 for null, and bytes. No headers are nil, SQL's NULL.
func encodeHeaders(hs []order.Header) []byte {
	if len(hs) == 0 {
		return nil
	}
	size := binary.MaxVarintLen32
	for i := range hs {
		size += 2*binary.MaxVarintLen32 + len(hs[i].Key) + len(hs[i].Value)
	}
	b := binary.AppendUvarint(make([]byte, 0, size), uint64(len(hs)))
	for i := range hs {
		b = binary.AppendUvarint(b, uint64(len(hs[i].Key)))
		b = append(b, hs[i].Key...)
		if hs[i].Value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(hs[i].Value))+1)
		b = append(b, hs[i].Value...)
	}
	return b
}

// decodeHeaders is the reverse of encodeHeaders. The headers share no memory with b.
func decodeHeaders(b []byte) ([]order.Header, error) {
	if b == nil {
		return nil, nil
	}
	count, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	if count == 0 || count > uint64(len(b))/2 { // a header takes two bytes at least
		return nil, fmt.Errorf("%w: %d headers in %d bytes", errHeaders, count, len(b))
	}
	hs := make([]order.Header, count)
	for i := range hs {
		var key, value []byte
		if key, b, err = chunk(b, 0); err != nil {
			return nil, err
		}
		hs[i].Key = string(key)
		if value, b, err = chunk(b, 1); err != nil {
			return nil, err
		}
		if value != nil {
			hs[i].Value = append([]byte{}, value...)
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errHeaders, len(b))
	}
	return hs, nil
}

// chunk reads a length, which was written with extra added to it, and that many bytes. A length below extra is nil.
func chunk(b []byte, extra uint64) (data, rest []byte, err error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, nil, err
	}
	if n < extra {
		return nil, b, nil
	}
	if n -= extra; n > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: %d bytes wanted of %d", errHeaders, n, len(b))
	}
	return b[:n:n], b[n:], nil
}

func uvarint(b []byte) (n uint64, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, fmt.Errorf("%w: no number where one is due", errHeaders)
	}
	return n, b[size:], nil
}
