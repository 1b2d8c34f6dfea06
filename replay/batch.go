package replay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"spillway/order"
)

// member is one entry of a claim on its way.
type member struct {
	index   int // in the claim
	item    Item
	order   order.Order             // as begun
	ctx     context.Context         //nolint:containedctx // of its attempt, which the line starts later
	cancel  context.CancelCauseFunc // of ctx
	due     time.Time               // the end of the row's lease, by the last renewal; Engine.mu guards it
	answers chan<- *member          // takes it once answer is there
	answer  order.Answer
	next    order.Transition // what the answer makes of it
}

// end hands in the answer.
func (m *member) end(a order.Answer) {
	m.answer = a
	m.cancel(errReturned)
	m.answers <- m
}

// batch is one claim on its way. One goroutine runs it and owns all fields; attempts speak to it through answers.
type batch struct {
	*Engine
	claim    Claim
	asked    time.Time // for the claim
	finished Finished

	begun    map[int64]*member // attempt under way or not settled yet
	answers  chan *member      // buffered for all, so that no attempt waits
	unsettle []*member         // answered, to be settled
}

func (e *Engine) newBatch(claim Claim, asked time.Time) *batch {
	bytes := 0
	for _, data := range claim.Items {
		bytes += len(data)
	}
	e.enter(len(claim.Items), bytes)
	return &batch{
		Engine: e, claim: claim, asked: asked,
		begun:   make(map[int64]*member, len(claim.Items)),
		answers: make(chan *member, len(claim.Items)),
	}
}

// run takes the claim to its end. taking is Run's own context; calls ends the attempts, tail everything.
func (b *batch) run(taking, calls, tail context.Context) {
	members := b.read(tail)
	if taking.Err() == nil {
		members = b.begin(tail, members)
	} else {
		b.giveBack(members) // the end came between claim and begin
		members = nil
	}
	b.attempt(calls, members)
	if b.settleAll(tail) {
		b.finish(taking, tail)
	}
}

// read sorts out what cannot be read and what is there twice.
func (b *batch) read(ctx context.Context) []*member {
	var (
		members []*member
		bad     []int
		dead    []order.DeadRecord
	)
	seen := make(map[int64]bool, len(b.claim.Items))
	put := make(tenantWaits)
	for i, data := range b.claim.Items {
		item, err := DecodeItem(data)
		if err == nil && item.Route != b.cfg.Route {
			err = errors.New("entry belongs to route " + item.Route)
		}
		switch {
		case err != nil:
			bad = append(bad, i)
			dead = append(dead, order.DeadRecord{
				Route: b.cfg.Route, Raw: data, Reason: order.QueueItemUnreadable, Detail: err.Error(),
			})
		case seen[item.ID]:
			b.metrics.dropped.Inc()
			b.pass(i)
		default:
			seen[item.ID] = true
			if wait := b.paceTenant(put, &item.Message); wait > 0 {
				b.finished.Again = append(b.finished.Again, Entry{ID: item.ID, NotBefore: time.Now().Add(wait), Data: data})
				b.metrics.putOff.Inc()
				b.pass(i)
				continue
			}
			members = append(members, &member{index: i, item: item})
		}
	}
	if len(dead) > 0 {
		b.bury(ctx, bad, dead, seen)
	}
	return members
}

// tenantWaits is how long the entries of a claim were put off for the rate of their tenants.
type tenantWaits map[string]time.Duration

// maxTenantWait bounds it.
const maxTenantWait = time.Minute

// paceTenant takes the right of the tenant whose order it is, or says how long to put the entry off: each further one of
// the tenant a step longer, so that they do not all come back at once.
func (b *batch) paceTenant(put tenantWaits, m *order.Message) time.Duration {
	if b.cfg.Tenant == nil {
		return 0
	}
	tenant := b.cfg.Tenant(m)
	wait := b.attempter.PaceTenant(time.Now(), tenant)
	if wait > 0 {
		wait = min(put[tenant]+wait, maxTenantWait)
		put[tenant] = wait
	}
	return wait
}

// bury writes dead letters for the unreadable entries at these indexes, which stay queued if that goes wrong.
func (b *batch) bury(ctx context.Context, bad []int, dead []order.DeadRecord, readable map[int64]bool) {
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	err := b.store.Bury(bounded, dead)
	b.records.note(ctx, err, time.Now())
	for n, i := range bad {
		b.pass(i)
		if err != nil {
			b.finished.Keep = append(b.finished.Keep, i)
			continue
		}
		if id := guessID(dead[n].Raw); id > 0 && !readable[id] {
			b.finished.Done = append(b.finished.Done, id)
		}
		b.metrics.unreadable.Inc()
		b.log.WarnContext(ctx, "replay: an unreadable entry became a dead letter",
			slog.Int("bytes", len(dead[n].Raw)), slog.String("detail", dead[n].Detail))
	}
}

