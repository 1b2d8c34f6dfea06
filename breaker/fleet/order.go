package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"spillway/breaker"
)

// Bounds of an order.
const (
	maxOrder = 30 * 24 * time.Hour
	maxText  = 200
	maxTries = 10
)

// ErrNotForced is returned by Give for a release where nothing is forced.
var ErrNotForced = errors.New("the breaker is not forced")

// Order is what an operator wants of one breaker in the whole fleet.
type Order struct {
	Key      breaker.Key
	Force    breaker.Force // ForceNone releases
	For      time.Duration // 1 ms to 720 h; not looked at for a release
	Operator string        // who orders it, 1 to 200 bytes
	Reason   string        // why, 1 to 200 bytes
}

func (o Order) validate() error {
	var errs []error
	if o.Force > breaker.ForceObserve {
		errs = append(errs, fmt.Errorf("force %d, accepted: none, open, closed or observe", o.Force))
	}
	if o.Force != breaker.ForceNone && (o.For < time.Millisecond || o.For > maxOrder) {
		errs = append(errs, fmt.Errorf("duration %v, accepted: 1ms to 720h", o.For))
	}
	if n := len(o.Operator); n == 0 || n > maxText {
		errs = append(errs, fmt.Errorf("operator of %d bytes, accepted: 1 to %d", n, maxText))
	}
	if n := len(o.Reason); n == 0 || n > maxText {
		errs = append(errs, fmt.Errorf("reason of %d bytes, accepted: 1 to %d", n, maxText))
	}
	return errors.Join(errs...)
}

// Give puts an order into the record, from where every worker takes it within a second, and returns the record. It may
// be called by anybody who reaches the store; workers need not run. A second order replaces the first.
func Give(ctx context.Context, store Store, o Order) (breaker.Record, error) {
	if err := o.validate(); err != nil {
		return breaker.Record{}, fmt.Errorf("order for breaker %s: %w", o.Key, err)
	}
	for range maxTries {
		views, err := store.Look(ctx, []breaker.Key{o.Key})
		if err != nil {
			return breaker.Record{}, fmt.Errorf("order for breaker %s: %w", o.Key, err)
		}
		r := views[0].Record
		next, err := ordered(r, o)
		if err != nil {
			return r, fmt.Errorf("order for breaker %s: %w", o.Key, err)
		}
		note := &Note{Force: o.Force, For: next.ForceLeft, Operator: o.Operator, Reason: o.Reason, Epoch: next.Epoch}
		done, err := store.Move(ctx, []Move{{Key: o.Key, Expect: r.Epoch, Record: next, Note: note}})
		if err != nil {
			return r, fmt.Errorf("order for breaker %s: %w", o.Key, err)
		}
		if done[0] {
			return next, nil
		}
	}
	return breaker.Record{}, fmt.Errorf("order for breaker %s: the record moved %d times meanwhile", o.Key, maxTries)
}

// ordered is the record after an order. A record that is forced open or closed carries the state that comes after the
// force: half-open after open, because a service that was kept away from calls is met carefully, and closed after closed.
func ordered(r breaker.Record, o Order) (breaker.Record, error) {
	why := breaker.Grounds{Reason: breaker.ReasonForced}
	switch o.Force {
	case breaker.ForceNone:
		if r.Force == breaker.ForceNone {
			return r, ErrNotForced
		}
		r = endForce(r)
		r.By = "operator " + o.Operator
		return r, nil
	case breaker.ForceOpen:
		r = move(r, breaker.HalfOpen, why)
	case breaker.ForceClosed:
		r = move(r, breaker.Closed, why)
	case breaker.ForceObserve:
		if r.Force == breaker.ForceOpen || r.Force == breaker.ForceClosed {
			r = move(r, r.State, why)
		} else {
			r.Epoch++
		}
	}
	r.Force, r.ForceLeft, r.By = o.Force, o.For, "operator "+o.Operator
	return r, nil
}
