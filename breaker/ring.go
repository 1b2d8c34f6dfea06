package breaker

import "time"

// bucket counts the results of one second.
type bucket struct{ samples, failures, slow int32 }

// ring holds one-second buckets as far back as the longer of two windows reaches, and the running sums of both, so
// that neither recording nor judging walks over buckets.
type ring struct {
	buckets []bucket
	second  int64 // the second the current bucket stands for
	at      int   // index of the current bucket

	failureSpan, slowSpan int // window lengths in buckets
	failure               sum // what the failure window holds
	slow                  sum // what the slow window holds
}

// sum is what a window holds: its samples and how many of them are bad in the window's sense.
type sum struct{ samples, failures, slow int }

func (s *sum) add(b bucket, sign int) {
	s.samples += sign * int(b.samples)
	s.failures += sign * int(b.failures)
	s.slow += sign * int(b.slow)
}

func newRing(failureWindow, slowWindow time.Duration) ring {
	r := ring{failureSpan: int(failureWindow / time.Second), slowSpan: int(slowWindow / time.Second)}
	r.buckets = make([]bucket, max(r.failureSpan, r.slowSpan))
	return r
}

// advance makes the bucket of the given second current. Seconds never go back.
func (r *ring) advance(second int64) {
	gap := second - r.second
	if gap <= 0 {
		return
	}
	r.second = second
	if gap >= int64(len(r.buckets)) {
		r.clear()
		return
	}
	for range gap {
		r.at = r.index(1)
		r.failure.add(r.buckets[r.index(-r.failureSpan)], -1)
		r.slow.add(r.buckets[r.index(-r.slowSpan)], -1)
		r.buckets[r.at] = bucket{}
	}
}

// index returns the place of the bucket that lies offset buckets after the current one; |offset| <= len(buckets).
// An offset of -len is the current place itself: the oldest bucket, about to be overwritten.
func (r *ring) index(offset int) int {
	i := r.at + offset
	if i < 0 {
		i += len(r.buckets)
	}
	if i >= len(r.buckets) {
		i -= len(r.buckets)
	}
	return i
}

// add counts n results of one kind in the current second.
func (r *ring) add(result Result, n int) {
	b := bucket{samples: int32(n)} //nolint:gosec // n is a count of permits of a few seconds
	switch result {
	case Failure:
		b.failures = b.samples
	case Slow:
		b.slow = b.samples
	case Success:
	case Ignored:
		return
	}
	current := &r.buckets[r.at]
	current.samples += b.samples
	current.failures += b.failures
	current.slow += b.slow
	r.failure.add(b, 1)
	r.slow.add(b, 1)
}

// clear forgets every sample and keeps the time.
func (r *ring) clear() {
	clear(r.buckets)
	r.failure, r.slow = sum{}, sum{}
}

// take adds what another ring of the same shape holds, second by second. A ring without buckets takes nothing.
func (r *ring) take(from *ring) {
	if len(r.buckets) == 0 || from.failure.samples == 0 && from.slow.samples == 0 {
		return
	}
	r.advance(from.second)
	for age := range len(r.buckets) {
		b := from.buckets[from.index(-age)]
		to := &r.buckets[r.index(-age)]
		to.samples += b.samples
		to.failures += b.failures
		to.slow += b.slow
		if age < r.failureSpan {
			r.failure.add(b, 1)
		}
		if age < r.slowSpan {
			r.slow.add(b, 1)
		}
	}
}
