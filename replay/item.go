package replay

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"spillway/order"
)

// MaxItem bounds an encoded item, in bytes: a record of 24 MiB. A larger one is refused both ways.
const MaxItem = 32 << 20

// itemVersion is what this package writes and the only one it reads.
const itemVersion = 1

// Item is one entry of the replay queue.
type Item struct {
	ID        int64 // of the order's row
	Route     string
	Number    string
	Message   order.Message // Time in whole milliseconds, UTC
	Attempts  int           // counted so far; for people, Postgres has the count that matters
	SpilledAt time.Time
	Reason    order.Reason
}

// NewItem makes the item of an order that goes into the queue at now.
func NewItem(o *order.Order, now time.Time) Item {
	return Item{
		ID: o.ID, Route: o.Route, Number: o.Number, Message: o.Message,
		Attempts: o.Attempts, SpilledAt: now.UTC(), Reason: o.Reason,
	}
}

// itemJSON is the written form. The original record is kept byte by byte: null is null, empty is "", the rest base64.
type itemJSON struct {
	V         int          `json:"v"`
	ID        int64        `json:"id"`
	Route     string       `json:"route"`
	Number    string       `json:"number"`
	Attempts  int          `json:"attempts"`
	Reason    order.Reason `json:"reason"`
	SpilledAt time.Time    `json:"spilled_at"`
	Topic     string       `json:"topic"`
	Partition int32        `json:"partition"`
	Offset    int64        `json:"offset"`
	TimeMS    int64        `json:"time_ms"` // Unix milliseconds as Kafka has them; some lie outside of what RFC 3339 can say
	Headers   []headerJSON `json:"headers,omitempty"`
	Key       blob         `json:"key"`
	Value     blob         `json:"value"`
}

// headerJSON is a header. Kafka does not check that names are UTF-8; one that is not is written as base64 instead.
type headerJSON struct {
	Name    string `json:"k,omitempty"`
	NameB64 []byte `json:"k_b64,omitempty"`
	Value   blob   `json:"v"`
}

// blob is bytes that may be null, and knows whether it was there at all.
type blob struct {
	bytes   []byte
	present bool
}

func (b blob) MarshalJSON() ([]byte, error) {
	if b.bytes == nil {
		return []byte("null"), nil
	}
	out := make([]byte, 0, base64.StdEncoding.EncodedLen(len(b.bytes))+2)
	out = append(out, '"')
	out = base64.StdEncoding.AppendEncode(out, b.bytes)
	return append(out, '"'), nil
}

func (b *blob) UnmarshalJSON(data []byte) error {
	b.present, b.bytes = true, nil
	return json.Unmarshal(data, &b.bytes)
}

// Encode writes the item as one line of JSON. It refuses one that [DecodeItem] would refuse.
func (it *Item) Encode() ([]byte, error) {
	if err := it.check(); err != nil {
		return nil, err
	}
	if n := base64.StdEncoding.EncodedLen(len(it.Message.Key) + len(it.Message.Value)); n > MaxItem {
		return nil, fmt.Errorf("item of more than %d bytes: at most %d", n, MaxItem) // known without writing it
	}
	w := itemJSON{
		V: itemVersion, ID: it.ID, Route: it.Route, Number: it.Number,
		Attempts: it.Attempts, Reason: it.Reason, SpilledAt: it.SpilledAt,
		Topic: it.Message.Topic, Partition: it.Message.Partition, Offset: it.Message.Offset,
		TimeMS: it.Message.Time.UnixMilli(),
		Key:    blob{bytes: it.Message.Key}, Value: blob{bytes: it.Message.Value},
	}
	for _, h := range it.Message.Headers {
		hw := headerJSON{Name: h.Key, Value: blob{bytes: h.Value}}
		if !utf8.ValidString(h.Key) {
			hw.Name, hw.NameB64 = "", []byte(h.Key)
		}
		w.Headers = append(w.Headers, hw)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&w); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	if len(data) > MaxItem {
		return nil, fmt.Errorf("item of %d bytes: at most %d", len(data), MaxItem)
	}
	return data, nil
}

