package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/order"
)

// pushBytes is about how many bytes of entries go to the queue at once; a larger entry goes alone.
const pushBytes = 64 << 10

// Push puts orders, whose rows say REPLAYING already, into the queue. It returns order.ErrQueueFull when the bound is
// reached, and at once with the last error while the queue is known to be away. After an error some of the orders may
// be queued: pushing them again is harmless, and so is leaving them to the scanner.
func (e *Engine) Push(ctx context.Context, spilled []order.Spilled) error {
	if len(spilled) == 0 {
		return nil
	}
	if _, err := e.intake.turn(time.Now()); err != nil {
		return fmt.Errorf("push to the replay queue of route %s: %w", e.cfg.Route, err)
	}
	var unfit error
	entries := make([]Entry, 0, min(len(spilled), MaxPush))
	size := 0
	for i := range spilled {
		entry, err := newEntry(&spilled[i].Order, spilled[i].NotBefore, time.Now())
		if err != nil {
			unfit = errors.Join(unfit, err)
			continue
		}
		if len(entries) == MaxPush || (len(entries) > 0 && size+len(entry.Data) > pushBytes) {
			if err := e.push(ctx, entries); err != nil {
				return err
			}
			entries, size = entries[:0], 0
		}
		entries = append(entries, entry)
		size += len(entry.Data)
	}
	if len(entries) > 0 {
		if err := e.push(ctx, entries); err != nil {
			return err
		}
	}
	return unfit
}

// push is one call to the queue.
func (e *Engine) push(ctx context.Context, entries []Entry) error {
	bounded, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	err := e.queue.Push(bounded, entries)
	if errors.Is(err, order.ErrQueueFull) {
		e.intake.note(ctx, nil, time.Now()) // it answered
		e.metrics.full.Add(float64(len(entries)))
		return fmt.Errorf("route %s: %w", e.cfg.Route, err)
	}
	e.intake.note(ctx, err, time.Now())
	if err != nil {
		return fmt.Errorf("push to the replay queue of route %s: %w", e.cfg.Route, err)
	}
	e.metrics.pushed.Add(float64(len(entries)))
	e.queued(entries)
	rouse(e.wake)
	return nil
}

// newEntry makes the entry of an order that goes into the queue at now.
func newEntry(o *order.Order, notBefore, now time.Time) (Entry, error) {
	item := NewItem(o, now)
	data, err := item.Encode()
	if err != nil {
		return Entry{}, fmt.Errorf("order %d (%q) cannot be queued: %w", o.ID, o.Number, err)
	}
	return Entry{ID: o.ID, NotBefore: notBefore, Data: data}, nil
}

// Has says for each order whether it is in the queue.
func (e *Engine) Has(ctx context.Context, ids []int64) ([]bool, error) {
	if err := e.intake.peek(time.Now()); err != nil {
		return nil, fmt.Errorf("ask the replay queue of route %s: %w", e.cfg.Route, err)
	}
	bounded, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	has, err := e.queue.Has(bounded, ids)
	if err != nil {
		e.intake.note(ctx, err, time.Now())
		return nil, fmt.Errorf("ask the replay queue of route %s: %w", e.cfg.Route, err)
	}
	return has, nil
}

// Depths counts the queue, over all workers.
func (e *Engine) Depths(ctx context.Context) (Depths, error) {
	bounded, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	d, err := e.queue.Depths(bounded)
	if err != nil {
		return Depths{}, fmt.Errorf("count the replay queue of route %s: %w", e.cfg.Route, err)
	}
	e.metrics.saw(d)
	return d, nil
}

// Healthy returns nil, or why orders cannot be replayed or queued now. A full queue is healthy.
func (e *Engine) Healthy() error {
	for _, t := range []*track{&e.intake, &e.claims, &e.records} {
		if err := t.failing(); err != nil {
			return err
		}
	}
	return nil
}
