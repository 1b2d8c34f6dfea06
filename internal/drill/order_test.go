package drill

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"spillway/internal/wallet"
)

// sequencer watches, in front of a wallet, that the orders of a key come one at a time and in their turn. An order's number
// is key-turn.
type sequencer struct {
	next http.Handler

	mu      sync.Mutex
	running map[string]int
	turn    map[string]string // the last one of each key
	faults  []string
}

func (s *sequencer) ServeHTTP(rw http.ResponseWriter, q *http.Request) {
	number := q.Header.Get("Idempotency-Key")
	key, turn, ok := strings.Cut(number, "-")
	if q.Method == http.MethodPost && ok {
		s.enter(key, turn)
		defer s.leave(key)
	}
	s.next.ServeHTTP(rw, q)
}

func (s *sequencer) enter(key, turn string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key]++; s.running[key] > 1 {
		s.faults = append(s.faults, fmt.Sprintf("%s-%s comes while another of its key is under way", key, turn))
	}
	if turn <= s.turn[key] {
		s.faults = append(s.faults, fmt.Sprintf("%s-%s comes after %s", key, turn, s.turn[key]))
	}
	s.turn[key] = turn
}

func (s *sequencer) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[key]--
}

// TestKeyOrderSurvivesARollingRestart: with ordering: key, workers come and go in good order, each with calls under way and
// more in line, and the service still gets the orders of each key one at a time and in their turn.
func TestKeyOrderSurvivesARollingRestart(t *testing.T) {
	t.Parallel()
	const keys, turns, orders = 60, 50, 3000
	s := &sequencer{running: map[string]int{}, turn: map[string]string{}}
	r := newRig(t, world{
		partitions: 6, route: "    ordering: key\n    permits: {limit: 20}\n", env: callsOf(2 * time.Second),
		wrap: func(h http.Handler) http.Handler {
			s.next = h
			return s
		},
	})
	r.wallet.SetMode(wallet.Healthy(100 * time.Millisecond))
	records := make([]*kgo.Record, 0, orders)
	for turn := range turns {
		for key := range keys {
			no := fmt.Sprintf("K%02d-%03d", key, turn)
			records = append(records, record(fmt.Sprintf("K%02d", key), fmt.Sprintf(`{"order_no":%q,"amount":1250,"currency":"CNY"}`, no)))
		}
	}
	r.broker.Produce(t, r.topic, records...)

	done := make(chan struct{})
	go func() {
		defer close(done)
		r.awaitFinal(orders, 2*time.Minute)
	}()
	rest := r.work() // it stays, so that each restart moves partitions between two
	restarts := 0
rolling:
	for ; ; restarts++ {
		p := r.work()
		select {
		case <-done:
			break rolling
		case <-time.After(4 * time.Second):
		}
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(20 * time.Second); code != 0 {
			t.Errorf("a worker ended with %d:\n%s", code, tail(p.Output()))
		}
	}
	r.awaitCommitted(20 * time.Second)
	r.conserved(orders)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%d restarts; %d orders of %d keys", restarts, orders, keys)
	if len(s.faults) > 0 {
		t.Errorf("%d orders out of their turn, such as %v", len(s.faults), s.faults[:min(len(s.faults), 5)])
	}
	if restarts == 0 {
		t.Error("all was done before the first restart: the drill shows nothing")
	}
	rest.Kill()
}
