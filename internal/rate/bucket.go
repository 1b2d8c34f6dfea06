package rate

import (
	"math"
	"time"
)

const (
	// longestWait bounds what a refusal says to wait: limits move, and who waits longer would not notice.
	longestWait = time.Second
	// shortestWait keeps a refusal from asking for a hot loop.
	shortestWait = 50 * time.Microsecond
)

// bucket is a token bucket. The zero value limits nothing.
type bucket struct {
	on     bool
	rate   float64 // tokens per second
	most   float64 // tokens it holds, at least 1
	tokens float64
	at     time.Time // of tokens
}

// set changes the limit from now on. A bucket that is switched on holds start tokens.
func (b *bucket) set(now time.Time, on bool, rate, most, start float64) {
	if !on {
		*b = bucket{}
		return
	}
	if b.on {
		b.fill(now)
	} else {
		b.tokens, b.at = start, now
	}
	b.on, b.rate, b.most = true, rate, max(most, 1)
	b.tokens = min(b.tokens, b.most)
}

// fill brings the tokens to now. Callers read the clock before they wait for the lock, so now may be a little earlier than
// it was; a clock that was set back starts the count anew and gives nothing for it.
func (b *bucket) fill(now time.Time) {
	d := now.Sub(b.at)
	if d > 0 {
		b.tokens = min(b.most, b.tokens+d.Seconds()*b.rate)
		b.at = now
	} else if d < -longestWait {
		b.at = now
	}
}

// lacks is how long until the bucket holds need tokens; 0 if it does now. Call fill before.
func (b *bucket) lacks(need float64) time.Duration {
	if !b.on || b.tokens >= need {
		return 0
	}
	if b.rate <= 0 {
		return longestWait
	}
	s := math.Ceil((need - b.tokens) / b.rate * 1e9)
	return max(shortestWait, time.Duration(min(s, float64(longestWait))))
}

// take takes one token, which is there.
func (b *bucket) take() {
	if b.on {
		b.tokens--
	}
}

// put gives one back.
func (b *bucket) put() {
	if b.on {
		b.tokens = min(b.most, b.tokens+1)
	}
}

// burst is what a bucket of the rate holds: a tenth of a second's worth, so that who sleeps a few milliseconds too long
// loses nothing.
func burst(rate float64) float64 { return max(1, rate/10) }
