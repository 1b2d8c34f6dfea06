package replay_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"spillway/order"
	"spillway/replay"
)

func item() replay.Item {
	return replay.Item{
		ID: 41, Route: "pay", Number: "T-1001", Attempts: 2, Reason: order.UpstreamOverloaded,
		SpilledAt: time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC),
		Message: order.Message{
			Topic: "orders.in", Partition: 2, Offset: 77, Time: time.UnixMilli(1796072400123).UTC(),
			Key: []byte("T-1001"), Value: []byte(`{"amount":1250}`),
			Headers: []order.Header{{Key: "k", Value: []byte("a")}, {Key: "k", Value: []byte("b")}},
		},
	}
}

func TestItemIsWrittenAsDocumented(t *testing.T) {
	t.Parallel()
	it := item()
	data, err := it.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"id":41,"route":"pay","number":"T-1001","attempts":2,"reason":"UPSTREAM_OVERLOADED",` +
		`"spilled_at":"2026-11-30T21:00:00Z","topic":"orders.in","partition":2,"offset":77,"time_ms":1796072400123,` +
		`"headers":[{"k":"k","v":"YQ=="},{"k":"k","v":"Yg=="}],"key":"VC0xMDAx","value":"eyJhbW91bnQiOjEyNTB9"}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
}

func TestItemKeepsTheRecordByteByByte(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*replay.Item){
		"plain":              func(*replay.Item) {},
		"null key":           func(it *replay.Item) { it.Message.Key = nil },
		"empty key":          func(it *replay.Item) { it.Message.Key = []byte{} },
		"null value":         func(it *replay.Item) { it.Message.Value = nil },
		"empty value":        func(it *replay.Item) { it.Message.Value = []byte{} },
		"binary value":       func(it *replay.Item) { it.Message.Value = []byte{0, 0xff, 0xfe, '\n', '"'} },
		"no headers":         func(it *replay.Item) { it.Message.Headers = nil },
		"header without key": func(it *replay.Item) { it.Message.Headers = []order.Header{{Key: "", Value: []byte("v")}} },
		"null header value":  func(it *replay.Item) { it.Message.Headers = []order.Header{{Key: "k"}} },
		"header not in UTF-8": func(it *replay.Item) {
			it.Message.Headers = []order.Header{{Key: "\xff\xfe", Value: []byte{}}}
		},
		"markup":          func(it *replay.Item) { it.Number = `<b>&"'` + "\u2028" },
		"no timestamp":    func(it *replay.Item) { it.Message.Time = time.UnixMilli(-1).UTC() },
		"absurd time":     func(it *replay.Item) { it.Message.Time = time.UnixMilli(1 << 60).UTC() },
		"large value":     func(it *replay.Item) { it.Message.Value = bytes.Repeat([]byte{0xaa}, 300_000) },
		"never attempted": func(it *replay.Item) { it.Attempts, it.Reason = 0, order.NoReason },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it := item()
			edit(&it)
			data, err := it.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay.DecodeItem(data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, it) {
				t.Errorf("got  %#v\nwant %#v", got, it)
			}
		})
	}
}

func TestUnreadableItemsAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	whole := item()
	good, err := whole.Encode()
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, fresh string) string {
		out := strings.Replace(string(good), old, fresh, 1)
		if out == string(good) {
			t.Fatalf("%q is not in the item", old)
		}
		return out
	}
	for name, c := range map[string]struct{ data, want string }{
		"empty":             {"", "empty"},
		"blank":             {"  ", "not one JSON object"},
		"null":              {"null", "not a JSON object"},
		"array":             {"[]", "not a JSON object"},
		"number":            {"7", "not a JSON object"},
		"no fields":         {"{}", "no version"},
		"null version":      {`{"v":null}`, "no version"},
		"junk behind":       {`{"v":1}xx`, "not one JSON object"},
		"two items":         {string(good) + string(good), "not one JSON object"},
		"cut":               {string(good[:len(good)-9]), "not one JSON object"},
		"letters":           {strings.Repeat("a", 1<<20), "not one JSON object"},
		"version 99":        {`{"v":99,"number":{"shape":"new"}}`, "version 99"},
		"version as text":   {`{"v":"1"}`, "version"},
		"only a version":    {`{"v":1}`, "no key"},
		"unknown field":     {change(`"id":41`, `"id":41,"extra":1`), "unknown field"},
		"id as text":        {change(`"id":41`, `"id":"41"`), "id"},
		"id zero":           {change(`"id":41`, `"id":0`), "order id 0"},
		"id too large":      {change(`"id":41`, `"id":9223372036854775808`), "id"},
		"no route":          {change(`"route":"pay"`, `"route":""`), "route"},
		"no number":         {change(`"number":"T-1001"`, `"number":""`), "business number"},
		"control in number": {change(`"T-1001"`, `"T\u0000"`), "control"},
		"no topic":          {change(`"topic":"orders.in"`, `"topic":""`), "topic"},
		"negative offset":   {change(`"offset":77`, `"offset":-1`), "offset"},
		"partition too big": {change(`"partition":2`, `"partition":2147483648`), "partition"},
		"value not base64":  {change(`"eyJh`, `"?yJh`), "base64"},
		"value missing":     {change(`,"value":"eyJhbW91bnQiOjEyNTB9"`, ``), "no value"},
		"header no value":   {change(`"k":"k","v":"YQ=="`, `"k":"k"`), "header 0"},
		"not UTF-8":         {change(`pay`, "p\xffy"), "UTF-8"},
		"too large":         {strings.Repeat(" ", replay.MaxItem+1), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := replay.DecodeItem([]byte(c.data))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("the reason has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzDecodedItemIsWrittenAndReadAlike(f *testing.F) {
	whole := item()
	good, err := whole.Encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "null", `{"v":1}xx`, `{"v":1,"key":null,"value":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		it, err := replay.DecodeItem(data)
		if err != nil {
			return
		}
		out, err := it.Encode()
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		again, err := replay.DecodeItem(out)
		if err != nil || !reflect.DeepEqual(again, it) {
			t.Fatalf("got %#v (%v), want %#v", again, err, it)
		}
	})
}

func FuzzItemRoundTrip(f *testing.F) {
	f.Add(int64(1), "pay", "T-1", "orders.in", int64(0), int64(-1), []byte("k"), []byte("v"), "h", []byte(nil), false)
	f.Add(int64(9), "pay", "T-<1>", "t", int64(7), int64(1<<62), []byte{}, []byte{0xff}, "\xff", []byte{}, true)
	f.Fuzz(func(t *testing.T, id int64, route, number, topic string, offset, ms int64, key, value []byte, name string, hv []byte, null bool) {
		it := replay.Item{
			ID: id, Route: route, Number: number, SpilledAt: time.Unix(1796072400, 5).UTC(),
			Message: order.Message{
				Topic: topic, Offset: offset, Time: time.UnixMilli(ms).UTC(), Key: key, Value: value,
				Headers: []order.Header{{Key: name, Value: hv}, {Key: name}},
			},
		}
		if null {
			it.Message.Key, it.Message.Value = nil, nil
		}
		data, err := it.Encode()
		if err != nil {
			return
		}
		got, err := replay.DecodeItem(data)
		if err != nil || !reflect.DeepEqual(got, it) {
			t.Fatalf("got %#v (%v), want %#v", got, err, it)
		}
	})
}
