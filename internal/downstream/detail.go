package downstream

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"spillway/order"
)

// redactor takes secrets out of text that others wrote: services echo the headers they were sent.
type redactor struct {
	secrets     []string // every form, lower case, longest first
	credentials *regexp.Regexp
}

const redacted = "[redacted]"

// minSecret is the length in bytes below which a header's value is too common to be looked for in text.
const minSecret = 4

func (c Config) redactor(proxy *url.URL) redactor {
	r := redactor{credentials: regexp.MustCompile(`(?i)\b(bearer|basic|digest)(\s+|%20|\+)[^\s"'<>,;&\\]{8,}`)}
	seen := map[string]bool{}
	add := func(secret string) {
		for _, form := range forms(secret) {
			form = lowerASCII(form)
			if len(form) >= minSecret && !seen[form] {
				seen[form] = true
				r.secrets = append(r.secrets, form)
			}
		}
	}
	add(c.BearerToken)
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		add(password)
		add(base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password)))
	}
	for _, hs := range [][]Header{c.Headers, c.Submit.Headers, c.Lookup.Headers} {
		for _, h := range hs {
			if h.Secret || secretName(h.Name) {
				add(h.Value)
				if _, rest, ok := strings.Cut(h.Value, " "); ok {
					add(rest) // without its scheme
				}
			}
		}
	}
	sort.Slice(r.secrets, func(i, j int) bool { return len(r.secrets[i]) > len(r.secrets[j]) })
	return r
}

func secretName(name string) bool {
	name = strings.ToLower(name)
	for _, mark := range []string{"authorization", "cookie", "key", "token", "secret", "password", "signature"} {
		if strings.Contains(name, mark) {
			return true
		}
	}
	return false
}

// forms lists how a secret may be echoed: as it is, in JSON, in a URL, in base64.
func forms(secret string) []string {
	out := []string{
		secret, url.PathEscape(secret), url.QueryEscape(secret), string(appendJSONText(nil, secret)),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
	}
	if quoted, err := json.Marshal(secret); err == nil {
		out = append(out, string(quoted[1:len(quoted)-1]))
	}
	return out
}

// clean takes out what is secret, in whatever letters' case.
func (r *redactor) clean(s string) string {
	for _, secret := range r.secrets {
		s = replaceFold(s, secret)
	}
	return r.credentials.ReplaceAllString(s, "$1 "+redacted)
}

// replaceFold puts redacted in place of each occurrence of the lower-case secret. Only ASCII letters fold, so that
// lower-casing keeps every byte's place.
func replaceFold(s, secret string) string {
	low := lowerASCII(s)
	i := strings.Index(low, secret)
	if i < 0 {
		return s
	}
	var b strings.Builder
	for ; i >= 0; i = strings.Index(low, secret) {
		b.WriteString(s[:i])
		b.WriteString(redacted)
		s, low = s[i+len(secret):], low[i+len(secret):]
	}
	b.WriteString(s)
	return b.String()
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// maxRequestID bounds what is kept of a service's name for a request, in bytes.
const maxRequestID = 128

// requestID is a service's name for a request as it may be shown: nothing secret, printable, cut to maxRequestID.
func (r *redactor) requestID(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > quoteWindow {
		s = s[:quoteWindow]
	}
	s = printable(r.clean(s))
	if len(s) > maxRequestID {
		s = strings.ToValidUTF8(s[:maxRequestID], "")
	}
	return s
}

// quoteWindow bounds how much of an answer is cleaned for its detail, in bytes. It is well above the largest secret
// beside a whole detail, so that a secret is not split by the cut.
const quoteWindow = 16 << 10

// statusLine is a status as people know it. The server's own words for it are not used.
func statusLine(status int) string {
	if name := http.StatusText(status); name != "" {
		return strconv.Itoa(status) + " " + name
	}
	return strconv.Itoa(status)
}

// answer is the detail of an answer that was read to its end: its status, and an excerpt of what the service said.
func (r *redactor) answer(status int, body []byte) string {
	text := statusLine(status)
	// An answer about credentials is the likeliest to echo them in a form that nobody thought of.
	if status == http.StatusUnauthorized || status == http.StatusProxyAuthRequired || len(body) == 0 || len(body) > quoteWindow {
		return text
	}
	if said := printable(r.clean(string(body))); said != "" {
		text += ": " + said
	}
	return cut(text)
}

// failure is the detail of a call without a complete answer.
func (r *redactor) failure(what string, err error) string {
	if err != nil {
		what += ": " + printable(r.clean(err.Error()))
	}
	return cut(what)
}

// printable makes text safe to show: one line, nothing that moves a cursor or turns the direction of writing.
func printable(s string) string {
	var b strings.Builder
	space := false
	for _, c := range s {
		switch {
		case unicode.IsSpace(c):
			space = b.Len() > 0
			continue
		case !unicode.IsPrint(c) || c == utf8.RuneError:
			c = '?'
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(c)
		if b.Len() > order.MaxDetail {
			break
		}
	}
	return b.String()
}

// cut shortens text to a detail's bound, between two characters.
func cut(s string) string {
	if len(s) <= order.MaxDetail {
		return s
	}
	n := order.MaxDetail - len("...")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}
