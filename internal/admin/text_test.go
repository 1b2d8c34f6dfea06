package admin

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestPrintableEscapesWhatATerminalActsOn(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                          "",
		"T-1 订单 é":                  "T-1 订单 é",
		"\x1b[2J\x1b]0;pwn\x07":     `\x1b[2J\x1b]0;pwn\a`,
		"a\tb\r\nc\x00\x7f":         `a\tb\r\nc\x00\x7f`,
		"\u009b31m":                 `\u009b31m`,
		"\x9b31m\xff":               `\x9b31m\xff`,
		"gnp\u202egpj.exe\u2066":    `gnp\u202egpj.exe\u2066`,
		"zero\u200bwidth\ufeff":     `zero\u200bwidth\ufeff`,
		"line\u2028sep\u00a0nbsp":   `line\u2028sep\u00a0nbsp`,
		"\U000e0041tag":             `\U000e0041tag`,
		"replaced \ufffd":           `replaced �`,
		`{"a":"\u001b"} C:\new`:     `{"a":"\u001b"} C:\new`,
		"<img src=x onerror=1>{{}}": "<img src=x onerror=1>{{}}",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPreviewCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		limit int
		want  string
		cut   bool
	}{
		{"", 4, "", false},
		{"abcd", 4, "abcd", false},
		{"abcde", 4, "abcd", true},
		{"abé", 3, "ab", true},
		{"ab€x", 4, "ab", true},
		{"ab€x", 5, "ab€", true},
		{"\x80\x80\x80\x80\x80\x80\x80", 5, "\x80", true},
	} {
		got, cut := preview([]byte(c.in), c.limit)
		if got != c.want || cut != c.cut {
			t.Errorf("preview(%q, %d) = %q, %v, want %q, %v", c.in, c.limit, got, cut, c.want, c.cut)
		}
	}
}

func TestAgeShowsTwoUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{1500 * time.Millisecond, "1s"},
		{61 * time.Second, "1m1s"},
		{2*time.Hour + 5*time.Minute, "2h5m"},
		{100 * time.Hour, "4d4h"},
	} {
		if got := Age(c.d); got != c.want {
			t.Errorf("Age(%s) = %s, want %s", c.d, got, c.want)
		}
	}
}

// checkSafe says whether a terminal that is shown text would do anything but show it.
func checkSafe(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%s holds %U at byte %d: …%q", what, r, i, text[max(0, i-40):min(len(text), i+20)])
			return
		}
	}
	if !utf8.ValidString(text) {
		t.Errorf("%s is not valid UTF-8", what)
	}
}

func FuzzTextReachesTheTerminalHarmless(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[2J\u009b\u202e\xff\x00\U000e0041\ufffd")
	f.Fuzz(func(t *testing.T, text string) {
		shown := Printable(text)
		checkSafe(t, "Printable", shown)
		if strings.Contains(shown, "\n") {
			t.Errorf("%q holds a line break", shown)
		}
		checkSafe(t, "a cell", cell(text, 20))
		part, cut := preview([]byte(text), 16)
		if !strings.HasPrefix(text, part) || cut != (len(text) > 16) || (cut && len(part) < 12) {
			t.Errorf("preview of %q is %q, cut %v", text, part, cut)
		}

		var out bytes.Buffer
		if err := WriteJSON(&out, map[string]string{"text": text}); err != nil {
			t.Fatal(err)
		}
		checkSafe(t, "JSON", out.String())
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		plain, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]string
		if err := json.Unmarshal(plain, &want); err != nil {
			t.Fatal(err)
		}
		if back["text"] != want["text"] {
			t.Errorf("JSON of %q reads as %q", want["text"], back["text"])
		}
	})
}
