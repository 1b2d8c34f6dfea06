package breaker

import "time"

// snapshot describes the machine after a tick; start is the moment of its creation.
func (m *machine) snapshot(start time.Time) Snapshot {
	failure, slow, z := m.ring.failure, m.ring.slow, m.cfg.Z
	s := Snapshot{
		State: m.state, Mode: m.mode, Force: m.force, Generation: m.generation,
		Since: start.Add(m.since), Streak: m.streak,
		FailureSamples: failure.samples, Failures: failure.failures,
		FailureRate: wilson(failure.failures, failure.samples, 0), FailureBound: wilson(failure.failures, failure.samples, z),
		SlowSamples: slow.samples, SlowCalls: slow.slow,
		SlowRate: wilson(slow.slow, slow.samples, 0), SlowBound: wilson(slow.slow, slow.samples, z),
		Linked: m.linked(), Epoch: m.fleet.epoch, Own: m.fleet.joined && m.fleet.own,
		OpenStreak: m.openStreak, OpenWait: m.wait, Totals: m.totals,
	}
	if m.force != ForceNone {
		s.ForceEnds = start.Add(m.forceEnds)
	}
	switch m.state {
	case Closed:
		s.Share = 1
	case Open:
		s.NextProbe = start.Add(m.until)
		if m.force.holds() {
			s.NextProbe = s.ForceEnds
		}
	case HalfOpen:
		s.Probes = m.half.used + m.half.open
		s.Share = m.half.share
	}
	return s
}

// idle reports whether nothing would be lost if the machine were replaced by a new one: what it has counted has aged
// out, no operator changed it, and the growth of the open wait has no more to remember. It never moves the state.
func (m *machine) idle(now time.Duration) bool {
	if m.state != Closed || m.force != ForceNone || m.mode != m.cfg.Mode {
		return false
	}
	m.tick(now)
	return m.streak == 0 && m.ring.failure.samples == 0 && m.ring.slow.samples == 0 && (m.openStreak == 0 || m.healthy())
}
