package replay

import (
	"context"
	"time"

	"spillway/order"
)

// line holds the begun orders that wait for their call, and counts what goes on. Engine.mu guards it.
type line struct {
	waiting []*member // the next one first
	calling int       // calls under way
	claimed int       // entries claimed whose call has not ended, waiting and calling among them
	scarce  bool      // the next one waits for a right, a permit or the breaker
	ended   bool      // nothing will be called any more

	call, claim lasting // how long a call takes; a claim until its orders are begun
}

// lasting is how long something takes, in seconds: each time moves it by an eighth of the difference. Zero: not known.
type lasting float64

func (l *lasting) note(took time.Duration) {
	if *l == 0 {
		*l = lasting(took.Seconds())
	}
	*l += (lasting(took.Seconds()) - *l) / 8
}

// leadMost is how many begun orders may wait for each call under way.
const leadMost = 8

// lead is how many begun orders should wait behind the calls under way, so that a permit that becomes free finds one: what
// is called in the time that two claims take, at least one and at most leadMost for each call.
func (l *line) lead() int {
	if l.calling == 0 || l.call == 0 {
		return 1
	}
	return max(1, int(float64(l.calling)*min(leadMost, float64(2*l.claim/l.call))))
}

// wants is how many more entries to claim where limit calls may be under way: enough for the lead, and, where calls are to
// be had at once, for twice the calls there are. Few are left for the next time, so that a claim is worth its round trips.
func (l *line) wants(limit int) int {
	lead := l.lead()
	most := l.calling + lead
	if !l.scarce {
		most = max(l.calling, min(limit, 2*l.calling+1)) + lead
	}
	n := most - l.claimed
	if n < (lead+1)/2 {
		return 0
	}
	return n
}

// lineUp adds begun orders.
func (e *Engine) lineUp(ms ...*member) {
	e.mu.Lock()
	ended := e.line.ended
	if !ended {
		e.line.waiting = append(e.line.waiting, ms...)
	}
	e.mu.Unlock()
	if ended {
		e.untried(ms, notTried())
		return
	}
	rouse(e.start)
}

func notTried() order.Answer {
	return order.Answer{Outcome: order.OutcomeCancelled, Reason: order.Shutdown}
}

// dispatch starts one call after the other, each once the pace, the breaker, the rates and the permits let it, until ctx
// ends. What waits then goes back as it came.
func (e *Engine) dispatch(ctx context.Context) {
	for ctx.Err() == nil {
		wait, ok := e.may()
		if !ok {
			e.pause(ctx, e.start, wait)
			continue
		}
		if wait = e.attempter.Pace(time.Now(), order.LaneReplay, ""); wait > 0 {
			e.scarce(true)
			e.pause(ctx, nil, wait) // what becomes free meanwhile makes no difference
			continue
		}
		if !e.attempter.TryAcquire(order.LaneReplay) {
			// In line, because that is what the lane's share is granted to: a busy live lane leaves no permit idle.
			e.scarce(true)
			if e.attempter.Acquire(ctx, order.LaneReplay) != nil {
				e.attempter.Unpace(order.LaneReplay, "")
				continue
			}
		} else {
			e.scarce(false)
		}
		e.call()
	}
	e.mu.Lock()
	e.line.ended = true
	left := e.line.waiting
	e.line.waiting = nil
	e.mu.Unlock()
	e.untried(left, notTried())
}

// may reports whether the pace, Postgres and the breaker let the next order go, or how long to wait at most until asking
// again. What waits while the breaker is open goes back to the queue.
func (e *Engine) may() (wait time.Duration, ok bool) {
	e.mu.Lock()
	e.pace.ceiling = e.ceiling()
	idle := len(e.line.waiting) == 0
	full := e.line.calling >= min(e.pace.limit, e.pace.ceiling)
	e.mu.Unlock()
	if idle || full || e.records.failing() != nil { // an answer that can't be written down is one to look up
		return e.cfg.Poll, false
	}
	n, recovering := e.attempter.Room()
	if n > 0 {
		return 0, true
	}
	if !recovering {
		e.mu.Lock()
		left := e.line.waiting
		e.line.waiting = nil
		e.mu.Unlock()
		e.untried(left, order.Answer{Outcome: order.OutcomeRefused, Reason: order.CircuitOpen})
		return e.cfg.Poll, false
	}
	e.scarce(true)
	return e.cfg.Poll, false
}

// scarce takes down whether the last call had to wait for what it needs.
func (e *Engine) scarce(is bool) {
	e.mu.Lock()
	e.line.scarce = is
	e.mu.Unlock()
}

// call makes calls with the permit just taken, and the first of them with the right just taken.
func (e *Engine) call() {
	m := e.next()
	if m == nil {
		e.attempter.Unpace(order.LaneReplay, "")
		e.attempter.Release(order.LaneReplay)
		return
	}
	go func() {
		for ; m != nil; m = e.goOn() {
			e.submit(m)
		}
	}()
}

// next takes the first out of the line for a call; nil where there is none, or as many calls as may be are under way.
func (e *Engine) next() *member {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.line.waiting) == 0 || e.line.calling >= min(e.pace.limit, e.pace.ceiling) {
		return nil
	}
	m := e.line.waiting[0]
	e.line.waiting[0] = nil
	e.line.waiting = e.line.waiting[1:]
	m.order.Due = m.due // it may have waited for longer than the lease it was begun with
	e.line.calling++
	rouse(e.wake)
	return m
}

// goOn is the next order for a permit that is held, as long as it may be kept and all else lets it go: from one call's end
// to the next one's begin nobody has to be woken. With nil the permit was given back.
func (e *Engine) goOn() *member {
	defer rouse(e.start) // what was put back, or a pace that has grown, may want calls of other permits
	if _, ok := e.may(); ok && e.attempter.Pace(time.Now(), order.LaneReplay, "") <= 0 {
		if !e.attempter.Keep(order.LaneReplay) {
			e.attempter.Unpace(order.LaneReplay, "")
			return nil
		}
		if m := e.next(); m != nil {
			return m
		}
		e.attempter.Unpace(order.LaneReplay, "")
	}
	e.attempter.Release(order.LaneReplay)
	return nil
}

// submit makes the call. An order that a recovering breaker refused after all, because somebody else was faster, takes
// the first place in line again.
func (e *Engine) submit(m *member) {
	began := time.Now()
	answer := e.attempter.Submit(m.ctx, order.LaneReplay, &m.order)
	made := !answer.Untried()
	if !made {
		e.attempter.Unpace(order.LaneReplay, "")
	}
	again := false
	if answer.Outcome == order.OutcomeRefused && answer.Reason == order.CircuitOpen {
		n, recovering := e.attempter.Room()
		again = n > 0 || recovering
	}
	now := time.Now()
	e.mu.Lock()
	e.line.calling--
	if again = again && !e.line.ended; again {
		e.line.waiting = append([]*member{m}, e.line.waiting...)
	} else {
		e.line.claimed--
		if made {
			e.line.call.note(now.Sub(began))
		}
		e.pace = e.pace.after(answer.Outcome, now)
	}
	e.mu.Unlock()
	if !again {
		m.end(answer)
		rouse(e.wake)
	}
}

// untried answers orders whose call was never made.
func (e *Engine) untried(ms []*member, a order.Answer) {
	e.mu.Lock()
	e.line.claimed -= len(ms)
	e.mu.Unlock()
	for _, m := range ms {
		m.end(a)
	}
	rouse(e.wake)
}
