package postgres

import (
	"bytes"
	"errors"
	"testing"

	"spillway/order"
)

func TestHeadersKeepOrderRepeatsAndNulls(t *testing.T) {
	t.Parallel()
	for _, hs := range [][]order.Header{
		nil,
		{{Key: "k", Value: []byte("a")}, {Key: "k", Value: []byte("b")}, {Key: "", Value: nil}, {Key: "e", Value: []byte{}}},
		{{Key: "binary \xff\x00", Value: bytes.Repeat([]byte{0xfe}, 70_000)}},
	} {
		got, err := decodeHeaders(encodeHeaders(hs))
		if err != nil {
			t.Fatal(err)
		}
		sameHeaders(t, got, hs)
	}
}

func sameHeaders(t *testing.T, got, want []order.Header) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d headers, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Key != want[i].Key || !bytes.Equal(got[i].Value, want[i].Value) || (got[i].Value == nil) != (want[i].Value == nil) {
			t.Errorf("header %d: %#v, want %#v", i, got[i], want[i])
		}
	}
}

func TestDamagedHeadersAreAnError(t *testing.T) {
	t.Parallel()
	whole := encodeHeaders([]order.Header{{Key: "k", Value: []byte("value")}, {Key: "k2"}})
	for cut := range whole {
		if _, err := decodeHeaders(whole[:cut]); !errors.Is(err, errHeaders) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for name, b := range map[string][]byte{
		"more than there is": append(bytes.Clone(whole), 0),
		"a count too large":  {0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0},
		"a length too large": {1, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"no headers":         {0},
	} {
		if _, err := decodeHeaders(b); !errors.Is(err, errHeaders) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add([]byte{0})
	f.Add(encodeHeaders([]order.Header{{Key: "k", Value: []byte("a")}, {Key: "k", Value: nil}, {Key: "", Value: []byte{}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		hs, err := decodeHeaders(b)
		if err != nil {
			return
		}
		again, err := decodeHeaders(encodeHeaders(hs))
		if err != nil {
			t.Fatal(err)
		}
		sameHeaders(t, again, hs)
	})
}
