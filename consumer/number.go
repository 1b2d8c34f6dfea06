package consumer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"spillway/order"
)

// NumberFrom says where a record carries its business number.
type NumberFrom int

// Places of a business number.
const (
	FromKey     NumberFrom = iota // the record key
	FromHeader                    // the newest header of a name
	FromPointer                   // a JSON pointer (RFC 6901) into the value
)

// Number finds the business number of a record.
type Number struct {
	From    NumberFrom
	Header  string // for FromHeader
	Pointer string // for FromPointer: starts with a slash
}

// Of returns the business number of m, or the reason why there is none and what was wrong, for people.
func (n Number) Of(m *order.Message) (number string, why order.Reason, detail string) {
	if m.Value == nil {
		return "", order.NullValue, "the record's value is null (a tombstone)"
	}
	if len(m.Value) == 0 {
		return "", order.EmptyValue, "the record's value has no bytes"
	}
	switch n.From {
	case FromKey:
		if m.Key == nil {
			return "", order.NoNumber, "the record's key is null"
		}
		number = string(m.Key)
	case FromHeader:
		v, ok := m.Header(n.Header)
		if !ok {
			return "", order.NoNumber, fmt.Sprintf("the record has no header %q", n.Header)
		}
		number = string(v)
	case FromPointer:
		number, why, detail = n.point(m.Value)
		if why != order.NoReason {
			return "", why, detail
		}
	}
	if err := order.CheckNumber(number); err != nil {
		return "", order.NoNumber, err.Error()
	}
	return number, order.NoReason, ""
}

// point follows the pointer into a JSON value. A number there is taken as it is written.
func (n Number) point(value []byte) (number string, why order.Reason, detail string) {
	if !utf8.Valid(value) {
		return "", order.Undecodable, "the record's value is not valid UTF-8, so not JSON"
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var at any
	if err := dec.Decode(&at); err != nil {
		return "", order.Undecodable, "the record's value is not JSON: " + err.Error()
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", order.Undecodable, "the record's value has bytes after its JSON"
	}
	for token := range strings.SplitSeq(n.Pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		var ok bool
		switch v := at.(type) {
		case map[string]any:
			at, ok = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(v); ok {
				at = v[i]
			}
		}
		if !ok {
			return "", order.NoNumber, fmt.Sprintf("the record's value has nothing at %s", n.Pointer)
		}
	}
	switch v := at.(type) {
	case string:
		return v, order.NoReason, ""
	case json.Number:
		return v.String(), order.NoReason, ""
	}
	return "", order.NoNumber, fmt.Sprintf("the record's value at %s is not a string or a number", n.Pointer)
}
