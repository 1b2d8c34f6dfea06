package sim

import (
	"container/heap"
	"fmt"
	"time"
)

// event is something that will happen. Of two at the same moment the one planned first comes first.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type timeline []event

func (t timeline) Len() int { return len(t) }

func (t timeline) Less(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].seq < t[j].seq
}

func (t timeline) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timeline) Push(x any) { *t = append(*t, x.(event)) } //nolint:errcheck,forcetypeassert // heap.Push is called with events alone

// Pop implements heap.Interface.
func (t *timeline) Pop() any {
	last := len(*t) - 1
	e := (*t)[last]
	(*t)[last] = event{}
	*t = (*t)[:last]
	return e
}

// at plans something for a moment, now at the earliest.
func (s *world) at(when time.Time, do func()) {
	if when.Before(s.now) {
		when = s.now
	}
	s.seq++
	heap.Push(&s.timeline, event{at: when, seq: s.seq, do: do})
}

// after plans something for later, whoever is alive then.
func (s *world) after(d time.Duration, do func()) { s.at(s.now.Add(d), do) }

// step lets the next thing happen, and reports whether there was one.
func (s *world) step() bool {
	if len(s.timeline) == 0 {
		return false
	}
	e, ok := heap.Pop(&s.timeline).(event)
	if !ok {
		return false
	}
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
