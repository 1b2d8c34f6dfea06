package admin

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"spillway/order"
)

// Record is a Kafka record as JSON shows it, bytes exact: base64, and null for Kafka's null.
type Record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time,omitzero"`
	Key       []byte    `json:"key"`
	Value     []byte    `json:"value"`
	Headers   []Header  `json:"headers"`
}

// Header is a record header. A name that is not UTF-8 is in NameBase64 instead.
type Header struct {
	Name       string `json:"name"`
	NameBase64 []byte `json:"name_base64,omitempty"`
	Value      []byte `json:"value"`
}

func newRecord(m *order.Message) *Record {
	r := &Record{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: utc(m.Time), Key: m.Key, Value: m.Value,
		Headers: make([]Header, 0, len(m.Headers)),
	}
	for _, h := range m.Headers {
		out := Header{Name: h.Key, Value: h.Value}
		if !utf8.ValidString(h.Key) {
			out.Name, out.NameBase64 = "", []byte(h.Key)
		}
		r.Headers = append(r.Headers, out)
	}
	return r
}

// utc keeps the zero time zero, which JSON leaves out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// place names where a record stands in Kafka.
func place(m *order.Message) string {
	return fmt.Sprintf("topic %s, partition %d, offset %d", Printable(m.Topic), m.Partition, m.Offset)
}

// record writes a record: where it stood, its key, its headers, and the beginning of its value. exact says how to get
// all of it.
func (s *sheet) record(m *order.Message, now time.Time, exact string) {
	s.field("record", place(m))
	s.field("timestamp", when(m.Time, now))
	s.field("key", short(m.Key))
	if len(m.Headers) > 0 {
		s.line("  headers")
		for _, h := range m.Headers[:min(len(m.Headers), maxHeaders)] {
			s.line("    %s: %s", short([]byte(h.Key)), short(h.Value))
		}
		if n := len(m.Headers) - maxHeaders; n > 0 {
			s.line("    (%d more; all of them: %s)", n, exact)
		}
	}
	s.value("value", m.Value, exact)
}

// value writes the beginning of some bytes, each line of them behind a bar: nothing in it can pass for our own words.
func (s *sheet) value(name string, value []byte, exact string) {
	if value == nil {
		s.field(name, "null")
		return
	}
	s.field(name, fmt.Sprintf("%d bytes", len(value)))
	text, cut := preview(value, maxPreview)
	if text != "" {
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			s.line("  | %s", Printable(line))
		}
	}
	if cut {
		s.line("  (cut: %d of %d bytes; all of them: %s)", len(text), len(value), exact)
	}
}

// short writes a key, or a header's name or value: on one line, cut with a note.
func short(b []byte) string {
	if b == nil {
		return "null"
	}
	text, cut := preview(b, maxHeader)
	if text = Printable(text); cut {
		text += fmt.Sprintf("… (cut: %d bytes in all)", len(b))
	}
	return text
}
