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
		l.rule(!hasDotSegment(u.EscapedPath()), address, "holds a . or .. segment", "a path without them")
	}
	l.checkInstances(path, d)
	for _, name := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
		p := join(path, "tls."+name)
		l.rule(secure || !l.given(p), p, "has no effect with this url", "an https url, or no such key", address)
	}
	l.rule(secure || !d.TLS.Insecure, join(path, "tls.insecure"), "has no effect with this url", "an https url, or no such key", address)
	l.keyPair(join(path, "tls"), d.TLS.CertFile, d.TLS.KeyFile)
	l.rule(d.BearerToken.Empty() || d.BearerTokenFile == "", join(path, "bearer_token_file"), "is given beside bearer_token",
		"one of the two", join(path, "bearer_token"))
	l.rule(isToken(d.BearerToken.Reveal()), join(path, "bearer_token"), "holds blanks or control characters", "a token as HTTP allows it")
	l.checkSubmit(path, d)
	l.checkLookup(path, d)
}

// maxInstances is how many addresses a service may have, url included.
const maxInstances = 16

// checkInstances looks at the further addresses of a service: they may differ from the first in their hosts alone.
func (l *loader) checkInstances(path string, d *Downstream) {
	address, list := join(path, "url"), join(path, "urls")
	l.rule(len(d.URLs) < maxInstances, list, fmt.Sprintf("holds %d addresses", len(d.URLs)), fmt.Sprintf("at most %d", maxInstances-1))
	first, err := url.Parse(d.URL.Reveal())
	if err != nil {
		return // reported at url
	}
	seen := map[string]string{hostKey(first): address}
	for i := range d.URLs {
		u, err := url.Parse(d.URLs[i].Reveal())
		if err != nil {
			continue // reported when it was read
		}
		p := fmt.Sprintf("%s[%d]", list, i)
		l.rule(u.User == nil, p, "holds a user", "an address without one; use headers or bearer_token")
		l.rule(u.RawQuery == "" && u.Fragment == "" && !u.ForceQuery, p, "holds a query or a fragment",
			"scheme, host, port and path alone")
		l.rule(u.Scheme == first.Scheme, p, "has another scheme than url "+l.stands(address), "the scheme of url", address)
		l.rule(strings.TrimRight(u.EscapedPath(), "/") == strings.TrimRight(first.EscapedPath(), "/"), p,
			"has another path than url "+l.stands(address), "the path of url", address)
		other, ok := seen[hostKey(u)]
		l.rule(!ok, p, "is the instance of "+other+" too", "each instance once", address)
		seen[hostKey(u)] = p
	}
}

// hostKey is a host with its port, written the one way.
func hostKey(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}

func (l *loader) checkSubmit(path string, d *Downstream) {
	s, p := &d.Submit, join(path, "submit")
	l.checkPath(join(p, "path"), s.Path)
	l.checkHeaders(path, p, d, s.Headers)
	_, _, err := mime.ParseMediaType(s.ContentType)
	l.rule(err == nil && isHeaderValue(s.ContentType), join(p, "content_type"), "is not a media type", "a media type such as application/json")
	why := bodyMistake(s.Body, s.ContentType)
	l.rule(why == "", join(p, "body"), why, bodyForm, join(p, "content_type"))
	for i := range s.Rules {
		r := &s.Rules[i]
		l.checkRule(fmt.Sprintf("%s.rules[%d]", p, i), len(r.Status), r.Pointer, r.Equals)
	}
}

func (l *loader) checkLookup(path string, d *Downstream) {
	k, p := &d.Lookup, join(path, "lookup")
	l.checkPath(join(p, "path"), k.Path)
	l.checkHeaders(path, p, d, k.Headers)
	numbered := strings.Contains(k.Path, "{number}")
	for _, headers := range []map[string]Secret{d.Headers, k.Headers} {
		for _, value := range headers {
			numbered = numbered || strings.Contains(value.Reveal(), "{number}")
		}
	}
	l.rule(numbered || k.Path == "", join(p, "path"), "does not hold {number}, nor does a header",
		"a path that names the order, such as /orders/{number}")
	for i := range k.Rules {
		r := &k.Rules[i]
		l.checkRule(fmt.Sprintf("%s.rules[%d]", p, i), len(r.Status), r.Pointer, r.Equals)
	}
}

// checkPath looks at the path of a request.
func (l *loader) checkPath(path, text string) {
	if text == "" {
		return // reported as missing
	}
	why := pathMistake(text)
	l.rule(why == "", path, why, "a path that begins with /, a query if need be, with "+templateForm)
}

func (l *loader) checkRule(path string, statuses int, pointer string, equals []string) {
	p, e := join(path, "pointer"), join(path, "equals")
	l.rule(isPointer(pointer), p, "is not a JSON pointer", "a JSON pointer such as /status")
	l.rule((pointer == "") == (len(equals) == 0), path, "has only one of pointer and equals", "both or neither", p, e)
	l.rule(statuses > 0 || pointer != "" || len(equals) > 0, path, "matches every answer", "status, or pointer and equals",
		p, e, join(path, "status"))
}

// checkHeaders looks at the headers of a request, those of the downstream (at path) and its own (below p): what may be
// sent, and what is ours to send. Those of the downstream are reported once, with the submit.
func (l *loader) checkHeaders(path, p string, d *Downstream, own map[string]Secret) {
	seen := map[string]string{}
	bearer := join(path, "bearer_token")
	if !d.BearerToken.Empty() || d.BearerTokenFile != "" {
		seen["authorization"] = bearer
	}
	for _, set := range []struct {
		path    string
		headers map[string]Secret
	}{{join(path, "headers"), d.Headers}, {join(p, "headers"), own}} {
		for _, name := range sortedKeys(set.headers) {
			h, lower := join(set.path, show(name)), strings.ToLower(name)
			l.rule(isHeaderName(name), h, "is not a header's name", "letters, digits and -")
			l.rule(!isReserved(lower), h, "is set by Spillway or by HTTP itself", "another header")
			why := headerMistake(set.headers[name].Reveal())
			l.rule(why == "", h, why, "a value as HTTP allows it, with "+templateForm)
			other, ok := seen[lower]
			l.rule(!ok, h, "is sent already because of "+other, "each header once, whatever its letters' case", other)
			seen[lower] = h
		}
	}
}

// isReserved reports whether a header, in lower case, is made by Spillway or by HTTP itself.
func isReserved(name string) bool {
	switch name {
	case "idempotency-key", "x-idempotency-key", "content-type", "content-length", "transfer-encoding", "connection", "keep-alive",
		"host", "trailer", "te", "upgrade", "expect", "proxy-connection", "accept-encoding":
		return true
	}
	return false
}

func isHeaderName(s string) bool {
	match, err := regexp.MatchString("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", s)
	return err == nil && match
}

// isToken reports whether a text has no blanks and no control characters.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
