package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs of a record batch, as its attributes number them.
const (
	codecNone   = 0
	codecGzip   = 1
	codecSnappy = 2
	codecLz4    = 3
	codecZstd   = 4
)

// errTooLarge says that a batch would not fit in the memory allowed for one.
var errTooLarge = errors.New("the batch is larger than the limit once decompressed")

// unpacker decompresses batches, one at a time, into a buffer that it keeps. It is for one goroutine.
type unpacker struct {
	limit  int // the largest result in bytes
	buffer []byte
	gzip   *gzip.Reader
	lz4    *lz4.Reader
	zstd   *zstd.Decoder
}

// keepBuffer is the largest buffer kept from one batch to the next.
const keepBuffer = 4 << 20

// unpack returns the decompressed bytes, which are good until the next call.
func (u *unpacker) unpack(codec int, packed []byte) ([]byte, error) {
	if cap(u.buffer) > keepBuffer {
		u.buffer = nil
	}
	u.buffer = u.buffer[:0]
	var err error
	switch codec {
	case codecNone:
		if len(packed) > u.limit {
			return nil, errTooLarge
		}
		return packed, nil
	case codecGzip:
		err = u.gunzip(packed)
	case codecSnappy:
		err = u.unsnappy(packed)
	case codecLz4:
		if u.lz4 == nil {
			u.lz4 = lz4.NewReader(nil)
		}
		u.lz4.Reset(bytes.NewReader(packed))
		err = u.drain(u.lz4)
	case codecZstd:
		err = u.unzstd(packed)
	default:
		return nil, fmt.Errorf("compression codec %d is unknown", codec)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return u.buffer, nil
}

// drain reads a stream to its end into the buffer.
func (u *unpacker) drain(r io.Reader) error {
	const step = 32 << 10
	for {
		if cap(u.buffer)-len(u.buffer) < step/2 {
			grown := make([]byte, len(u.buffer), 2*cap(u.buffer)+step)
			copy(grown, u.buffer)
			u.buffer = grown
		}
		n, err := r.Read(u.buffer[len(u.buffer):min(cap(u.buffer), u.limit+1)])
		u.buffer = u.buffer[:len(u.buffer)+n]
		switch {
		case len(u.buffer) > u.limit:
			return errTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (u *unpacker) gunzip(packed []byte) error {
	source := bytes.NewReader(packed)
	if u.gzip == nil {
		reader, err := gzip.NewReader(source)
		if err != nil {
			return err
		}
		u.gzip = reader
	} else if err := u.gzip.Reset(source); err != nil {
		return err
	}
	return u.drain(u.gzip)
}

func (u *unpacker) unzstd(packed []byte) error {
	if u.zstd == nil {
		decoder, err := zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(uint64(u.limit))) //nolint:gosec // a limit is positive
		if err != nil {
			return err
		}
		u.zstd = decoder
	}
	var err error
	u.buffer, err = u.zstd.DecodeAll(packed, u.buffer)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return errTooLarge
	}
	return err
}

// xerialHead begins snappy as the Java client frames it: then follow two version numbers, and blocks with their length.
const xerialHead = "\x82SNAPPY\x00"

func (u *unpacker) unsnappy(packed []byte) error {
	const headSize = len(xerialHead) + 8
	if len(packed) < headSize || string(packed[:len(xerialHead)]) != xerialHead {
		return u.unsnappyBlock(packed)
	}
	for rest := packed[headSize:]; len(rest) > 0; {
		if len(rest) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := int64(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if size > int64(len(rest)) {
			return io.ErrUnexpectedEOF
		}
		if err := u.unsnappyBlock(rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	return nil
}

// unsnappyBlock appends one decompressed block to the buffer.
func (u *unpacker) unsnappyBlock(block []byte) error {
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	have := len(u.buffer)
	if size > u.limit-have {
		return errTooLarge
	}
	if cap(u.buffer)-have < size {
		grown := make([]byte, have, max(have+size, min(2*cap(u.buffer), u.limit)))
		copy(grown, u.buffer)
		u.buffer = grown
	}
	// Decode writes into what it is given if that is long enough.
	if _, err := snappy.Decode(u.buffer[have:have+size], block); err != nil {
		return err
	}
	u.buffer = u.buffer[:have+size]
	return nil
}

// close frees what the decompressors hold.
func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}
