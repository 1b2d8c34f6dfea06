package order

import (
	"slices"
	"time"
)

// Header is one record header. Names may repeat and keep their order.
type Header struct {
	Key   string
	Value []byte
}

// Message is one Kafka record, bytes exact. A nil Key or Value is Kafka's null; an empty one is empty: the two
// are different records and are kept apart everywhere.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Time      time.Time // the record's own timestamp; informative, never used for a delay
}

// headerOverhead is what a header costs in memory beside its bytes: a string and a slice header.
const headerOverhead = 40

// messageOverhead is what a message costs in memory beside its bytes.
const messageOverhead = 160

// Size is the memory the message holds, in bytes: what the prefetch ceiling counts.
func (m *Message) Size() int {
	n := messageOverhead + len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += headerOverhead + len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// Header returns the last value under key, which is the newest, and whether there is one.
func (m *Message) Header(key string) ([]byte, bool) {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}
