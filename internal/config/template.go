package config

import (
	"encoding/json"
	"mime"
	"net/url"
	"strings"
)

// Requests are made of templates; package downstream says what they may hold and renders them. The functions here find
// every mistake of a template before anything runs, and return what is wrong, or "".

// templateForm says what placeholders there are.
const templateForm = "{number}, {route}, {topic}, {key}, {header:NAME} or {value:/pointer}"

// bodyForm says what a body may be.
const bodyForm = "{value} alone, or JSON or a form that matches content_type, with {value} and {value:/pointer} in JSON's place " +
	"and \"{number}\", \"{route}\", \"{topic}\", \"{key}\" or \"{header:NAME}\" within its strings"

// placeholder is where one stands in a template, braces included.
type placeholder struct {
	from, to int
	name     string
}

// placeholders finds what a template is to be filled with: a { with a letter behind it begins one, which no JSON has
// outside its strings.
func placeholders(text string) (found []placeholder, why string) {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '{' || text[i+1]|0x20 < 'a' || text[i+1]|0x20 > 'z' {
			continue
		}
		n := strings.IndexByte(text[i:], '}')
		if n < 0 {
			return nil, "holds a placeholder without an end"
		}
		name, argument, has := strings.Cut(text[i+1:i+n], ":")
		switch {
		case !has && (name == "number" || name == "route" || name == "topic" || name == "key" || name == "value"):
		case has && name == "header" && argument != "":
		case has && name == "value" && argument != "" && isPointer(argument):
			name = "value:"
		default:
			return nil, "holds an unknown placeholder"
		}
		found = append(found, placeholder{from: i, to: i + n + 1, name: name})
		i += n
	}
	return found, ""
}

// sample is the template with each placeholder replaced.
func sample(text string, found []placeholder, fill func(p placeholder) string) string {
	var b strings.Builder
	from := 0
	for _, p := range found {
		b.WriteString(text[from:p.from])
		b.WriteString(fill(p))
		from = p.to
	}
	b.WriteString(text[from:])
	return b.String()
}

// plainSample fills a template that is no body.
func plainSample(text string) (filled, why string) {
	found, why := placeholders(text)
	if why != "" {
		return "", why
	}
	for _, p := range found {
		if p.name == "value" {
			return "", "holds {value}, which may stand in a body alone"
		}
	}
	return sample(text, found, func(placeholder) string { return "x" }), ""
}

// pathMistake looks at a path with an optional query.
func pathMistake(text string) string {
	path, query, _ := strings.Cut(text, "?")
	path, why := plainSample(path)
	if why != "" {
		return why
	}
	u, err := url.ParseRequestURI(path)
	switch {
	case err != nil || path[0] != '/' || u.EscapedPath() != path || strings.Contains(path, "#"):
		return "is not a path: other characters than letters, digits and -._~!$&'()*+,;=:@ are written %XX"
	case hasDotSegment(path):
		return "holds a . or .. segment"
	}
	if query, why = plainSample(query); why != "" {
		return why
	}
	return queryMistake(query)
}

func queryMistake(query string) string {
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`#"<>`, c) >= 0 {
			return "holds characters that a query needs written as %XX"
		}
	}
	if _, err := url.ParseQuery(query); err != nil {
		return "holds no proper name=value&name=value"
	}
	return ""
}

// hasDotSegment reports whether servers would resolve part of the path away.
func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(segment); err == nil && (plain == "." || plain == "..") {
			return true
		}
	}
	return false
}

// headerMistake looks at the value of a header.
func headerMistake(text string) string {
	filled, why := plainSample(text)
	switch {
	case why != "":
		return why
	case !isHeaderValue(filled):
		return "holds control characters, or a blank at an end"
	}
	return ""
}

func isHeaderValue(s string) bool {
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// bodyMistake looks at the body of a submit.
func bodyMistake(text, contentType string) string {
	if text == "{value}" {
		return ""
	}
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return "" // reported at content_type
	case media == "application/x-www-form-urlencoded":
		filled, why := plainSample(text)
		if why != "" {
			return why
		}
		return queryMistake(filled)
	case media != "application/json" && !strings.HasSuffix(media, "+json"):
		return "cannot be escaped safely for " + media
	}
	found, why := placeholders(text)
	if why != "" {
		return why
	}
	within := jsonStrings(text)
	filled := sample(text, found, func(p placeholder) string {
		switch {
		case within[p.from] && p.name == "value":
			why = "holds {value} within a string, which stands for JSON"
		case within[p.from]:
			return "x"
		case p.name != "value" && p.name != "value:":
			why = "holds {" + p.name + "} outside a string"
		}
		return "null"
	})
	if why == "" && !json.Valid([]byte(filled)) {
		why = "is not JSON"
	}
	return why
}

// jsonStrings says of each byte of a JSON text whether it is within a string.
func jsonStrings(text string) []bool {
	within := make([]bool, len(text))
	in, escaped := false, false
	for i := range len(text) {
		within[i] = in
		switch {
		case escaped:
			escaped = false
		case in && text[i] == '\\':
			escaped = true
		case text[i] == '"':
			in = !in
		}
	}
	return within
}
