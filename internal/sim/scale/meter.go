package scale

import (
	"math"
	"time"

	"spillway/consumer"
)

// Result is what was measured in the window at the end of a phase.
type Result struct {
	Phase    string
	Goodput  float64       // calls a second
	Capacity float64       // what the downstream could have answered
	Offered  float64       // records a second that came in
	Spread   float64       // of the goodput from second to second: deviation by mean
	Pauses   float64       // by partition and minute
	Starved  time.Duration // the longest that a partition with records was not asked for
	Held     int64         // the most bytes that a worker held and had reserved
	Waiting  int64         // the most bytes that waited for permits in a worker
	InFlight int           // the most calls at the downstream at once
	Fetches  float64       // by worker and second
	Store    float64       // statements of admission and settlement by worker and second
	Recovery time.Duration // after a rebalance: until goodput was back at 90 % for a second; 0 without one
	Bound    map[consumer.Constraint]float64
}

// counts is what is counted of the fleet, from the beginning.
type counts struct {
	completed, requests, statements, records int64

	pauses uint64
	bound  map[consumer.Constraint]time.Duration
}

// meter measures.
type meter struct {
	*world
	results []Result
	counts

	begun   time.Duration // the phase
	opened  time.Duration // the window
	before  counts        // as it was opened
	starved time.Duration
	held    int64
	queued  int64
	seconds []float64 // completed in each second of the window
	last    int64     // completed when the last second ended
	back    time.Duration
}

// sawAsked notes how long a partition that has records was not asked for.
func (m *meter) sawAsked(p *partition) {
	if p.end > p.next {
		m.starved = max(m.starved, m.now-p.asked)
	}
}

func (m *meter) sawLevel(l consumer.Level) {
	m.held = max(m.held, l.HeldBytes+l.ReservedBytes)
	m.queued = max(m.queued, l.WaitingBytes)
}

// begin begins a phase.
func (m *meter) begin() { m.begun, m.back = m.now, 0 }

// tick ends a second.
func (m *meter) tick() {
	n := float64(m.completed - m.last)
	m.last = m.completed
	if m.now-m.opened >= time.Second {
		m.seconds = append(m.seconds, n)
	}
	if m.back == 0 && n >= 0.9*m.capacity() {
		m.back = m.now - m.begun
	}
}

// count takes the sums of all gates.
func (m *meter) count() counts {
	c := m.counts
	c.pauses, c.bound = 0, make(map[consumer.Constraint]time.Duration)
	for _, k := range m.workers {
		c.pauses += k.gate.Pauses()
		if !k.alive {
			continue
		}
		for what, d := range k.gate.Bound(m.clock()) {
			c.bound[what] += d
		}
	}
	return c
}

// open begins the window.
func (m *meter) open() {
	m.opened, m.before = m.now, m.count()
	m.starved, m.held, m.queued, m.down.most = 0, 0, 0, 0
	m.seconds, m.last = nil, m.completed
}

// close ends the window and the phase.
func (m *meter) close() {
	p, was, is := m.Phases[m.phase], m.before, m.count()
	for i := range m.partitions {
		if q := &m.partitions[i]; q.owner >= 0 {
			m.sawAsked(q)
		}
	}
	alive := 0
	for _, k := range m.workers {
		if k.alive {
			alive++
		}
	}
	per := func(n int64) float64 { return float64(n) / m.Window.Seconds() }
	r := Result{
		Phase: p.Name, Goodput: per(is.completed - was.completed), Capacity: m.capacity(), Offered: per(is.records - was.records),
		Spread:  spread(m.seconds),
		Pauses:  float64(is.pauses-was.pauses) / float64(m.Partitions) / m.Window.Minutes(),
		Starved: m.starved, Held: m.held, Waiting: m.queued, InFlight: m.down.most,
		Fetches: per(is.requests-was.requests) / float64(alive), Store: per(is.statements-was.statements) / float64(alive),
		Bound: make(map[consumer.Constraint]float64),
	}
	if p.Join+p.Leave > 0 {
		r.Recovery = m.back
	}
	total := m.Window.Seconds() * float64(alive)
	for what, d := range is.bound {
		if share := (d - was.bound[what]).Seconds() / total; share > 0 {
			r.Bound[what] = share
		}
	}
	m.results = append(m.results, r)
}

// spread is the deviation of some numbers by their mean.
func spread(xs []float64) float64 {
	mean, sum := 0.0, 0.0
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		sum += (x - mean) * (x - mean) / float64(len(xs))
	}
	return math.Sqrt(sum) / max(mean, 1)
}
