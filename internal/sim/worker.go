package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"spillway/breaker"
	"spillway/consumer"
	"spillway/order"
)

// worker is one process: what it remembers dies with each crash.
type worker struct {
	*world

	name        string
	life        int // numbers its starts
	up          bool
	pausedUntil time.Time // it hears nothing before

	generation *generation
	stopping   bool
	free       int // permits
	flights    []*flight
	submits    *breaker.Breaker
	lookups    *breaker.Breaker
	replaying  *replaying
	scanning   int // orders of the scanner's claim that are not done
}

// owner is the id of this life.
func (w *worker) owner() string { return fmt.Sprintf("%s-%d", w.name, w.life) }

// start begins a life.
func (w *worker) start() {
	w.life++
	w.up, w.stopping, w.pausedUntil = true, false, time.Time{}
	w.free, w.flights, w.generation, w.replaying, w.scanning = w.permits, nil, nil, nil, 0
	w.submits, w.lookups = w.newBreaker("submit"), w.newBreaker("lookup")
	w.note("%s: starts", w.owner())
	w.group.join(w)
	w.later(heartbeatEvery, w.heartbeat)
	w.later(w.between(0, replayPoll), w.replay)
	w.later(w.between(0, scanEvery), w.scan)
	w.later(w.lease/6, w.renew)
	w.later(commitEvery, w.commitTick)
	w.later(mendEvery, w.mend)
}

func (w *worker) newBreaker(endpoint string) *breaker.Breaker {
	b, err := breaker.NewAt(w.now, breaker.Key{Service: "downstream", Endpoint: endpoint}, breaker.Config{
		FailureMinCalls: 5, ConsecutiveFailures: 5, OpenWait: 500 * time.Millisecond, OpenWaitMax: 2 * time.Second,
		RampStep: 100 * time.Millisecond, RampStart: 0.2, FirstProbes: 2,
	}, rand.New(rand.NewPCG(w.rng.Uint64(), 1)), func(e breaker.Event) { //nolint:gosec // repeatable on purpose
		w.count("breaker " + e.To.String())
		w.note("%s: breaker %s %s: %s", w.name, endpoint, e.To, e.Reason)
	})
	if err != nil {
		panic(err) // the numbers above are constants
	}
	return b
}

// crash ends a life at once: all memory is lost. Requests under way may still arrive.
func (w *worker) crash() {
	if !w.up {
		return
	}
	w.up = false
	w.life++
	for _, f := range w.flights {
		f.over = true
		w.checker.landed(f)
	}
	w.flights, w.generation, w.replaying, w.scanning = nil, nil, nil, 0
	w.after(w.between(100*time.Millisecond, 3*time.Second), func() {
		if !w.up {
			w.start()
		}
	})
}

// sleep makes the worker deaf for a while, in which its leases may run out.
func (w *worker) sleep() {
	w.count("pause")
	w.pausedUntil = w.now.Add(w.between(50*time.Millisecond, 2*w.lease))
	w.note("%s: sleeps until %v", w.name, w.pausedUntil.Sub(epoch))
}

// stop ends a life in good order.
func (w *worker) stop() {
	w.note("%s: stops", w.name)
	w.stopping = true
	w.generation.end(order.Shutdown)
}

// later plans something that this life will do, once it is awake.
func (w *worker) later(d time.Duration, do func()) { w.hear(w.life, d, do) }

func (w *worker) hear(life int, d time.Duration, do func()) {
	w.after(d, func() { w.wake(life, do) })
}

func (w *worker) wake(life int, do func()) {
	if w.life != life || !w.up {
		return
	}
	if w.now.Before(w.pausedUntil) {
		w.at(w.pausedUntil, func() { w.wake(life, do) })
		return
	}
	do()
	if w.life == life && w.generation != nil {
		w.generation.pump()
	}
}

// heartbeat tells the group that the worker lives, and hears whether it must give up its partitions.
func (w *worker) heartbeat() {
	w.later(heartbeatEvery, w.heartbeat)
	ok := w.group.heartbeat(w)
	switch {
	case ok:
	case w.generation != nil:
		w.generation.end(order.Revoked)
	default:
		w.group.join(w)
	}
}

// assigned begins a generation.
func (w *worker) assigned(number int, ps []consumer.Position) {
	if w.generation != nil || w.stopping {
		return
	}
	w.note("%s: generation %d: %v", w.owner(), number, ps)
	w.generation = newGeneration(w, number, ps)
}

