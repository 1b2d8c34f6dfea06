package replay_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spillway/order"
)

// service is a downstream with permits and a breaker in front, under the test's control.
type service struct {
	t      *testing.T
	answer func(ctx context.Context, o *order.Order) order.Answer
	open   atomic.Bool // the breaker refuses
	delay  time.Duration

	pace       func(now time.Time) time.Duration // nil: no rate limit
	paceTenant func(now time.Time, tenant string) time.Duration
	rights     atomic.Int64 // taken and not given back

	mu      sync.Mutex
	permits int // free ones
	held    int
	most    int // in flight at once
	flying  int
	calls   []call
	effects map[string]int // by business number
}

type call struct {
	at     time.Time
	number string
}

func newService(t *testing.T, permits int) *service {
	t.Helper()
	return &service{t: t, permits: permits, effects: make(map[string]int)}
}

// Pace answers with what pace says, where it is set.
func (s *service) Pace(now time.Time, lane order.Lane, _ string) time.Duration {
	if lane != order.LaneReplay {
		s.t.Errorf("a right of lane %v was taken", lane)
	}
	if s.pace != nil {
		if d := s.pace(now); d > 0 {
			return d
		}
	}
	s.rights.Add(1)
	return 0
}

func (s *service) PaceTenant(now time.Time, tenant string) time.Duration {
	if s.paceTenant == nil {
		return 0
	}
	return s.paceTenant(now, tenant)
}

func (s *service) Unpace(order.Lane, string) { s.rights.Add(-1) }

func (s *service) TryAcquire(lane order.Lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lane != order.LaneReplay {
		s.t.Errorf("a permit of lane %v was taken", lane)
	}
	if s.permits == 0 {
		return false
	}
	s.permits--
	s.held++
	return true
}

func (s *service) Acquire(ctx context.Context, lane order.Lane) error {
	for !s.TryAcquire(lane) {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *service) Release(order.Lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.permits++
	s.held--
	if s.held < 0 {
		s.t.Error("a permit was given back twice")
	}
}

func (s *service) Room() (n int, recovering bool) {
	if s.open.Load() {
		return 0, false
	}
	return math.MaxInt, false
}

// Keep has nobody else to think of.
func (s *service) Keep(order.Lane) bool { return true }

func (s *service) Submit(ctx context.Context, _ order.Lane, o *order.Order) order.Answer {
	s.mu.Lock()
	s.calls = append(s.calls, call{time.Now(), o.Number})
	s.flying++
	s.most = max(s.most, s.flying)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.flying--
		s.mu.Unlock()
	}()
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown, Sent: true}
		}
	}
	if s.answer != nil {
		return s.answer(ctx, o)
	}
	return s.apply(o)
}

// apply gives the order its effect.
func (s *service) apply(o *order.Order) order.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects[o.Number]++
	return order.Answer{Outcome: order.OutcomeSucceeded, Reason: order.Confirmed, Sent: true}
}

// lookup says truly whether it has the order.
func (s *service) lookup(number string) order.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.effects[number] > 0 {
		return order.Finding{Verdict: order.VerdictSucceeded, Outcome: order.OutcomeSucceeded, Reason: order.Confirmed}
	}
	return order.Finding{Verdict: order.VerdictNotFound, Outcome: order.OutcomeSucceeded, Reason: order.NotFound}
}

// effect is how often the order was applied.
func (s *service) effect(number string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[number]
}

// seen returns the calls so far.
func (s *service) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// ended is how many calls are over.
func (s *service) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) - s.flying
}

// between counts the calls from a to b after the first moment of the test.
func (s *service) between(start time.Time, a, b time.Duration) int {
	n := 0
	for _, c := range s.seen() {
		if d := c.at.Sub(start); d >= a && d < b {
			n++
		}
	}
	return n
}

func (s *service) peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// spare is how many permits are out and not in a call.
func (s *service) spare() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held - s.flying
}

// heldNow is how many permits are out.
func (s *service) heldNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// answers makes a script: the nth call to an order gets the nth answer, and the last one from then on. A success has its
// effect.
func (s *service) answers(script ...order.Outcome) {
	nth := make(map[string]int)
	var mu sync.Mutex
	s.answer = func(_ context.Context, o *order.Order) order.Answer {
		mu.Lock()
		n := min(nth[o.Number], len(script)-1)
		nth[o.Number]++
		mu.Unlock()
		switch script[n] {
		case order.OutcomeSucceeded:
			return s.apply(o)
		case order.OutcomeRejected:
			return order.Answer{Outcome: script[n], Reason: order.BusinessRejected, Sent: true}
		case order.OutcomeInvalid:
			return order.Answer{Outcome: script[n], Reason: order.RequestRejected, Sent: true}
		case order.OutcomeOverloaded:
			return order.Answer{Outcome: script[n], Reason: order.UpstreamOverloaded, Sent: true}
		case order.OutcomeNotSent:
			return order.Answer{Outcome: script[n], Reason: order.ConnectFailed}
		case order.OutcomeUnknown, order.NoOutcome:
			return order.Answer{Outcome: script[n], Reason: order.UpstreamTimeout, Sent: true}
		case order.OutcomeRefused:
			return order.Answer{Outcome: script[n], Reason: order.CircuitOpen}
		case order.OutcomeCancelled:
			return order.Answer{Outcome: script[n], Reason: order.Shutdown}
		}
		return order.Answer{}
	}
}
