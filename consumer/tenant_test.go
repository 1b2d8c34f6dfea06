package consumer

import (
	"strings"
	"testing"

	"spillway/order"
)

func TestATenantIsFoundWhereTheRuleSays(t *testing.T) {
	t.Parallel()
	header := Tenant{From: TenantFromHeader, Header: "shop"}
	value := Tenant{From: TenantFromPointer, Pointer: "/shop/id"}
	m := func(value string, headers ...order.Header) *order.Message {
		return &order.Message{Value: []byte(value), Headers: headers}
	}
	for _, c := range []struct {
		name string
		rule Tenant
		m    *order.Message
		want string
	}{
		{"no rule", Tenant{}, m(`{"shop":{"id":"a"}}`, order.Header{Key: "shop", Value: []byte("a")}), ""},
		{"header", header, m("x", order.Header{Key: "shop", Value: []byte("a")}), "a"},
		{"newest header", header, m("x", order.Header{Key: "shop", Value: []byte("a")}, order.Header{Key: "shop", Value: []byte("b")}), "b"},
		{"no header", header, m("x"), ""},
		{"null header", header, m("x", order.Header{Key: "shop"}), ""},
		{"any bytes", header, m("x", order.Header{Key: "shop", Value: []byte("\xff\x00")}), "\xff\x00"},
		{"too long", header, m("x", order.Header{Key: "shop", Value: []byte(strings.Repeat("s", 5000))}), strings.Repeat("s", MaxTenant)},
		{"member", value, m(`{"shop":{"id":"a"}}`), "a"},
		{"number", value, m(`{"shop":{"id":17}}`), "17"},
		{"no member", value, m(`{"shop":{}}`), ""},
		{"an object", value, m(`{"shop":{"id":{}}}`), ""},
		{"no JSON", value, m(`{"shop`), ""},
		{"no value", value, &order.Message{}, ""},
	} {
		if got := c.rule.Of(c.m); got != c.want {
			t.Errorf("%s: tenant %q, want %q", c.name, got, c.want)
		}
	}
}
