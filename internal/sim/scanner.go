package sim

import (
	"context"
	"time"

	"spillway/order"
)

// scanned is what the scanner claimed: it looks up what is unknown and queues again what the replay queue forgot.
type scanned struct {
	*worker
	id      string // owner of the claims
	claimed time.Time
}

// scan claims what is due, one claim at a time.
func (w *worker) scan() {
	w.later(scanEvery, w.scan)
	if w.scanning > 0 || w.stopping {
		return
	}
	b := &scanned{worker: w, id: w.owner(), claimed: w.now}
	w.scanning = 1
	var orders []order.Order
	w.call(scan, func() (err error) {
		orders, err = w.store.ClaimDue(context.Background(), b.id, w.lease, w.batch)
		return err
	}, func(err error) {
		if err != nil {
			orders = nil
		}
		w.scanning = len(orders)
		var replaying []order.Order
		life := w.life
		for _, o := range orders {
			if o.Phase == order.Replaying {
				replaying = append(replaying, o)
				continue
			}
			if b.look(o); w.life != life {
				return
			}
		}
		if len(replaying) > 0 {
			b.rescue(replaying)
		}
	})
}

// rescue puts orders into the replay queue again that it does not have, and puts all of them off.
func (b *scanned) rescue(orders []order.Order) {
	ids := make([]int64, len(orders))
	leases := make([]order.Lease, len(orders))
	for i, o := range orders {
		ids[i] = o.ID
		leases[i] = order.Lease{ID: o.ID, Version: o.Version}
	}
	putOff := func() {
		b.call(renew, func() error {
			_, err := b.store.Renew(context.Background(), b.id, b.policy.ReplayPatience, leases)
			return err
		}, func(error) { b.scanning -= len(orders) })
	}
	var there []bool
	b.call(has, func() (err error) {
		there, err = b.queue.has(ids)
		return err
	}, func(err error) {
		var entries []queued
		for i, id := range ids {
			if err == nil && !there[i] {
				entries = append(entries, queued{id: id, ready: b.now})
			}
		}
		if len(entries) == 0 {
			putOff()
			return
		}
		b.call(push, func() error { return b.queue.push(entries) }, func(err error) {
			if err == nil {
				b.count("rescue")
			}
			putOff()
		})
	})
}

// look asks the downstream what became of an order, once there is a permit.
func (b *scanned) look(o order.Order) {
	if b.now.Sub(b.claimed) > b.lease/2 {
		b.decide(o, order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeRefused, Reason: order.BulkheadFull}, b.now)
		return
	}
	if !b.acquire() {
		b.later(20*time.Millisecond, func() { b.look(o) })
		return
	}
	began := b.now
	b.lookup(o, func(f order.Finding) { b.decide(o, f, began) })
}

// lookup makes one lookup with a permit the caller holds.
func (w *worker) lookup(o order.Order, done func(order.Finding)) {
	p, ok := w.lookups.AllowAt(w.now)
	if !ok {
		w.free++
		done(order.Finding{Verdict: order.VerdictRefused, Outcome: order.OutcomeRefused, Reason: order.CircuitOpen})
		return
	}
	over := false
	land := func(f order.Finding) {
		if over {
			return
		}
		over = true
		w.later(0, func() {
			f.Probe = p.Probe()
			w.lookups.DoneAt(w.now, p, verdict(f.Outcome, f.Probe))
			w.free++
			w.count("verdict " + f.Verdict.String())
			done(f)
		})
	}
	life, fault := w.life, w.fault(lookup)
	if fault == crashBefore {
		w.crash()
		return
	}
	if fault == errorBefore {
		land(order.Finding{Outcome: order.OutcomeNotSent, Reason: order.ConnectFailed})
		return
	}
	w.after(w.timeout, func() {
		if w.life == life {
			land(order.Finding{Outcome: order.OutcomeUnknown, Reason: order.UpstreamTimeout})
		}
	})
	w.after(w.latency(), func() {
		f, delay, ok := w.down.lookup(&o)
		if w.life != life {
			return
		}
		if fault == sleepAfter {
			w.sleep()
		}
		switch {
		case fault == crashAfter:
			w.crash()
		case fault == errorAfter:
			land(order.Finding{Outcome: order.OutcomeUnknown, Reason: order.UpstreamReset})
		case ok:
			w.after(delay, func() {
				if w.life == life {
					land(f)
				}
			})
		}
	})
}

// decide settles what a lookup showed. The policy is told when the lookup began: "not found" from before the end of
// the grace is not believed for having been read after it.
func (b *scanned) decide(o order.Order, f order.Finding, began time.Time) {
	b.count("compensate")
	t := b.policy.AfterLookup(&o, f, began, b.rng.Float64())
	b.settle(o, t, retryFirst)
}

func (b *scanned) settle(o order.Order, t order.Transition, wait time.Duration) {
	b.call(settle, func() error {
		_, err := b.store.Settle(context.Background(), b.id, []order.Settlement{o.Settle(t)})
		return err
	}, func(err error) {
		switch {
		case err != nil && b.now.Sub(b.claimed) > b.lease:
			b.scanning--
		case err != nil:
			b.later(wait, func() { b.settle(o, t, min(2*wait, retryMax)) })
		case t.Phase == order.Replaying:
			b.call(push, func() error { return b.queue.push([]queued{{id: o.ID, ready: t.NotBefore}}) }, func(error) { b.scanning-- })
		default:
			b.scanning--
		}
	})
}
