package order_test

import (
	"strings"
	"testing"

	"spillway/order"
)

func TestSizeCountsEveryByteAndWhatHoldsThem(t *testing.T) {
	t.Parallel()
	empty := (&order.Message{}).Size()
	if empty < 100 || empty > 400 {
		t.Errorf("an empty message takes %d bytes: want about what its fields take", empty)
	}
	if got := (&order.Message{Topic: "orders", Partition: 7, Offset: 1 << 40}).Size(); got != empty {
		t.Errorf("topic and place add %d bytes: want none, they are shared or fields", got-empty)
	}
	if got := (&order.Message{Key: make([]byte, 10), Value: make([]byte, 1<<20)}).Size(); got != empty+10+1<<20 {
		t.Errorf("key and value take %d bytes: want %d", got-empty, 10+1<<20)
	}
	one := (&order.Message{Headers: []order.Header{{Key: "trace", Value: []byte("abc")}}}).Size() - empty
	two := (&order.Message{Headers: []order.Header{{Key: "trace", Value: []byte("abc")}, {Key: "trace", Value: []byte("abc")}}}).Size() - empty
	if one <= len("trace")+len("abc") || two != 2*one {
		t.Errorf("one header takes %d bytes, two take %d: want more than its bytes, and the same each", one, two)
	}
	// Many empty headers must not fit below the ceiling for nothing.
	if got := (&order.Message{Headers: make([]order.Header, 1000)}).Size() - empty; got < 1000*32 {
		t.Errorf("a thousand empty headers take %d bytes: want what the slices take", got)
	}
}

func TestHeaderIsTheNewestOfItsName(t *testing.T) {
	t.Parallel()
	m := order.Message{Headers: []order.Header{
		{Key: "id", Value: []byte("old")},
		{Key: "ID", Value: []byte("other")},
		{Key: "id", Value: []byte("new")},
		{Key: "null"},
		{Key: "empty", Value: []byte{}},
	}}
	for _, c := range []struct {
		key, want   string
		there, null bool
	}{
		{"id", "new", true, false},
		{"ID", "other", true, false},
		{"null", "", true, true},
		{"empty", "", true, false},
		{"Id", "", false, true},
		{"", "", false, true},
	} {
		got, there := m.Header(c.key)
		if there != c.there || string(got) != c.want || (got == nil) != c.null {
			t.Errorf("header %q is %q (null %v), %v: want %q (null %v), %v", c.key, got, got == nil, there, c.want, c.null, c.there)
		}
	}
}

func TestCheckNumberSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"1", "ORD-2026-03-01/77", strings.Repeat("x", order.MaxNumber), "订单-7", " spaces are bytes too ", "..", "\u00a0", "\ufffd",
	} {
		if err := order.CheckNumber(good); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                                     "is empty",
		strings.Repeat("x", order.MaxNumber+1): "has 257 bytes: want 1 to 256",
		strings.Repeat("é", 129):               "has 258 bytes",
		"a\xff":                                "not valid UTF-8",
		"a\x00":                                "control character",
		"a\nb":                                 "control character",
		"a\x7f":                                "control character",
		"a\u0085b":                             "control character",
	} {
		if err := order.CheckNumber(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", bad, err, want)
		}
	}
}

// legalByBytes is CheckNumber once more, from the bytes up: what follows the rules of UTF-8 (RFC 3629) and is no control
// character of ASCII or Latin-1.
func legalByBytes(s string) bool {
	n := len(s)
	if n == 0 || n > 256 {
		return false
	}
	in := func(i int, low, high byte) bool { return i < n && s[i] >= low && s[i] <= high }
	tail := func(i int) bool { return in(i, 0x80, 0xbf) }
	for i := 0; i < n; {
		switch b := s[i]; {
		case b >= 0x20 && b <= 0x7e:
			i++
		case b == 0xc2 && in(i+1, 0xa0, 0xbf), b >= 0xc3 && b <= 0xdf && tail(i+1):
			i += 2
		case b == 0xe0 && in(i+1, 0xa0, 0xbf) && tail(i+2), b == 0xed && in(i+1, 0x80, 0x9f) && tail(i+2),
			b >= 0xe1 && b <= 0xef && b != 0xed && tail(i+1) && tail(i+2):
			i += 3
		case b == 0xf0 && in(i+1, 0x90, 0xbf) && tail(i+2) && tail(i+3), b == 0xf4 && in(i+1, 0x80, 0x8f) && tail(i+2) && tail(i+3),
			b >= 0xf1 && b <= 0xf3 && tail(i+1) && tail(i+2) && tail(i+3):
			i += 4
		default:
			return false
		}
	}
	return true
}

func FuzzCheckNumber(f *testing.F) {
	for _, s := range []string{
		"", "a", "订单", "\x1b", "\u0085", "\u00a0", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\xe0\x80\x80", "é\x7f",
		strings.Repeat("é", 128), strings.Repeat("é", 128) + "x", "\xf0\x9f\x92\xa7",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		err := order.CheckNumber(s)
		if (err == nil) != legalByBytes(s) {
			t.Fatalf("%q: %v", s, err)
		}
		if err == nil {
			return
		}
		for _, r := range err.Error() {
			if r < 0x20 || (r >= 0x7f && r <= 0x9f) {
				t.Fatalf("%q: the error %q is not fit for a terminal", s, err)
			}
		}
	})
}
