package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable makes text that others wrote safe to show on one line of a terminal: what is not a printable character or
// a blank becomes an escape as in Go and C (\n, \x1b, \u202e), a byte that is not UTF-8 becomes \xNN. A backslash of
// the text itself stays single, so that JSON stays readable; who needs the exact bytes asks for those.
func Printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unprintable(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// unprintable reports what may not reach a terminal as it is. U+FFFD stands for broken bytes too, and is looked at again.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// cell is text for a column: printable, never empty, and cut where it is longer than limit characters (0: never).
func cell(s string, limit int) string {
	if s == "" {
		return "-"
	}
	cut := false
	if limit > 0 && utf8.RuneCountInString(s) > limit {
		s, cut = string([]rune(s)[:limit-1]), true
	}
	s = Printable(s)
	if cut {
		s += "…"
	}
	return s
}

// maxPreview bounds what is shown of a record's value, in bytes; maxHeader bounds each header, maxHeaders their number.
const (
	maxPreview = 2048
	maxHeader  = 256
	maxHeaders = 50
)

// preview is the beginning of some bytes, cut between two characters, and whether anything is missing.
func preview(b []byte, limit int) (text string, cut bool) {
	if len(b) <= limit {
		return string(b), false
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(b[end]) {
		end--
	}
	return string(b[:end]), true
}

// Age writes a duration for people: its two largest units, whole seconds at least. Less than nothing, which two clocks
// that differ can show, is nothing.
func Age(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
}

// when writes a moment, and how long ago it was or until it comes.
func when(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	text := at.UTC().Format(time.RFC3339)
	if at.After(now) {
		return text + " (in " + Age(at.Sub(now)) + ")"
	}
	return text + " (" + Age(now.Sub(at)) + " ago)"
}

// until writes how far off a moment is: "-" for none, 0s for one that is past.
func until(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return Age(at.Sub(now))
}

// WriteJSON writes v as one line of JSON without a character that a terminal would act on.
func WriteJSON(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	line := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	// encoding/json escapes what ASCII has below the blank. The rest that is not printable stands within strings alone.
	safe := make([]byte, 0, len(line)+1)
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case unicode.IsPrint(r):
			safe = append(safe, line[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
		line = line[n:]
	}
	_, err := w.Write(append(safe, '\n'))
	return err
}

// table collects rows and writes them in columns.
type table struct{ tw *tabwriter.Writer }

func newTable(w io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(heads...)
	return t
}

// row adds a row. What others wrote went through cell before.
func (t table) row(cells ...string) {
	_, _ = io.WriteString(t.tw, strings.Join(cells, "\t")+"\n") // flush says what went wrong
}

func (t table) flush() error { return t.tw.Flush() }

// sheet writes names and values below each other, and remembers the first error.
type sheet struct {
	w   io.Writer
	err error
}

func (s *sheet) line(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format+"\n", args...)
	}
}

// field writes a name and a value, unless the value is empty.
func (s *sheet) field(name, value string) {
	if value != "" {
		s.line("  %-13s %s", name, value)
	}
}
