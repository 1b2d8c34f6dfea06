package replay_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/order"
	"spillway/replay"
)

// faults decides, for each step and side ("claim before", "settle after", …), whether it goes wrong. A fault before
// a step keeps it from happening; a fault after it only hides its answer.
type faults struct {
	mu    sync.Mutex
	fault func(step string) error // nil: none
	tries map[string][]time.Time
}

func (f *faults) set(fault func(step string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *faults) at(step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil {
		f.tries = make(map[string][]time.Time)
	}
	f.tries[step] = append(f.tries[step], time.Now())
	if f.fault == nil {
		return nil
	}
	return f.fault(step)
}

// tried is when the step was tried.
func (f *faults) tried(step string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.tries[step]...)
}

// failing makes the named steps fail before they happen.
func failing(err error, steps ...string) func(string) error {
	return func(step string) error {
		for _, s := range steps {
			if step == s+" before" {
				return err
			}
		}
		return nil
	}
}

// around runs a step between its two possible faults.
func around[T any](f *faults, step string, run func() (T, error)) (T, error) {
	var none T
	if err := f.at(step + " before"); err != nil {
		return none, err
	}
	out, err := run()
	if err != nil {
		return none, err
	}
	if err := f.at(step + " after"); err != nil {
		return none, err
	}
	return out, nil
}

// nothing is the answer of a step that has none.
type nothing struct{}

// faultyQueue and faultyStore put faults around every step.
type faultyQueue struct {
	replay.Queue
	*faults
}

func (q faultyQueue) Push(ctx context.Context, es []replay.Entry) error {
	_, err := around(q.faults, "push", func() (nothing, error) { return nothing{}, q.Queue.Push(ctx, es) })
	return err
}

func (q faultyQueue) Has(ctx context.Context, ids []int64) ([]bool, error) {
	return around(q.faults, "has", func() ([]bool, error) { return q.Queue.Has(ctx, ids) })
}

func (q faultyQueue) Depths(ctx context.Context) (replay.Depths, error) {
	return around(q.faults, "depths", func() (replay.Depths, error) { return q.Queue.Depths(ctx) })
}

func (q faultyQueue) Probe(ctx context.Context) error {
	_, err := around(q.faults, "probe", func() (nothing, error) { return nothing{}, q.Queue.Probe(ctx) })
	return err
}

func (q faultyQueue) Claim(ctx context.Context, worker string, n, room int, lease time.Duration) (replay.Claim, error) {
	return around(q.faults, "claim", func() (replay.Claim, error) { return q.Queue.Claim(ctx, worker, n, room, lease) })
}

func (q faultyQueue) Renew(ctx context.Context, c replay.Claim, lease time.Duration) (bool, error) {
	return around(q.faults, "renew claim", func() (bool, error) { return q.Queue.Renew(ctx, c, lease) })
}

func (q faultyQueue) Finish(ctx context.Context, c replay.Claim, f replay.Finished) (bool, error) {
	return around(q.faults, "finish", func() (bool, error) { return q.Queue.Finish(ctx, c, f) })
}

type faultyStore struct {
	replay.Store
	*faults
}

func (s faultyStore) Begin(ctx context.Context, owner string, lease time.Duration, ids []int64) ([]order.Order, error) {
	return around(s.faults, "begin", func() ([]order.Order, error) { return s.Store.Begin(ctx, owner, lease, ids) })
}

func (s faultyStore) Renew(ctx context.Context, owner string, lease time.Duration, ls []order.Lease) ([]bool, error) {
	return around(s.faults, "renew row", func() ([]bool, error) { return s.Store.Renew(ctx, owner, lease, ls) })
}

func (s faultyStore) Settle(ctx context.Context, owner string, ss []order.Settlement) ([]order.Settled, error) {
	return around(s.faults, "settle", func() ([]order.Settled, error) { return s.Store.Settle(ctx, owner, ss) })
}

func (s faultyStore) Bury(ctx context.Context, ds []order.DeadRecord) error {
	_, err := around(s.faults, "bury", func() (nothing, error) { return nothing{}, s.Store.Bury(ctx, ds) })
	return err
}

// faultyService is a service whose caller may die before or after the effect.
type faultyService struct {
	replay.Attempter
	*faults
}

func (s faultyService) Submit(ctx context.Context, lane order.Lane, o *order.Order) order.Answer {
	if err := s.at("submit before"); err != nil {
		return order.Answer{Outcome: order.OutcomeCancelled}
	}
	answer := s.Attempter.Submit(ctx, lane, o)
	if err := s.at("submit after"); err != nil {
		return order.Answer{Outcome: order.OutcomeUnknown, Sent: true}
	}
	return answer
}

var errAway = errors.New("no answer from the server")
