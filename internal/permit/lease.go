package permit

import "time"

// Lease sets the cap as SetCap does, until a moment: after it the cap is 0, whether or not anybody is there to say so. Each
// permit handed out is checked against both clocks, since the monotonic one stands still while a machine is suspended. The
// zero time is no end. A cap that SetCap sets has none either.
func (p *Pool) Lease(n int, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cap, p.until = max(n, NoCap), until
	p.resize()
}

// Leased reports whether a call that has its permit may begin at now: always, but for a lease that is over.
func (p *Pool) Leased(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until.IsZero() || !past(now, p.until)
}

// Use tells what the pool needs of a fleet's permits. held is the most permits that may be in use until the next Lease:
// those leased, while they are, or those taken, where that is more. peak is the most that were taken at once since Use was
// asked last, limit what the pool would hand out without a cap, and short whether the cap kept, or may have kept, somebody
// waiting.
func (p *Pool) Use(now time.Time) (held, peak, limit int, short bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lapse(now)
	held, peak, limit = max(p.cap, p.inUse), max(p.peak, p.inUse), p.cfg.Limit
	short = p.cap >= 0 && p.cap < limit && (peak >= p.cap || p.waiting > 0)
	p.peak = p.inUse
	return held, peak, limit, short
}

// lapse ends a lease that is over at now. The lock is held.
func (p *Pool) lapse(now time.Time) {
	if p.ended(now) {
		p.cap = 0
		p.resize()
	}
}

// ended reports whether a lease that still counts is over at now. The lock is held.
func (p *Pool) ended(now time.Time) bool {
	return p.cap > 0 && !p.until.IsZero() && past(now, p.until)
}

// look is lapse before a permit is handed out; without a lease no clock is read. The lock is held.
func (p *Pool) look() {
	if p.cap > 0 && !p.until.IsZero() {
		p.lapse(time.Now())
	}
}

// past reports whether now is later by either clock.
func past(now, until time.Time) bool {
	return now.After(until) || now.Round(0).After(until.Round(0))
}
