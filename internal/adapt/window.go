package adapt

import (
	"math"
	"time"
)

// part is what a window is for.
type part int

const (
	atBase part = iota
	trial       // a little above: shows what more calls bring
	low         // far below: shows the latency of the unloaded service
)

const (
	leastTime  = 50 * time.Millisecond  // that calls count in a window
	mostTime   = 750 * time.Millisecond // unless it takes longer to see a few
	leastTrips = 1                      // mean latencies that they count at least
	leastCalls = 10                     // fewer tell nothing
	precision  = 0.04                   // of the mean latency: its standard error, below which the window has seen enough
	busyShare  = 0.9                    // of the limit in flight: only then is it the limit that holds calls back
)

// window sums calls that began in one stretch of time under one limit. Its first mean latency does not count, in which the
// service settles. After its last counted call has begun it stays in force for another one and a half, so that those under
// way end as they began; what is later still is taken in while the next window runs, or the slowest calls would be missed.
type window struct {
	part    part
	limit   int
	begun   time.Time
	counts  time.Time // calls that begin earlier do not count
	stopped time.Time // calls that begin later do not count; zero while all do

	calls    int     // answered
	latency  float64 // sum, in seconds
	squares  float64 // of the latencies, summed
	inFlight float64 // sum
	drops    int     // in all of it
}

// add takes in a call. One that began before the window, or says nothing, is passed over.
func (w *window) add(began, ended time.Time, inFlight int, kind Kind) {
	switch {
	case kind == Ignored || began.Before(w.begun):
	case kind == Dropped:
		w.drops++
	case began.Before(w.counts) || !w.stopped.IsZero() && began.After(w.stopped):
	default:
		took := max(ended.Sub(began), time.Microsecond).Seconds()
		w.calls++
		w.latency += took
		w.squares += took * took
		w.inFlight += float64(inFlight)
	}
}

// over reports whether the window has seen enough. It is asked with each call that ends.
func (w *window) over(now time.Time) bool {
	if w.harmful() {
		return true
	}
	trip := w.counts.Sub(w.begun)
	if w.enough() {
		trip = w.trip()
	}
	if !w.stopped.IsZero() {
		return now.Sub(w.stopped) >= trip*3/2
	}
	age := now.Sub(w.counts)
	if age < max(leastTime, leastTrips*trip) {
		return false
	}
	if w.sure() || age >= mostTime && w.calls+w.drops >= leastCalls || age >= 4*mostTime {
		w.stopped = now
	}
	return false
}

// enough reports whether the window's means say anything.
func (w *window) enough() bool { return w.calls >= leastCalls }

// sure reports whether its mean latency is known well.
func (w *window) sure() bool {
	if !w.enough() {
		return false
	}
	return w.variance() <= precision*precision
}

// variance is that of the mean latency's logarithm.
func (w *window) variance() float64 {
	n, mean := float64(w.calls), w.meanLatency()
	return max(w.squares/n-mean*mean, 0) / n / (mean * mean)
}

// harmful reports whether most of what it tried was dropped.
func (w *window) harmful() bool { return w.drops >= 2*leastCalls && w.dropShare() > dropMost }

// busy reports whether the limit was used.
func (w *window) busy() bool { return w.meanInFlight() >= busyShare*float64(w.limit) }

func (w *window) meanLatency() float64  { return w.latency / float64(max(w.calls, 1)) }
func (w *window) meanInFlight() float64 { return w.inFlight / float64(max(w.calls, 1)) }

// trip is the mean latency as a time; 0 while there is none.
func (w *window) trip() time.Duration { return time.Duration(w.meanLatency() * float64(time.Second)) }

func (w *window) dropShare() float64 { return float64(w.drops) / float64(max(w.calls+w.drops, 1)) }

// slope is the elasticity of the latency between two windows, how far apart they are in the logarithm of the concurrency,
// and the variance of the elasticity.
func slope(a, b *window) (e, apart, variance float64) {
	apart = math.Log(b.meanInFlight() / a.meanInFlight())
	e = math.Log(b.meanLatency()/a.meanLatency()) / apart
	return e, math.Abs(apart), (a.variance() + b.variance()) / (apart * apart)
}
