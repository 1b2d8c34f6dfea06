package kafka

import (
	"math/rand/v2"
	"time"
)

// backoff grows from least to most, doubling, with a fifth of jitter either way.
type backoff struct {
	least, most time.Duration
	tries       int
}

// next counts a failure and returns how long to wait after it.
func (b *backoff) next() time.Duration {
	const doublings = 20 // more would overflow before most is reached
	wait := min(b.least<<min(b.tries, doublings), b.most)
	b.tries++
	return wait - wait/5 + rand.N(wait*2/5+1) //nolint:gosec // jitter need not be unguessable
}

// reset forgets the failures.
func (b *backoff) reset() { b.tries = 0 }
