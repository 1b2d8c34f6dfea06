package consumer

import (
	"math"
	"time"
)

// rate is an exponentially decayed rate with a time constant of one second: after each event of size v it is
// r·e^(−Δt/τ) + v/τ.
type rate struct {
	value float64
	at    time.Time
}

func (r *rate) add(now time.Time, v float64) {
	r.value = r.perSecond(now) + v
	r.at = now
}

func (r *rate) perSecond(now time.Time) float64 {
	if r.at.IsZero() {
		return 0
	}
	return r.value * math.Exp(-max(now.Sub(r.at), 0).Seconds())
}

// span is how long something takes, smoothed as TCP smooths its round trip (RFC 6298): a mean and a mean deviation.
type span struct {
	mean, deviation float64 // seconds
	seen            bool
}

func (s *span) add(took time.Duration) {
	d := max(took.Seconds(), 0)
	if !s.seen {
		s.mean, s.deviation, s.seen = d, d/2, true
		return
	}
	s.deviation += (math.Abs(s.mean-d) - s.deviation) / 4
	s.mean += (d - s.mean) / 8
}

// most is what it seldom takes longer than: the mean and four deviations, as TCP's retransmission timer has it.
func (s *span) most() time.Duration {
	return time.Duration((s.mean + 4*s.deviation) * float64(time.Second))
}
