package permit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"spillway/order"
)

// FuzzPoolAgreesWithItsRule drives a pool one step at a time and compares whom it serves with the rule, written over a
// plain list of waiters and a limit that moves.
func FuzzPoolAgreesWithItsRule(f *testing.F) {
	f.Add(uint8(10), []byte("aaaaaaaaaaabcabcabcxyzxyzxyzx"))
	f.Add(uint8(2), []byte("abcabcxyzxyz"))
	f.Add(uint8(3), []byte{0, 0, 0, 1, 2, 3, 1, 4, 7, 3, 3, 5})
	f.Add(uint8(5), []byte{0, 1, 2, 0, 1, 2, 0, 1, 2, 12, 6, 7, 13, 8, 8, 14, 7, 15, 6, 16, 12, 13, 14})
	f.Fuzz(func(t *testing.T, limit uint8, steps []byte) {
		if len(steps) > 200 {
			return
		}
		synctest.Test(t, func(t *testing.T) { runAgainstRule(t, int(limit%12)+1, steps) })
	})
}

func TestPoolAgreesWithItsRuleWhileTheLimitMoves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		steps := make([]byte, 200)
		for i := range steps {
			steps[i] = byte(rnd.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { runAgainstRule(t, 1+rnd.IntN(12), steps) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type waiting struct {
	lane   order.Lane
	cancel context.CancelFunc
	result chan error
}

// rule is the pool as its documentation tells it.
type rule struct {
	p     *Pool
	cfg   Config
	cap   int
	held  [order.Lanes]int
	queue []*waiting // in the order they came
}

func (r *rule) used() int { return r.held[0] + r.held[1] + r.held[2] }

func (r *rule) limit() int {
	if r.cap >= 0 {
		return min(r.cfg.Limit, r.cap)
	}
	return r.cfg.Limit
}

// serve is who must have a permit by now: while one is idle, the first below its lane's guarantee, else the first.
func (r *rule) serve(t *testing.T) {
	t.Helper()
	synctest.Wait()
	guarantee := Config{Live: r.cfg.Live, Replay: r.cfg.Replay, Compensate: r.cfg.Compensate}.guarantees(r.limit())
	for r.used() < r.limit() && len(r.queue) > 0 {
		next := max(0, slices.IndexFunc(r.queue, func(w *waiting) bool { return r.held[w.lane] < guarantee[w.lane] }))
		w := r.queue[next]
		r.queue = slices.Delete(r.queue, next, next+1)
		select {
		case err := <-w.result:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("the waiter of lane %v was due and was not served", w.lane)
		}
		w.cancel()
		r.held[w.lane]++
	}
	for _, w := range r.queue {
		select {
		case err := <-w.result:
			t.Fatalf("a waiter of lane %v was served, and was not due: %v", w.lane, err)
		default:
		}
	}
}

func (r *rule) wait(t *testing.T, l order.Lane) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{l, cancel, make(chan error, 1)}
	r.queue = append(r.queue, w)
	go func() { w.result <- r.p.Acquire(ctx, l) }()
}

func (r *rule) try(t *testing.T, l order.Lane) {
	t.Helper()
	idle := r.used() < r.limit()
	if r.p.TryAcquire(l) != idle {
		t.Fatalf("a permit was idle: %v, with %d of %d in use", idle, r.used(), r.limit())
	}
	if idle {
		r.held[l]++
	}
}

func (r *rule) cancelOne(t *testing.T, which int) {
	t.Helper()
	if len(r.queue) == 0 {
		return
	}
	at := which % len(r.queue)
	r.queue[at].cancel()
	if err := <-r.queue[at].result; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.queue = slices.Delete(r.queue, at, at+1)
}

func (r *rule) resize(t *testing.T, b byte) {
	t.Helper()
	n := int(b / 24)
	switch b / 3 % 8 {
	case 5: // a cap of 0 to 9, or none
		r.cap = n - 1
		r.p.SetCap(r.cap)
	case 6:
		r.cfg.Limit = 1 + n
		r.p.setLimit(r.cfg.Limit)
	case 7:
		r.cfg = Config{Limit: 1 + n, Live: 0.5, Replay: 0.1 * float64(b%3), Compensate: 0.3}
		if err := r.p.Configure(r.cfg); err != nil {
			t.Fatal(err)
		}
	}
}

func runAgainstRule(t *testing.T, limit int, steps []byte) {
	t.Helper()
	r := &rule{p: New(Config{Limit: limit}), cfg: Config{Limit: limit}, cap: NoCap}
	for i, b := range steps {
		l := lanes[b%3]
		switch b / 3 % 8 {
		case 0, 1:
			r.wait(t, l)
		case 2:
			if r.held[l] > 0 {
				r.held[l]--
				r.p.Release(l)
			}
		case 3:
			r.cancelOne(t, int(b))
		case 4:
			r.try(t, l)
		default:
			r.resize(t, b)
		}
		r.serve(t)
		if r.p.InUse() != r.used() || r.p.Waiting() != len(r.queue) || r.p.Limit() != r.limit() {
			t.Fatalf("step %d: %d of %d in use and %d wait, want %d of %d and %d", i, r.p.InUse(), r.p.Limit(), r.p.Waiting(),
				r.used(), r.limit(), len(r.queue))
		}
	}
	for len(r.queue) > 0 {
		r.cancelOne(t, 0)
	}
}
