package compensator

import (
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

func TestLookupsKeepToTheirRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(8, finding(order.VerdictSucceeded, 10*time.Millisecond))
		next := time.Now()
		w.calls.pace = func(now time.Time) time.Duration { // five a second
			if now.Before(next) {
				return next.Sub(now)
			}
			next = now.Add(200 * time.Millisecond)
			return 0
		}
		for i := range int64(20) {
			w.add(i+1, order.Unknown)
		}
		run(t, w.scanner(t, "a", nil), 3*time.Second)
		if n := w.calls.total(); n < 14 || n > 16 {
			t.Errorf("%d lookups in 3 s at 5 a second", n)
		}
		if n := w.calls.rights.Load(); int(n) != w.calls.total() {
			t.Errorf("%d rights for %d lookups", n, w.calls.total())
		}
	})
}

func TestARightIsGivenBackWhereNoPermitCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, finding(order.VerdictSucceeded, 10*time.Second))
		w.calls.pace = func(time.Time) time.Duration { return 0 }
		for i := range int64(4) {
			w.add(i+1, order.Unknown)
		}
		run(t, w.scanner(t, "a", nil), time.Minute)
		if n := w.calls.rights.Load(); int(n) != w.calls.total() {
			t.Errorf("%d rights for %d lookups", n, w.calls.total())
		}
	})
}