// DecodeItem reads what Encode wrote, and nothing else: the error says what is wrong with the entry.
func DecodeItem(data []byte) (Item, error) {
	if err := checkEnvelope(data); err != nil {
		return Item{}, err
	}
	var w itemJSON
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Item{}, fmt.Errorf("version %d entry: %w", itemVersion, err)
	}
	if !w.Key.present || !w.Value.present {
		return Item{}, errors.New("entry has no key or no value: want null where the record has none")
	}
	it := Item{
		ID: w.ID, Route: w.Route, Number: w.Number, Attempts: w.Attempts, Reason: w.Reason, SpilledAt: w.SpilledAt.UTC(),
		Message: order.Message{
			Topic: w.Topic, Partition: w.Partition, Offset: w.Offset, Time: time.UnixMilli(w.TimeMS).UTC(),
			Key: w.Key.bytes, Value: w.Value.bytes,
		},
	}
	for i, h := range w.Headers {
		if !h.Value.present || (h.Name != "" && h.NameB64 != nil) {
			return Item{}, fmt.Errorf("header %d of the entry: want one name and one value", i)
		}
		name := h.Name
		if h.NameB64 != nil {
			name = string(h.NameB64)
		}
		it.Message.Headers = append(it.Message.Headers, order.Header{Key: name, Value: h.Value.bytes})
	}
	if err := it.check(); err != nil {
		return Item{}, err
	}
	return it, nil
}

// checkEnvelope looks at what every version has in common.
func checkEnvelope(data []byte) error {
	switch {
	case len(data) == 0:
		return errors.New("entry is empty")
	case len(data) > MaxItem:
		return fmt.Errorf("entry of %d bytes: at most %d", len(data), MaxItem)
	case !utf8.Valid(data):
		return errors.New("entry is not valid UTF-8")
	}
	var head struct {
		V *json.RawMessage `json:"v"`
	}
	err := json.Unmarshal(data, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("entry is not one JSON object: %w at byte %d", err, syntax.Offset)
	case err != nil, bytes.TrimLeft(data, " \t\r\n")[0] != '{':
		return fmt.Errorf("entry is not a JSON object: it starts with %q", data[:min(len(data), 16)])
	case head.V == nil:
		return errors.New("entry has no version")
	}
	if v := string(*head.V); v != "1" {
		return fmt.Errorf("entry of version %.20s: this worker reads version %d", v, itemVersion)
	}
	return nil
}

// check is what holds for every item, written or read.
func (it *Item) check() error {
	if err := order.CheckNumber(it.Number); err != nil {
		return err
	}
	m := &it.Message
	switch {
	case it.ID < 1:
		return fmt.Errorf("order id %d: want 1 or more", it.ID)
	case it.Route == "" || !utf8.ValidString(it.Route):
		return fmt.Errorf("route %q: want a name", it.Route)
	case m.Topic == "" || !utf8.ValidString(m.Topic):
		return fmt.Errorf("topic %q: want a name", m.Topic)
	case m.Partition < 0 || m.Offset < 0:
		return fmt.Errorf("partition %d, offset %d: want 0 or more", m.Partition, m.Offset)
	case it.Attempts < 0:
		return fmt.Errorf("%d attempts: want 0 or more", it.Attempts)
	case !utf8.ValidString(string(it.Reason)):
		return fmt.Errorf("reason %q is not valid UTF-8", it.Reason)
	}
	return nil
}

// guessID returns the order id in an entry that cannot be read, or 0: enough to take it off the list of queued ids.
func guessID(data []byte) int64 {
	var head struct {
		ID int64 `json:"id"`
	}
	// Decode stops at the end of the first value, so that junk behind it does no harm.
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&head); err != nil || head.ID < 1 {
		return 0
	}
	return head.ID
}
