package compensator

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// TestLookupsGoAsARecoveringBreakerLetsThem has room for two at a time: nothing is put off for it.
func TestLookupsGoAsARecoveringBreakerLetsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 10*time.Millisecond))
		w.calls.ramp = 2
		const orders = 60
		for i := range int64(orders) {
			w.add(i+1, order.Unknown)
		}
		run(t, w.scanner(t, "a", nil), 2*time.Second)
		if n := w.calls.most; n != 2 {
			t.Errorf("%d lookups at once, want 2", n)
		}
		if n := w.calls.total(); n != orders {
			t.Errorf("%d lookups in 2 s, want one for each of %d orders", n, orders)
		}
		for i := range int64(orders) {
			if o := w.get(i + 1); o.State != order.Succeeded || o.Lookups != 1 {
				t.Fatalf("order %d is %v after %d lookups", i+1, o.State, o.Lookups)
			}
		}
	})
}
