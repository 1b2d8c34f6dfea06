package sim

import (
	"fmt"
	"time"
)

// event is something that will happen. Of two at the same moment the one planned first comes first.
type event struct {
	at  time.Time
	seq int
	do  func()
}

// timeline is a binary heap of events.
type timeline []event

func (t timeline) before(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].seq < t[j].seq
}

// push is the timeline with one more event.
func (t timeline) push(e event) timeline {
	t = append(t, e)
	for i := len(t) - 1; i > 0 && t.before(i, (i-1)/2); i = (i - 1) / 2 {
		t[i], t[(i-1)/2] = t[(i-1)/2], t[i]
	}
	return t
}

// pop is the first event and the timeline without it, which must not be empty.
func (t timeline) pop() (event, timeline) {
	first, last := t[0], len(t)-1
	t[0], t[last] = t[last], event{}
	t = t[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && t.before(child+1, child) {
			child++
		}
		if child >= last || !t.before(child, i) {
			return first, t
		}
		t[i], t[child] = t[child], t[i]
		i = child
	}
}

// at plans something for a moment, now at the earliest.
func (s *world) at(when time.Time, do func()) {
	if when.Before(s.now) {
		when = s.now
	}
	s.seq++
	s.timeline = s.timeline.push(event{at: when, seq: s.seq, do: do})
}

// after plans something for later, whoever is alive then.
func (s *world) after(d time.Duration, do func()) { s.at(s.now.Add(d), do) }

// step lets the next thing happen, and reports whether there was one.
func (s *world) step() bool {
	if len(s.timeline) == 0 {
		return false
	}
	var e event
	e, s.timeline = s.timeline.pop()
	s.now = e.at
	e.do()
	s.steps++
	return true
}

// chance is true with a probability.
func (s *world) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// between draws a duration.
func (s *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)+1))
}

// latency is how long a message travels one way.
func (s *world) latency() time.Duration {
	if s.chance(0.02) {
		return s.between(10*time.Millisecond, 80*time.Millisecond)
	}
	return s.between(200*time.Microsecond, 8*time.Millisecond)
}

// count notes that something happened at least once.
func (s *world) count(what string) { s.counts[what]++ }

// note adds a line to the trace.
func (s *world) note(format string, args ...any) {
	if s.options.Trace == 0 {
		return
	}
	line := fmt.Sprintf("%9.3fs ", s.now.Sub(epoch).Seconds()) + fmt.Sprintf(format, args...)
	s.trace = append(s.trace, line)
	if len(s.trace) > 2*s.options.Trace {
		s.trace = append(s.trace[:0], s.trace[len(s.trace)-s.options.Trace:]...)
	}
}
