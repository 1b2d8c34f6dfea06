package compensator

import (
	"context"
	"errors"
	"sync"
	"time"

	"spillway/order"
)

// Causes that end the contexts of Run.
var (
	errGraceOver = errors.New("the scanner's grace period is over")
	errDone      = errors.New("the scanner has ended")
)

// Run scans until ctx ends. Then it claims nothing more, gives back what was not begun, lets lookups under way end
// within the grace period, settles them, and returns nil.
func (s *Scanner) Run(ctx context.Context) error {
	calls, endCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	tail, endTail := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-done:
		}
		for _, stage := range []struct {
			lasts time.Duration
			end   context.CancelCauseFunc
		}{{s.cfg.Grace * 3 / 4, endCalls}, {s.cfg.Grace / 4, endTail}} {
			after := time.NewTimer(stage.lasts)
			select {
			case <-after.C:
				stage.end(errGraceOver)
			case <-done:
				after.Stop()
				stage.end(errDone)
			}
		}
	})
	s.scan(ctx, calls, tail)
	close(done)
	wg.Wait()
	return nil
}

// scan claims and works, one claim at a time.
func (s *Scanner) scan(ctx, calls, tail context.Context) {
	p := newPace(s.cfg)
	for ctx.Err() == nil {
		var r round
		room, recovering := s.calls.LookupRoom()
		open := room == 0 && !recovering
		free := s.calls.Free(order.LaneCompensate)
		if recovering {
			free = min(free, max(room, 1)) // one that stands in line
		}
		if n := p.claim(free, open); n > 0 {
			r = s.round(ctx, calls, tail, n, open)
		}
		s.rest(ctx, p.after(r), r.refused)
	}
}

// rest waits, or until ctx ends. After a refusal it looks now and then whether the breaker lets lookups through again.
func (s *Scanner) rest(ctx context.Context, d time.Duration, refused bool) {
	for d > 0 && ctx.Err() == nil {
		step := d
		if refused {
			step = min(d, s.cfg.Interval)
		}
		wait(ctx, step)
		d -= step
		if room, recovering := s.calls.LookupRoom(); refused && (room > 0 || recovering) {
			return
		}
	}
}

// wait sleeps for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// round makes one claim and works on it to its end.
func (s *Scanner) round(ctx, calls, tail context.Context, n int, open bool) round {
	claimed := time.Now()
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	orders, err := s.store.ClaimDue(bounded, s.cfg.Route, s.cfg.Owner, s.cfg.Lease, n)
	s.records.note(ctx, err)
	if err != nil {
		return round{failed: true}
	}
	if len(orders) == 0 {
		return round{}
	}
	b := newBatch(s, orders, claimed, open)
	b.rescue(tail)
	b.look(ctx, calls, tail)
	return round{
		failed: b.failed, full: len(orders) >= n, refused: b.refused.Load(), looked: b.looked, away: b.away,
	}
}
