package config

import (
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// URL is an address that may hold a password. Every way of printing it shows scheme, host, port and path, and *** for the
// user information and for the values of parameters; only [URL.Reveal] gives all of it. The zero value is the empty address.
type URL struct {
	text *string // a pointer for the reason given at Secret
}

// NewURL hides what is secret in an address, well-formed or not.
func NewURL(text string) URL {
	if text == "" {
		return URL{}
	}
	return URL{text: &text}
}

// Reveal returns the whole address. Do not print it.
func (u URL) Reveal() string {
	if u.text == nil {
		return ""
	}
	return *u.text
}

// Empty reports whether there is no address.
func (u URL) Empty() bool { return u.Reveal() == "" }

// Equal reports whether two addresses are the same text.
func (u URL) Equal(other URL) bool { return u.Reveal() == other.Reveal() }

func (u URL) String() string { return redactURL(u.Reveal()) }

// Format prints the redacted address for every verb.
func (u URL) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, u.String()) // a fmt.State keeps no error
}

// MarshalText makes the redacted address for encoding/json and everything else that knows texts.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalYAML makes the redacted address.
func (u URL) MarshalYAML() (any, error) { return u.String(), nil }

// LogValue makes the redacted address for logs.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// redactURL works on text, not on a parsed address, because it is most needed where the address cannot be parsed. What
// might be a password is taken for one: everything up to the last @, whatever lies in it, and, without an @, everything
// that does not look like hosts and ports.
func redactURL(text string) string {
	if text == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || !isScheme(scheme) {
		return hidden
	}
	user := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, rest = hidden+"@", rest[at+1:]
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	hosts, tail := rest[:end], rest[end:]
	if user == "" && !isHosts(hosts) {
		return scheme + "://" + hidden
	}
	path, query, hasQuery := strings.Cut(tail, "?")
	path, _, hasFragment := strings.Cut(path, "#")
	switch {
	case hasQuery:
		path += "?" + redactQuery(query)
	case hasFragment:
		path += "#" + hidden
	}
	return scheme + "://" + user + hosts + path
}

// redactQuery keeps the names of parameters and the values of those that are known to be harmless.
func redactQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			parts[i] = hidden
		case name != "sslmode" && name != "search_path", strings.ContainsAny(value, "#?"):
			parts[i] = name + "=" + hidden
		}
	}
	return strings.Join(parts, "&")
}

func isScheme(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789+.-") == ""
}

func isHosts(s string) bool {
	match, err := regexp.MatchString(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(,([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)*$`, s)
	return err == nil && match
}

// parseURL checks an address of one of the schemes. Its words hold nothing of the address: url.Error would quote it.
func parseURL(text string, schemes []string) (u URL, why string) {
	parsed, err := url.Parse(text)
	if err != nil {
		return URL{}, "is not a URL"
	}
	for _, s := range schemes {
		if parsed.Scheme != s {
			continue
		}
		if why := hostMistake(parsed); why != "" {
			return URL{}, why
		}
		if port := parsed.Port(); port != "" && !isPort(port, 1) {
			return URL{}, "has an impossible port"
		}
		return NewURL(text), ""
	}
	return URL{}, "has the wrong scheme"
}

// hostMistake looks at what follows the scheme, by the rules of the one who will use it.
func hostMistake(u *url.URL) string {
	switch u.Scheme {
	case "postgres", "postgresql": // the host may be a parameter, and the default is the local socket
		modes := []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
		if !slices.Contains(modes, u.Query().Get("sslmode")) {
			return "has an sslmode other than " + strings.Join(modes[1:], ", ")
		}
		return ""
	case "redis", "rediss":
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			return "holds a query or a fragment"
		}
		if db := strings.Trim(u.Path, "/"); db != "" && (!wholeNumber(db) || len(db) > 5) {
			return "names no database by its number"
		}
	}
	if u.Opaque != "" || u.Hostname() == "" {
		return "names no host"
	}
	return ""
}
