package downstream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"spillway/order"
)

func BenchmarkSubmit(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	h, err := New(Config{URL: s.URL, BearerToken: "token", Submit: Request{Path: "/pay"}, Lookup: Request{Path: "/pay/{number}"}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		o := testOrder("T-1001")
		for pb.Next() {
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			if a := h.Submit(ctx, o); a.Outcome != order.OutcomeSucceeded {
				b.Errorf("%+v", a)
			}
			cancel()
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	for name, body := range map[string]string{"value": "{value}", "template": `{"no":"{number}","amount":{value:/amount}}`} {
		b.Run(name, func(b *testing.B) {
			h, err := New(Config{URL: "http://x", Submit: Request{Path: "/pay", Body: body}, Lookup: Request{Path: "/pay/{number}"}})
			if err != nil {
				b.Fatal(err)
			}
			o := testOrder("T-1001")
			b.ReportAllocs()
			for b.Loop() {
				if _, bad := h.request(&h.submit, o); bad != nil {
					b.Fatal(bad.detail)
				}
			}
		})
	}
}
