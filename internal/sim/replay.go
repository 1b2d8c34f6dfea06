package sim

import (
	"context"
	"time"

	"spillway/order"
)

// replaying is a claim of the replay queue on its way.
type replaying struct {
	*worker
	id      string // owner of the rows it begins
	claim   held
	members []*attempted
	begun   time.Time // just before the rows were begun
	open    int       // members whose settlement is not done
	done    []int64
	again   []queued
	over    bool
}

// attempted is an entry of the claim whose row was begun.
type attempted struct {
	order   order.Order
	next    order.Transition
	flight  *flight
	settled bool
}

// replay claims a batch if there is none under way, the breaker lets it and there are permits.
func (w *worker) replay() {
	w.later(replayPoll, w.replay)
	if w.replaying != nil || w.stopping || !w.submits.ReadyAt(w.now) {
		return
	}
	n := 0
	for n < w.batch && w.acquire() {
		n++
	}
	if n == 0 {
		return
	}
	b := &replaying{worker: w, id: w.owner()}
	w.replaying = b
	w.call(claim, func() (err error) {
		b.claim, err = w.queue.claim(n, w.lease)
		return err
	}, func(err error) {
		if err != nil {
			b.claim = held{} // a claim that was made and not heard of comes back when its lease is over
		}
		w.free += n - len(b.claim.items)
		if len(b.claim.items) == 0 {
			w.replaying = nil
			return
		}
		b.begin()
	})
}

func (b *replaying) begin() {
	var begun []order.Order
	b.begun = b.now
	items := b.claim.items
	b.call(begin, func() (err error) {
		begun, err = b.store.Begin(context.Background(), b.id, b.lease, items)
		return err
	}, func(err error) {
		if err != nil {
			b.free += len(items)
			b.finish(items)
			return
		}
		byID := map[int64]*order.Order{}
		for i := range begun {
			byID[begun[i].ID] = &begun[i]
		}
		for _, id := range items {
			o := byID[id]
			delete(byID, id)
			if o == nil { // the order has moved on, or the entry is there twice
				b.count("entry dropped")
				b.done = append(b.done, id)
				b.free++
				continue
			}
			b.members = append(b.members, &attempted{order: *o})
		}
		b.open = len(b.members)
		b.later(b.lease/3, b.renew)
		life := b.life
		for _, m := range b.members {
			if b.life != life {
				return
			}
			b.attempt(m)
		}
		b.closeIfDone()
	})
}

func (b *replaying) attempt(m *attempted) {
	if b.now.Sub(b.begun) > b.lease-b.budget {
		b.count("lease lost before the replay")
		b.free++
		m.next = b.afterAttempt(&m.order, order.Answer{Outcome: order.OutcomeCancelled, Reason: order.DeadlineExceeded})
		b.settle(m, retryFirst)
		return
	}
	b.count("replay")
	m.flight = b.submit(m.order, func(a order.Answer) {
		m.next = b.afterAttempt(&m.order, a)
		b.settle(m, retryFirst)
	})
}

func (b *replaying) settle(m *attempted, wait time.Duration) {
	b.call(settle, func() error {
		_, err := b.store.Settle(context.Background(), b.id, []order.Settlement{m.order.Settle(m.next)})
		return err
	}, func(err error) {
		if err != nil {
			b.later(wait, func() { b.settle(m, min(2*wait, retryMax)) })
			return
		}
		// A stale settlement may be our own, whose answer was lost: what was meant to be tried again stays queued.
		if m.next.Phase == order.Replaying {
			b.again = append(b.again, queued{id: m.order.ID, ready: m.next.NotBefore})
			m.settled = true
			b.open--
			b.closeIfDone()
			return
		}
		b.leave(m)
	})
}

// leave ends a member: it is queued no longer.
func (b *replaying) leave(m *attempted) {
	m.settled = true
	b.done = append(b.done, m.order.ID)
	b.open--
	b.closeIfDone()
}

func (b *replaying) closeIfDone() {
	if b.open == 0 && !b.over {
		b.finish(nil)
	}
}

// finish ends the claim, and leaves it to its lease where that goes wrong.
func (b *replaying) finish(keep []int64) {
	b.over = true
	b.call(finish, func() error { return b.queue.finish(b.claim.key, b.done, b.again, keep) }, func(error) {
		b.replaying = nil
	})
}

// renew keeps the claim and its rows. An attempt whose row is lost is cancelled.
func (b *replaying) renew() {
	if b.over {
		return
	}
	b.later(b.lease/3, b.renew)
	b.call(extend, func() error {
		_, err := b.queue.extend(b.claim.key, b.lease)
		return err
	}, func(error) {})
	if b.replaying != b {
		return // it crashed
	}
	var ms []*attempted
	var leases []order.Lease
	for _, m := range b.members {
		if !m.settled {
			ms = append(ms, m)
			leases = append(leases, order.Lease{ID: m.order.ID, Version: m.order.Version})
		}
	}
	if len(ms) == 0 {
		return
	}
	var kept []bool
	b.call(renew, func() (err error) {
		kept, err = b.store.Renew(context.Background(), b.id, b.lease, leases)
		return err
	}, func(err error) {
		for i, m := range ms {
			if err == nil && !kept[i] {
				m.flight.cancel(order.Revoked)
			}
		}
	})
}

// afterAttempt asks the policy what follows, and may be told to make a mistake.
func (w *worker) afterAttempt(o *order.Order, a order.Answer) order.Transition {
	t := w.policy.AfterAttempt(o, a, w.now, w.rng.Float64())
	if w.options.Bug == ResendWithoutLookup && t.Phase == order.Unknown {
		t.Phase, t.NotBefore, t.Due = order.Replaying, w.now, w.now.Add(w.policy.ReplayPatience)
	}
	return t
}
