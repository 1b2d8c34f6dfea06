package downstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// pointer is a JSON pointer (RFC 6901) other than the one to the whole document.
type pointer struct {
	text   string
	tokens []string
}

func parsePointer(s string) (pointer, error) {
	if !strings.HasPrefix(s, "/") {
		return pointer{}, fmt.Errorf("JSON pointer %q: want it to begin with a slash", s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		for j := range len(t) {
			if t[j] == '~' && (j+1 == len(t) || (t[j+1] != '0' && t[j+1] != '1')) {
				return pointer{}, fmt.Errorf("JSON pointer %q: a ~ is written ~0, a slash within a name ~1", s)
			}
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return pointer{text: s, tokens: tokens}, nil
}

// find returns the JSON the pointer leads to, as the document writes it. It finds nothing in what is not JSON.
func (p pointer) find(doc []byte) (json.RawMessage, bool) {
	raw := json.RawMessage(doc)
	for _, token := range p.tokens {
		raw = bytes.TrimLeft(raw, " \t\r\n")
		if len(raw) == 0 {
			return nil, false
		}
		switch raw[0] {
		case '{':
			var object map[string]json.RawMessage
			if json.Unmarshal(raw, &object) != nil {
				return nil, false
			}
			next, ok := object[token]
			if !ok {
				return nil, false
			}
			raw = next
		case '[':
			i, err := strconv.Atoi(token)
			if err != nil || strconv.Itoa(i) != token {
				return nil, false
			}
			var array []json.RawMessage
			if json.Unmarshal(raw, &array) != nil || i < 0 || i >= len(array) {
				return nil, false
			}
			raw = array[i]
		default:
			return nil, false
		}
	}
	return bytes.TrimSpace(raw), true
}

// scalar returns a string's content, or a number, boolean or null as written; false for objects and arrays.
func scalar(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '{', '[':
		return "", false
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", false
		}
		return s, true
	}
	return string(raw), true
}
