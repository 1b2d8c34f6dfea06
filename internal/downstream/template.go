package downstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"spillway/order"
)

// place is where a template stands, which decides how its placeholders are escaped.
type place int

const (
	inPath place = iota
	inQuery
	inHeader
	inForm   // a form's body
	inJSON   // a JSON body, outside its strings
	inString // a JSON body, within a string
	inExact  // a body that is {value} and nothing else
)

// slot is what a part of a template stands for.
type slot int

const (
	slotLiteral slot = iota
	slotNumber
	slotRoute
	slotTopic
	slotKey
	slotHeader
	slotValue
	slotPointer
)

// bodyKind is what is checked of a body once it is rendered.
type bodyKind int

const (
	bodyExact bodyKind = iota // nothing: the record's value as it is
	bodyJSON
	bodyForm
)

// part is a piece of a template.
type part struct {
	slot slot
	at   place
	text string // the literal, or the header's name
	ptr  pointer
}

// template is parsed text with placeholders. It is immutable.
type template struct {
	parts []part
	size  int // of its literals
}

func literal(s string) template {
	return template{parts: []part{{slot: slotLiteral, text: s}}, size: len(s)}
}

func (t template) has(s slot) bool {
	for _, p := range t.parts {
		if p.slot == s {
			return true
		}
	}
	return false
}

// parseTemplate reads a template for a path, a query, a header or a form.
func parseTemplate(s string, at place) (template, error) {
	t, err := split(s, func(int) place { return at })
	if err != nil {
		return t, err
	}
	var shape strings.Builder
	for _, p := range t.parts {
		if p.slot == slotValue {
			return t, errors.New("{value} may stand in a body alone: want {value:/pointer}")
		}
		if p.slot == slotLiteral {
			shape.WriteString(p.text)
		} else {
			shape.WriteByte('x')
		}
	}
	return t, checkLiteral(shape.String(), at)
}

// checkLiteral checks a template's text with an x in place of each placeholder.
func checkLiteral(s string, at place) error {
	switch at {
	case inPath:
		u, err := url.ParseRequestURI(s)
		if err != nil || u.EscapedPath() != s || strings.ContainsAny(s, "#?") {
			return fmt.Errorf("%q is not a path: write other characters than letters, digits and -._~!$&'()*+,;=:@ as %%XX", s)
		}
		if hasDotSegment(s) {
			return fmt.Errorf("%q holds a . or .. segment", s)
		}
	case inQuery, inForm:
		for i := range len(s) {
			if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '#' || s[i] == '"' || s[i] == '<' || s[i] == '>' {
				return fmt.Errorf("%q: the character %q must be written as %%XX", s, s[i])
			}
		}
		if _, err := url.ParseQuery(s); err != nil {
			return fmt.Errorf("%q is not a query: want name=value&name=value", s)
		}
	case inHeader:
		if !validHeaderValue(s) {
			return errors.New("its value can't stand in a header: no control characters, no space at its ends")
		}
	case inJSON, inString, inExact:
	}
	return nil
}

// parseBody reads a body's template and says what is to be checked of it.
func parseBody(s, contentType string) (template, bodyKind, error) {
	if s == "{value}" {
		return template{parts: []part{{slot: slotValue, at: inExact}}}, bodyExact, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return template{}, bodyExact, fmt.Errorf("content type %q is not one", contentType)
	case media == "application/x-www-form-urlencoded":
		t, err := parseTemplate(s, inForm)
		return t, bodyForm, err
	case media != "application/json" && !strings.HasSuffix(media, "+json"):
		return template{}, bodyExact, fmt.Errorf("a template of %s can't be escaped safely: want JSON, a form, or {value} alone", media)
	}
	quoted := jsonStrings(s)
	t, err := split(s, func(at int) place {
		if quoted[at] {
			return inString
		}
		return inJSON
	})
	if err != nil {
		return t, bodyJSON, err
	}
	var sample strings.Builder
	for _, p := range t.parts {
		switch {
		case p.slot == slotLiteral:
			sample.WriteString(p.text)
		case p.at == inString && p.slot == slotValue:
			return t, bodyJSON, errors.New("{value} stands for JSON and can't be within a string")
		case p.at == inString:
			sample.WriteByte('x')
		case p.slot != slotValue && p.slot != slotPointer:
			return t, bodyJSON, errors.New(`a placeholder outside a string: write "{number}" with its quotes, for only {value} and {value:/pointer} stand for JSON`)
		default:
			sample.WriteString("null")
		}
	}
	if !json.Valid([]byte(sample.String())) {
		return t, bodyJSON, fmt.Errorf("is not JSON: %s", sample.String())
	}
	return t, bodyJSON, nil
}

// jsonStrings says of each byte of a JSON text whether it is within a string.
func jsonStrings(s string) []bool {
	in, escaped := false, false
	out := make([]bool, len(s))
	for i := range len(s) {
		out[i] = in
		switch {
		case escaped:
			escaped = false
		case in && s[i] == '\\':
			escaped = true
		case s[i] == '"':
			in = !in
		}
	}
	return out
}

