package config

import (
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strings"
)

// checkDownstream looks at what requests are made of.
func (l *loader) checkDownstream(path string, d *Downstream) {
	address := join(path, "url")
	u, err := url.Parse(d.URL.Reveal())
	secure := err == nil && u.Scheme == "https"
	if err == nil {
		l.rule(u.User == nil, address, "holds a user", "an address without one; use headers or bearer_token")
		l.rule(u.RawQuery == "" && u.Fragment == "" && !u.ForceQuery, address, "holds a query or a fragment",
			"scheme, host, port and path alone")
	}
	for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
		p := join(path, "tls."+name)
		l.rule(secure || !l.given(p), p, "has no effect with this url", "an https url, or no such key", address)
	}
	l.rule(secure || !d.TLS.Insecure, join(path, "tls.insecure"), "has no effect with this url", "an https url, or no such key", address)
	l.keyPair(join(path, "tls"), d.TLS.CertFile, d.TLS.KeyFile)
	l.rule(d.BearerToken.Empty() || d.BearerTokenFile == "", join(path, "bearer_token_file"), "is given beside bearer_token",
		"one of the two", join(path, "bearer_token"))
	l.rule(isToken(d.BearerToken.Reveal()), join(path, "bearer_token"), "holds blanks or control characters", "a token as HTTP allows it")

	bearer := !d.BearerToken.Empty() || d.BearerTokenFile != ""
	l.checkHeaders(join(path, "headers"), d.Headers, bearer)
	s, p := &d.Submit, join(path, "submit")
	l.checkHeaders(join(p, "headers"), s.Headers, bearer)
	l.checkPath(join(p, "path"), s.Path, false)
	_, _, err = mime.ParseMediaType(s.ContentType)
	l.rule(err == nil, join(p, "content_type"), "is not a media type", "a media type such as application/json")
	for i := range s.Rules {
		r := &s.Rules[i]
		l.checkRule(fmt.Sprintf("%s.rules[%d]", p, i), len(r.Status), r.Pointer, r.Equals)
	}
	p = join(path, "lookup")
	l.checkHeaders(join(p, "headers"), d.Lookup.Headers, bearer)
	l.checkPath(join(p, "path"), d.Lookup.Path, true)
	for i := range d.Lookup.Rules {
		r := &d.Lookup.Rules[i]
		rule := fmt.Sprintf("%s.rules[%d]", p, i)
		l.checkRule(rule, len(r.Status), r.Pointer, r.Equals)
		l.rule(d.Lookup.Method != "HEAD" || r.Pointer == "", join(rule, "pointer"), "finds nothing in the answer to a HEAD", "method: GET",
			join(p, "method"))
	}
}

// checkPath looks at the path of a request. Braces that are no placeholder would be sent as they are, which nobody means.
func (l *loader) checkPath(path, text string, numbered bool) {
	if text == "" {
		return // reported as missing
	}
	u, err := url.Parse(strings.ReplaceAll(text, "{number}", "1"))
	l.rule(err == nil && text[0] == '/' && !strings.HasPrefix(text, "//") && u.Fragment == "" && isToken(text), path, "is not a path",
		"a path that begins with one /, with a query if need be, blanks escaped")
	l.rule(!strings.ContainsAny(strings.ReplaceAll(text, "{number}", ""), "{}"), path, "holds an unknown placeholder", "{number} alone")
	l.rule(!numbered || strings.Contains(text, "{number}"), path, "does not hold {number}", "a path that names the order, such as /orders/{number}")
}

func (l *loader) checkRule(path string, statuses int, pointer string, equals []string) {
	p, e := join(path, "pointer"), join(path, "equals")
	l.rule(isPointer(pointer), p, "is not a JSON pointer", "a JSON pointer such as /status")
	l.rule((pointer == "") == (len(equals) == 0), path, "has only one of pointer and equals", "both or neither", p, e)
	l.rule(statuses > 0 || pointer != "" || len(equals) > 0, path, "matches every answer", "status, or pointer and equals",
		p, e, join(path, "status"))
}

// checkHeaders looks at headers of requests: what may be sent, and what is ours to send.
func (l *loader) checkHeaders(path string, headers map[string]Secret, bearer bool) {
	seen := map[string]string{}
	for _, name := range sortedKeys(headers) {
		p, lower := join(path, show(name)), strings.ToLower(name)
		l.rule(isHeaderName(name), p, "is not a header's name", "letters, digits and -")
		l.rule(!strings.ContainsFunc(headers[name].Reveal(), isControl), p, "holds control characters", "a value as HTTP allows it")
		l.rule(!isReserved(lower), p, "is set by Spillway", "another header")
		l.rule(!bearer || lower != "authorization", p, "is given beside bearer_token", "one of the two")
		if other, ok := seen[lower]; ok {
			l.rule(false, p, "is the header "+show(other)+" once more", "each header once, whatever its letters' case")
		}
		seen[lower] = name
	}
}

// isReserved reports whether a header, in lower case, is made by Spillway or by HTTP itself.
func isReserved(name string) bool {
	switch name {
	case "idempotency-key", "content-type", "content-length", "transfer-encoding", "connection", "host", "trailer", "te", "upgrade", "expect":
		return true
	}
	return false
}

func isHeaderName(s string) bool {
	match, err := regexp.MatchString("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", s)
	return err == nil && match
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether a text has no blanks and no control characters.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
