package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// route is the name of the one route.
const route = "orders"

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant that Go cannot write as one

// world is everything there is in a run. One goroutine moves it.
type world struct {
	options Options
	numbers

	rng      *rand.Rand
	now      time.Time
	timeline timeline
	seq      int
	steps    int
	calmed   bool // faults are over
	ended    *ViolationError
	counts   map[string]int
	trace    []string

	topic   *topic
	group   *group
	store   *record
	queue   *queue
	down    *downstream
	checker *checker
	workers []*worker
}

// Run tells the story of a seed: faults for a while, then calm, until everything is settled. It is a pure function of
// its arguments.
func Run(seed uint64, options Options) Report {
	s := &world{
		options: options, now: epoch, counts: map[string]int{},
		rng: rand.New(rand.NewPCG(seed, 0x5b111)), //nolint:gosec // a simulation is meant to be repeated
	}
	s.choose()
	s.checker = newChecker(s)
	s.topic = newTopic(s)
	s.group = newGroup(s)
	s.store = newRecord(s)
	s.queue = newQueue(s)
	s.down = newDownstream(s)
	for i := range s.numbers.workers {
		w := &worker{world: s, name: fmt.Sprintf("w%d", i+1)}
		s.workers = append(s.workers, w)
		s.after(s.between(0, time.Second), w.start)
	}
	s.topic.produce()
	s.nemesis()
	s.operator()
	s.after(s.chaos, s.calm)
	for s.ended == nil && !s.settled() && s.step() {
		s.checker.check()
	}
	if s.ended == nil {
		s.checker.conclude()
	}
	r := Report{
		Seed: seed, Steps: s.steps, Took: s.now.Sub(epoch), Violation: s.ended, Counts: s.counts, Trace: s.trace,
	}
	if n := len(r.Trace) - options.Trace; n > 0 {
		r.Trace = r.Trace[n:]
	}
	return r
}

// violate ends the run. The first violation counts.
func (s *world) violate(invariant, format string, args ...any) {
	if s.ended != nil {
		return
	}
	s.ended = &ViolationError{Invariant: invariant, Text: fmt.Sprintf(format, args...)}
	s.note("VIOLATION %v", s.ended)
}

// calm ends all faults. A little later each partition gets one more record: whoever stopped listening is found out.
func (s *world) calm() {
	s.calmed = true
	s.note("calm")
	s.store.awayUntil, s.queue.awayUntil = s.now, s.now
	s.down.mode, s.down.lookups = healthy, lookupsHealthy
	s.after(4*time.Second, s.topic.finish)
	s.after(calm, func() { s.checker.stuck() })
}

// settled reports whether nothing is left to happen.
func (s *world) settled() bool {
	return s.calmed && s.topic.finished && s.checker.quiet()
}
