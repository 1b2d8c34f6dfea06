package replay_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"spillway/order"
)

// everyNth lets one through each d.
func everyNth(d time.Duration) func(now time.Time) time.Duration {
	var (
		mu   sync.Mutex
		next time.Time
	)
	return func(now time.Time) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if now.Before(next) {
			return next.Sub(now)
		}
		next = now.Add(d)
		return 0
	}
}

func TestReplayKeepsToTheRouteRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.pace = everyNth(100 * time.Millisecond)
		e := w.engine()
		w.spill(e, 100)
		w.run(e)
		time.Sleep(5 * time.Second)
		if n := len(w.service.seen()); n < 45 || n > 51 {
			t.Errorf("%d calls in 5 s at 10 a second", n)
		}
		time.Sleep(6 * time.Second)
		w.wantRows(100, order.Succeeded, order.NoPhase)
		// The look at the empty queue gives its right back.
		if n := w.service.rights.Load(); n < 100 || n > 101 {
			t.Errorf("%d rights for 100 calls", n)
		}
	})
}

func TestARightIsGivenBackWithThePermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service = newService(t, 2)
		w.service.delay = time.Second
		e := w.engine()
		w.spill(e, 10)
		stop := w.run(e)
		time.Sleep(20 * time.Second)
		stop()
		w.wantRows(10, order.Succeeded, order.NoPhase)
		if n := w.service.rights.Load(); n != 10 {
			t.Errorf("%d rights for 10 calls", n)
		}
	})
}

func TestATenantAtItsRateDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		// Of ten orders nine are the flood's; it may send one a second.
		w.cfg.Tenant = func(m *order.Message) string {
			if m.Offset%10 == 0 {
				return "calm"
			}
			return "flood"
		}
		flood := everyNth(time.Second)
		w.service.paceTenant = func(now time.Time, tenant string) time.Duration {
			if tenant == "flood" {
				return flood(now)
			}
			return 0
		}
		e := w.engine()
		w.spill(e, 200)
		w.run(e)
		time.Sleep(10 * time.Second)
		calm, rest := 0, 0
		for id := range int64(200) {
			o := w.store.get(id + 1)
			switch {
			case o.State != order.Succeeded:
			case o.Message.Offset%10 == 0:
				calm++
			default:
				rest++
			}
		}
		if calm != 20 || rest < 4 || rest > 11 {
			t.Errorf("%d of 20 calm ones and %d of the flood after 10 s", calm, rest)
		}
		time.Sleep(10 * time.Minute)
		w.wantRows(200, order.Succeeded, order.NoPhase)
		w.wantEmpty()
		if o := w.store.get(2); o.Attempts != 2 {
			t.Errorf("being put off counted as an attempt: %d", o.Attempts)
		}
		if n := w.service.rights.Load(); n < 200 || n > 201 {
			t.Errorf("%d rights for 200 calls", n)
		}
	})
}