// begin starts the attempts of those whose rows still wait for one. If Postgres is away, all go back as they are.
func (b *batch) begin(ctx context.Context, members []*member) []*member {
	if len(members) == 0 {
		return nil
	}
	ids := make([]int64, len(members))
	for i, m := range members {
		ids[i] = m.item.ID
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	orders, err := b.store.Begin(bounded, b.cfg.Owner, b.cfg.Lease, ids)
	b.records.note(ctx, err, time.Now())
	if err != nil {
		b.giveBack(members)
		return nil
	}
	b.mu.Lock()
	b.line.claim.note(time.Since(b.asked))
	b.mu.Unlock()
	byID := make(map[int64]*order.Order, len(orders))
	for i := range orders {
		byID[orders[i].ID] = &orders[i]
	}
	var begun []*member
	for _, m := range members {
		o := byID[m.item.ID]
		if o == nil { // the order has moved on
			b.metrics.dropped.Inc()
			b.finished.Done = append(b.finished.Done, m.item.ID)
			b.pass(m.index)
			continue
		}
		m.order, m.due = *o, o.Due
		b.begun[o.ID] = m
		begun = append(begun, m)
	}
	return begun
}

// giveBack returns entries to the queue that nothing was begun for.
func (b *batch) giveBack(members []*member) {
	for _, m := range members {
		b.finished.Keep = append(b.finished.Keep, m.index)
		b.pass(m.index)
	}
}

// pass lets go of the room of an entry that is not attempted.
func (b *batch) pass(index int) {
	b.mu.Lock()
	b.line.claimed--
	b.mu.Unlock()
	b.leave(len(b.claim.Items[index]))
}

// attempt lines the begun orders up for their calls.
func (b *batch) attempt(ctx context.Context, members []*member) {
	for _, m := range members {
		m.answers = b.answers
		m.ctx, m.cancel = context.WithCancelCause(ctx) //nolint:fatcontext // one for each, of the same parent
		if m.order.Route == b.cfg.Route {
			b.lineUp(m)
			continue
		}
		// The entry names a row of another route: a queue that outlived its database, or a forgery. It must not be sent
		// here.
		b.log.ErrorContext(ctx, "replay: an entry names an order of another route",
			slog.Int64("order_id", m.order.ID), slog.String("order_route", m.order.Route))
		b.untried([]*member{m}, order.Answer{Outcome: order.OutcomeCancelled, Reason: order.QueueItemUnreadable})
	}
}

// gatherFor is how long the first answer waits for others: a statement for each few would cost Postgres several times as
// much, and nobody waits for it.
const gatherFor = 10 * time.Millisecond

// settleAll settles answers, renews the leases, and reports whether everything begun was settled before ctx ended. It
// returns only when all attempts have.
func (b *batch) settleAll(ctx context.Context) bool {
	renew := time.NewTicker(b.cfg.Lease / 3)
	defer renew.Stop()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	gathering := false
	for waiting := len(b.begun); waiting > 0 || len(b.unsettle) > 0; {
		select {
		case m := <-b.answers:
			waiting -= b.collect(m)
			switch {
			case waiting == 0:
				retry.Reset(b.settle(ctx))
			case !gathering:
				gathering = true
				retry.Reset(gatherFor)
			}
		case <-retry.C:
			gathering = false
			retry.Reset(b.settle(ctx))
		case <-renew.C:
			b.renew(ctx)
		case <-ctx.Done():
			for ; waiting > 0; waiting-- {
				m := <-b.answers
				b.unsettle = append(b.unsettle, m)
			}
			for _, m := range b.unsettle {
				b.leave(len(b.claim.Items[m.index]))
			}
			return false
		}
	}
	return true
}

// collect takes m and all other answers that are there, and says how many.
func (b *batch) collect(m *member) int {
	n := 0
	for {
		n++
		jitter := rand.Float64() //nolint:gosec // it spreads retries and guards nothing
		m.next = b.policy.Load().AfterAttempt(&m.order, m.answer, time.Now(), jitter)
		b.unsettle = append(b.unsettle, m)
		select {
		case m = <-b.answers:
		default:
			return n
		}
	}
}

// settle writes what the answers made of the orders. It returns when to try again what could not be written.
func (b *batch) settle(ctx context.Context) time.Duration {
	if len(b.unsettle) == 0 {
		return time.Hour
	}
	if wait, err := b.records.turn(time.Now()); err != nil {
		return wait
	}
	ss := make([]order.Settlement, len(b.unsettle))
	for i, m := range b.unsettle {
		ss[i] = m.order.Settle(m.next)
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	how, err := b.store.Settle(bounded, b.cfg.Owner, ss)
	b.records.note(ctx, err, time.Now())
	if err != nil {
		return b.cfg.Backoff
	}
	for i, m := range b.unsettle {
		b.settled(ctx, m, how[i])
	}
	b.unsettle = b.unsettle[:0]
	return time.Hour
}

// settled says what becomes of the entry of a settled order.
func (b *batch) settled(ctx context.Context, m *member, how order.Settled) {
	delete(b.begun, m.order.ID)
	b.leave(len(b.claim.Items[m.index]))
	b.metrics.settled(m.next, how)
	switch {
	case how == order.Conflict:
		b.log.ErrorContext(ctx, "replay: a late answer contradicts the order's final state",
			slog.Int64("order_id", m.order.ID), slog.String("number", m.order.Number), slog.String("answer", m.answer.Outcome.String()))
	case m.next.State == order.Dead && how == order.Applied:
		b.log.WarnContext(ctx, "replay: an order became a dead letter",
			slog.Int64("order_id", m.order.ID), slog.String("number", m.order.Number), slog.String("reason", string(m.next.Reason)))
	}
	// A stale settlement may be our own, repeated after its answer was lost. So an order we meant to try again stays
	// queued: should its row have moved on, the next begin drops it.
	if m.next.Phase == order.Replaying && m.order.Route == b.cfg.Route {
		o := m.order
		o.Attempts, o.AttemptsTotal, o.Reason = m.next.Attempts, m.next.AttemptsTotal, m.next.Reason
		entry, err := newEntry(&o, m.next.NotBefore, time.Now())
		if err == nil {
			b.finished.Again = append(b.finished.Again, entry)
			return
		}
		b.log.ErrorContext(ctx, "replay: an order is left to the scanner", slog.Any("error", err))
	}
	b.finished.Done = append(b.finished.Done, m.order.ID)
}

// renew extends the rows of what is under way and the claim, each in a time of its own: the rows are what keeps others from
// the orders, and a queue that does not answer must not cost them their leases. Both together end before the next time.
func (b *batch) renew(ctx context.Context) {
	b.renewRows(ctx)
	bounded, cancel := context.WithTimeout(ctx, min(b.cfg.Timeout, b.cfg.Lease/6))
	defer cancel()
	// A lost claim costs nothing but entries handed out twice: their rows are begun, and the second begin drops them.
	_, err := b.queue.Renew(bounded, b.claim, b.cfg.Lease)
	b.claims.note(ctx, err, time.Now())
}

// renewRows extends the leases of the rows. An attempt whose row was lost is cancelled: somebody else may act on the order
// now.
func (b *batch) renewRows(ctx context.Context) {
	var leases []order.Lease
	for _, m := range b.begun {
		leases = append(leases, order.Lease{ID: m.order.ID, Version: m.order.Version})
	}
	if len(leases) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, min(b.cfg.Timeout, b.cfg.Lease/6))
	defer cancel()
	asked := time.Now()
	held, err := b.store.Renew(bounded, b.cfg.Owner, b.cfg.Lease, leases)
	b.records.note(ctx, err, time.Now())
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, l := range leases {
		if held[i] {
			b.begun[l.ID].due = asked.Add(b.cfg.Lease)
		} else {
			b.begun[l.ID].cancel(errLeaseLost)
		}
	}
}

// finish ends the claim. While the queue does not answer it tries again, as long as the claim's lease surely lasts: with the
// lease's end all entries come back at once, also those that are to be tried later. What fails for longer is left to that;
// entries whose rows have moved on are dropped then.
func (b *batch) finish(taking, tail context.Context) {
	until := time.Now().Add(b.cfg.Lease / 2)
	for !b.finishOnce(tail) && taking.Err() == nil && time.Now().Before(until) {
		b.pause(taking, nil, b.cfg.Backoff)
	}
	b.queued(b.finished.Again)
	rouse(b.wake)
}

// finishOnce tries once to end the claim, and reports whether the queue answered.
func (b *batch) finishOnce(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	held, err := b.queue.Finish(bounded, b.claim, b.finished)
	b.claims.note(ctx, err, time.Now())
	if err == nil && !held {
		b.log.InfoContext(ctx, "replay: a claim's lease ran out before its end", slog.Int("entries", len(b.claim.Items)))
	}
	return err == nil
}
