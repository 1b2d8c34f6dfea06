package drill

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"spillway/internal/testkit"
)

// servers lets n POSTs be worked on at once, each for as long; the others queue.
type servers struct {
	slots chan struct{}
	work  time.Duration
	flight
}

func (s *servers) around(next http.Handler) http.Handler {
	return s.flight.around(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost {
			s.slots <- struct{}{}
			time.Sleep(s.work)
			<-s.slots
		}
		next.ServeHTTP(w, q)
	}))
}

// TestPermitsAdaptToTheServiceWhereTheSettingsSaySo starts with four times the permits that the service can use: observed,
// they stay; enforced, from a changed settings file on, they come down to what it can use. And no order is lost.
func TestPermitsAdaptToTheServiceWhereTheSettingsSaySo(t *testing.T) {
	t.Parallel()
	const orders, limit, capacity = 6_000, 32, 8
	s := &servers{slots: make(chan struct{}, capacity), work: 20 * time.Millisecond}
	r := newRig(t, world{wrap: s.around, env: slowCalls(), route: "    permits: {limit: 32, mode: observe, min: 2, max: 64}\n"})
	p := r.command()
	addr := r.addr(p)
	r.produce(orders)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		_, peak := s.read()
		return peak == limit, "the permits are not all used"
	})
	for range 12 {
		time.Sleep(250 * time.Millisecond)
		if got := r.metric(addr, "spillway_permits"); got != limit {
			t.Fatalf("%v permits are in force while they are only observed", got)
		}
	}
	if _, peak := s.read(); peak > limit {
		t.Errorf("%d calls in flight, want %d at most", peak, limit)
	}

	r.settings("mode: observe", "mode: enforce")
	p.Signal(syscall.SIGHUP)
	low := 0
	testkit.Eventually(t, 25*time.Second, func() (bool, string) {
		got := r.metric(addr, "spillway_permits_adaptive")
		if low++; got > capacity*3/2 {
			low = 0
		}
		time.Sleep(250 * time.Millisecond)
		return low >= 8, "the limit does not come down to what the service can use, and stay"
	})
	t.Logf("learnt: %v, in force: %v", r.metric(addr, "spillway_permits_adaptive"), r.metric(addr, "spillway_permits"))
	r.awaitFinal(orders, 90*time.Second)
	r.conserved(orders)
	if _, peak := s.read(); peak > 64 {
		t.Errorf("%d calls in flight, above permits.max", peak)
	}
}