// drained is told that the generation is over and its last commit was tried.
func (w *worker) drained() {
	w.generation = nil
	if w.stopping {
		w.group.leave(w)
		w.crash()
		return
	}
	w.group.join(w)
}

// mend looks after the replay queue.
func (w *worker) mend() {
	w.later(mendEvery, w.mend)
	w.queue.mend()
}

// acquire takes a permit if one is free.
func (w *worker) acquire() bool {
	if w.free == 0 {
		return false
	}
	w.free--
	return true
}

// flight is one submit under way.
type flight struct {
	worker *worker
	order  order.Order
	permit breaker.Permit
	over   bool
	done   func(order.Answer)
}

// submit makes one attempt with a permit the caller holds; the permit is free again before done is told.
func (w *worker) submit(o order.Order, done func(order.Answer)) *flight {
	p, ok := w.submits.AllowAt(w.now)
	reason := order.CircuitOpen
	if ok && !w.calmed && w.chance(0.01) {
		w.submits.DoneAt(w.now, p, breaker.Ignored)
		ok, reason = false, order.RateLimited // another of our gates, which nobody saw coming
	}
	if !ok {
		w.later(0, func() {
			w.free++
			w.count("refused " + string(reason))
			done(order.Answer{Outcome: order.OutcomeRefused, Reason: reason})
		})
		return nil
	}
	f := &flight{worker: w, order: o, permit: p, done: done}
	w.flights = append(w.flights, f)
	fault := w.fault(submit)
	if fault == crashBefore {
		w.note("%s: crash before submit", w.name)
		w.crash()
		return f
	}
	w.note("%s: sends %s", w.owner(), o.Number)
	w.checker.sent(f)
	if fault == errorBefore {
		w.after(w.latency(), func() { f.land(order.Answer{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed}) })
		return f
	}
	begun := w.now
	w.after(w.timeout, func() {
		f.land(order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout, Sent: true})
	})
	w.after(w.latency(), func() { f.arrive(begun, fault) })
	return f
}

// arrive is the request at the downstream, whatever became of its sender.
func (f *flight) arrive(begun time.Time, fault fault) {
	w := f.worker
	a, delay, ok := w.down.submit(&f.order, begun)
	switch fault {
	case crashAfter:
		if !f.over {
			w.note("%s: crash after submit", w.name)
			w.crash()
		}
	case sleepAfter:
		if !f.over {
			w.sleep()
		}
	case errorAfter:
		f.land(order.Answer{Outcome: order.OutcomeUnknown, Reason: order.UpstreamReset, Sent: true})
	case noFault, crashBefore, errorBefore:
	}
	if ok {
		w.after(delay, func() { f.land(a) })
	}
}

// land ends the flight: the first answer, or the timeout, or a cancel counts.
func (f *flight) land(a order.Answer) {
	if f.over {
		return
	}
	f.over = true
	w := f.worker
	w.checker.landed(f)
	for i, g := range w.flights {
		if g == f {
			w.flights = append(w.flights[:i], w.flights[i+1:]...)
			break
		}
	}
	w.later(0, func() {
		a.Probe = f.permit.Probe()
		w.submits.DoneAt(w.now, f.permit, verdict(a.Outcome, a.Probe))
		w.free++
		w.count("outcome " + a.Outcome.String())
		w.note("%s: %s of %s: %s", w.name, a.Outcome, f.order.Number, a.Reason)
		f.done(a)
	})
}

// cancel ends the flight from our side.
func (f *flight) cancel(why order.Reason) {
	if f != nil {
		f.land(order.Answer{Outcome: order.OutcomeCancelled, Reason: why, Sent: true})
	}
}

// verdict is what the breaker learns of an outcome: the contract's table.
func verdict(o order.Outcome, probe bool) breaker.Result {
	if probe && o == order.OutcomeInvalid {
		return breaker.Success
	}
	switch o {
	case order.OutcomeSucceeded, order.OutcomeRejected:
		return breaker.Success
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown:
		return breaker.Failure
	case order.NoOutcome, order.OutcomeInvalid, order.OutcomeRefused, order.OutcomeCancelled:
		return breaker.Ignored
	}
	return breaker.Ignored
}
