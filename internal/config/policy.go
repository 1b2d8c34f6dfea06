package config

import "spillway/order"

// Policy returns the route's rules for what follows from outcomes and findings.
func (r *Route) Policy() order.Policy {
	return order.Policy{
		Degrade:             degrade(r.Degrade),
		ReplayAttempts:      r.Replay.Attempts,
		ReplayAttemptsTotal: r.Replay.AttemptsTotal,
		RetryDelay:          r.Replay.Delay,
		RetryDelayMax:       r.Replay.DelayMax,
		RetryAfterMax:       r.Replay.RetryAfterMax,
		ReplayPatience:      r.Replay.Patience,
		Reread:              r.Replay.Reread,
		CompensateAfter:     r.Compensate.After,
		CompensateAttempts:  r.Compensate.Attempts,
		LookupDelay:         r.Compensate.Delay,
		LookupDelayMax:      r.Compensate.DelayMax,
		Grace:               r.Compensate.Grace,
		FailNotFound:        r.Compensate.NotFound == NotFoundFail,
	}
}

// degrade reads a degrade rule that the check has let through.
func degrade(name string) order.Degrade {
	for _, d := range []order.Degrade{order.Spill, order.Hold, order.Skip} {
		if d.String() == name {
			return d
		}
	}
	return order.Spill
}
