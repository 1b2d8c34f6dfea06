package consumer

import (
	"testing"

	"spillway/order"
)

func TestNumberIsReadOrTheReasonNamed(t *testing.T) {
	t.Parallel()
	pointer := Number{From: FromPointer, Pointer: "/order_no"}
	value := func(s string) order.Message { return order.Message{Key: []byte("k"), Value: []byte(s)} }
	for _, c := range []struct {
		name   string
		from   Number
		m      order.Message
		number string
		why    order.Reason
	}{
		{"pointer", pointer, value(`{"order_no":"T-1"}`), "T-1", order.NoReason},
		{"number kept as written", pointer, value(`{"order_no":12345678901234567890}`), "12345678901234567890", order.NoReason},
		{"escaped pointer", Number{From: FromPointer, Pointer: "/a~1b/0/~0c"}, value(`{"a/b":[{"~c":"x"}]}`), "x", order.NoReason},
		{"null value", pointer, order.Message{Key: []byte("k")}, "", order.NullValue},
		{"empty value", pointer, value(""), "", order.EmptyValue},
		{"not JSON", pointer, value("nope"), "", order.Undecodable},
		{"junk after JSON", pointer, value(`{"order_no":"T-1"}}`), "", order.Undecodable},
		{"second document", pointer, value(`{"order_no":"T-1"} {}`), "", order.Undecodable},
		{"not UTF-8", pointer, value("{\"order_no\":\"\xff\"}"), "", order.Undecodable},
		{"nothing there", pointer, value(`{"other":1}`), "", order.NoNumber},
		{"an object there", pointer, value(`{"order_no":{}}`), "", order.NoNumber},
		{"null there", pointer, value(`{"order_no":null}`), "", order.NoNumber},
		{"control character", pointer, value(`{"order_no":"a\nb"}`), "", order.NoNumber},
		{"key", Number{From: FromKey}, value("x"), "k", order.NoReason},
		{"null key", Number{From: FromKey}, order.Message{Value: []byte("x")}, "", order.NoNumber},
		{"empty key", Number{From: FromKey}, order.Message{Key: []byte{}, Value: []byte("x")}, "", order.NoNumber},
		{"newest header", Number{From: FromHeader, Header: "n"}, order.Message{
			Value:   []byte("x"),
			Headers: []order.Header{{Key: "n", Value: []byte("1")}, {Key: "n", Value: []byte("2")}},
		}, "2", order.NoReason},
		{"no header", Number{From: FromHeader, Header: "n"}, value("x"), "", order.NoNumber},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			number, why, detail := c.from.Of(&c.m)
			if number != c.number || why != c.why {
				t.Fatalf("got %q, %s (%s); want %q, %s", number, why, detail, c.number, c.why)
			}
		})
	}
}