// split finds the placeholders: a { with a letter after it begins one, which no JSON has outside its strings. Any other
// brace is literal.
func split(s string, placeAt func(int) place) (template, error) {
	var t template
	lit := func(text string) {
		if text != "" {
			t.parts = append(t.parts, part{slot: slotLiteral, text: text})
			t.size += len(text)
		}
	}
	from := 0
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '{' || s[i+1]|0x20 < 'a' || s[i+1]|0x20 > 'z' {
			continue
		}
		n := strings.IndexByte(s[i:], '}')
		if n < 0 {
			return t, fmt.Errorf("%q: the placeholder does not end", s[i:])
		}
		p, err := parsePlaceholder(s[i+1 : i+n])
		if err != nil {
			return t, err
		}
		p.at = placeAt(i)
		lit(s[from:i])
		t.parts = append(t.parts, p)
		i += n
		from = i + 1
	}
	lit(s[from:])
	return t, nil
}

func parsePlaceholder(s string) (part, error) {
	name, arg, has := strings.Cut(s, ":")
	var err error
	switch {
	case name == "number" && !has:
		return part{slot: slotNumber}, nil
	case name == "route" && !has:
		return part{slot: slotRoute}, nil
	case name == "topic" && !has:
		return part{slot: slotTopic}, nil
	case name == "key" && !has:
		return part{slot: slotKey}, nil
	case name == "value" && !has:
		return part{slot: slotValue}, nil
	case name == "header" && arg != "":
		return part{slot: slotHeader, text: arg}, nil
	case name == "value":
		p := part{slot: slotPointer}
		p.ptr, err = parsePointer(arg)
		return p, err
	}
	return part{}, fmt.Errorf("placeholder {%s}: want {number}, {route}, {topic}, {key}, {header:NAME}, {value} or {value:/pointer}", s)
}

// render appends the template's text for an order. Its errors say what the record lacks and never quote the record.
func (t template) render(dst []byte, o *order.Order) ([]byte, error) {
	var err error
	for i := range t.parts {
		if dst, err = t.parts[i].render(dst, o); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (p *part) render(dst []byte, o *order.Order) ([]byte, error) {
	var text string
	switch p.slot {
	case slotLiteral:
		return append(dst, p.text...), nil
	case slotNumber:
		text = o.Number
	case slotRoute:
		text = o.Route
	case slotTopic:
		text = o.Message.Topic
	case slotKey:
		if o.Message.Key == nil {
			return dst, errors.New("the record has no key")
		}
		text = string(o.Message.Key)
	case slotHeader:
		v, ok := o.Message.Header(p.text)
		if !ok {
			return dst, fmt.Errorf("the record has no header %q", p.text)
		}
		text = string(v)
	case slotValue:
		if p.at == inJSON && !json.Valid(o.Message.Value) {
			return dst, errors.New("the record's value is not JSON")
		}
		return append(dst, o.Message.Value...), nil
	case slotPointer:
		raw, ok := p.ptr.find(o.Message.Value)
		if !ok {
			return dst, fmt.Errorf("the record's value has nothing at %s", p.ptr.text)
		}
		if p.at == inJSON {
			return append(dst, raw...), nil
		}
		if text, ok = scalar(raw); !ok || text == "null" && raw[0] == 'n' {
			return dst, fmt.Errorf("the record's value has no text, number or boolean at %s", p.ptr.text)
		}
	}
	return p.escape(dst, text)
}

// escape appends text so that it can't leave its place.
func (p *part) escape(dst []byte, text string) ([]byte, error) {
	switch p.at {
	case inPath:
		if text == "" {
			return dst, fmt.Errorf("%s is empty and stands in the path", p.name())
		}
		return append(dst, url.PathEscape(text)...), nil
	case inQuery, inForm:
		return append(dst, url.QueryEscape(text)...), nil
	case inHeader:
		return append(dst, text...), nil // the whole value is checked once it is rendered
	case inString:
		if !utf8.ValidString(text) {
			return dst, fmt.Errorf("%s is not valid UTF-8", p.name())
		}
		return appendJSONText(dst, text), nil
	case inJSON, inExact:
	}
	return append(dst, text...), nil
}

func (p *part) name() string {
	switch p.slot {
	case slotNumber:
		return "the business number"
	case slotRoute:
		return "the route's name"
	case slotTopic:
		return "the topic"
	case slotKey:
		return "the record's key"
	case slotHeader:
		return fmt.Sprintf("the record's header %q", p.text)
	case slotPointer:
		return "the record's value at " + p.ptr.text
	case slotValue:
		return "the record's value"
	case slotLiteral:
	}
	return "the text"
}

// appendJSONText appends the content of a JSON string, without its quotes. It is written out here so that the bytes
// of an order do not change with a release of encoding/json.
func appendJSONText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// hasDotSegment reports whether a segment of an escaped path is . or .., which servers and proxies resolve away.
func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(segment); err == nil && (plain == "." || plain == "..") {
			return true
		}
	}
	return false
}

// validHeaderValue reports whether a value arrives as it was sent: no control characters, and no space at its ends,
// which the wire format drops.
func validHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == 0x7f {
			return false
		}
	}
	return s == "" || (s[0] != ' ' && s[len(s)-1] != ' ')
}

// validToken reports whether s can be a method or a header's name.
func validToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
