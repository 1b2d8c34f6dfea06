package scale

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"spillway/consumer"
)

// epoch is when every run begins.
var epoch = time.Unix(1_700_000_000, 0) //nolint:gochecknoglobals // a constant in all but name

// kind is what an event is.
type kind uint8

const (
	fetched  kind = iota // a broker answers
	admitted             // a batch has its rows
	ended                // a call has its answer
	settled              // the worker's outcomes are written
	late                 // a permit has been waited for too long
	assigned             // the partitions are dealt out
	drained              // the worker has given its partitions up at the latest
	arrivals             // records come in
	dealt                // the fleet's permits are dealt out
	ticked               // a second is over
	phased               // the next phase begins
	opened               // its last part begins, which is measured
)

// event is something that will happen to a worker, told apart from what was planned for an earlier tenure of it.
type event struct {
	at     time.Duration
	seq    int
	kind   kind
	worker int32
	tenure int32
	a, b   int32
}

// timeline is a binary heap of events.
type timeline []event

// before reports whether one event comes before another: of two at the same moment the one planned first.
func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

func (t *timeline) push(e event) {
	h := append(*t, e)
	for i := len(h) - 1; i > 0 && h[i].before(&h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	*t = h
}

func (t *timeline) pop() event {
	h := *t
	first, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if c >= n || !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	*t = h
	return first
}

// partition is one log, as counts.
type partition struct {
	end, next int64 // the log's end, and what is read next
	owner     int32 // -1: nobody
	rate      float64
	asked     time.Duration // when it was asked for last, or had nothing, or was dealt out
	poll      bool          // somebody waits for what comes
}

// world is everything in a run.
type world struct {
	Options

	now      time.Duration
	seq      int
	timeline timeline
	rng      *rand.Rand

	partitions []partition
	workers    []*worker
	down       downstream
	rebalance  int // counts them: what is planned for an earlier one is void
	phase      int
	slow       float64
	burst      []int32 // partitions in a burst

	*meter
}

// Run simulates and returns what was measured of each phase.
func Run(o Options) []Result {
	w := &world{
		Options: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), slow: 1, //nolint:gosec // a simulation
		partitions: make([]partition, o.Partitions), phase: -1,
	}
	w.meter = &meter{world: w}
	for i := range w.partitions {
		w.partitions[i] = partition{owner: -1}
	}
	for range o.Workers {
		w.join()
	}
	w.deal()
	w.plan(0, event{kind: phased})
	w.plan(0, event{kind: arrivals})
	w.plan(0, event{kind: dealt})
	w.plan(time.Second, event{kind: ticked})
	for w.phase < len(o.Phases) {
		e := w.timeline.pop()
		w.now = e.at
		w.do(e)
	}
	return w.results
}

// clock is the time as the gates have it.
func (w *world) clock() time.Time { return epoch.Add(w.now) }

func (w *world) plan(after time.Duration, e event) {
	w.seq++
	e.at, e.seq = w.now+max(after, 0), w.seq
	w.timeline.push(e)
}

// about draws a time around a median: lognormal, with a long tail of a few times as much.
func (w *world) about(median time.Duration, sigma float64) time.Duration {
	return time.Duration(float64(median) * math.Exp(sigma*w.rng.NormFloat64()))
}

func (w *world) do(e event) {
	switch e.kind {
	case arrivals:
		w.arrive()
		w.plan(100*time.Millisecond, e)
		return
	case dealt:
		w.share()
		w.plan(time.Second, e)
		return
	case ticked:
		w.tick()
		w.plan(time.Second, e)
		return
	case phased:
		w.nextPhase()
		return
	case opened:
		w.open()
		w.plan(w.Window, event{kind: phased})
		return
	case assigned:
		if int(e.a) == w.rebalance {
			w.assign()
		}
		return
	case fetched, admitted, ended, settled, late, drained: // a worker's
	}
	k := w.workers[e.worker]
	if e.kind == ended {
		w.down.release(w)
		k.ended(e)
		return
	}
	if k.tenure == e.tenure {
		k.do(e)
	}
}

// nextPhase ends one phase and begins the next.
func (w *world) nextPhase() {
	if w.phase >= 0 {
		w.close()
	}
	w.phase++
	if w.phase == len(w.Phases) {
		return
	}
	p := w.Phases[w.phase]
	w.slow = max(p.Slow, 1)
	total := 0.0
	for i, rank := range w.rng.Perm(w.Partitions) {
		w.partitions[i].rate = math.Pow(float64(rank+1), -p.Skew)
		total += w.partitions[i].rate
	}
	perSecond := p.Load * w.capacity()
	for i := range w.partitions {
		w.partitions[i].rate *= perSecond / total
	}
	for range p.Join {
		w.join()
	}
	for i := range p.Leave {
		w.leave(i)
	}
	if p.Join+p.Leave > 0 {
		w.rebalanced()
	}
	w.begin()
	w.plan(p.For-w.Window, event{kind: opened})
}

// capacity is how many calls the downstream can answer in a second.
func (w *world) capacity() float64 { return float64(w.FleetCap) / (w.Service.Seconds() * w.slow) }

// arrive lets a tenth of a second's records in.
func (w *world) arrive() {
	if b := w.Phases[min(w.phase, len(w.Phases)-1)].Bursts; b > 0 && w.rng.Float64() < 0.1/b.Seconds() {
		w.burst = w.burst[:0]
		for range w.Partitions / 10 {
			w.burst = append(w.burst, int32(w.rng.IntN(w.Partitions))) //nolint:gosec // below Partitions
		}
		for _, p := range w.burst { // five seconds of their load at once
			n := int64(w.partitions[p].rate * 5)
			w.partitions[p].end += n
			w.records += n
		}
	}
	for i := range w.partitions {
		p := &w.partitions[i]
		mean := p.rate / 10
		n := int64(mean)
		if w.rng.Float64() < mean-float64(n) {
			n++
		}
		if n == 0 {
			continue
		}
		if p.end == p.next {
			p.asked = w.now // from here on it has something
		}
		p.end += n
		w.records += n
		if p.poll && p.owner >= 0 {
			w.workers[p.owner].arrived(int32(i))
		}
	}
}

// downstream serves so many calls at once; others wait, first come first served.
type downstream struct {
	busy  int
	queue []event // of calls that wait
	most  int     // calls that were there at once
}

// call begins one, whose end is the event.
func (d *downstream) call(w *world, e event) {
	d.most = max(d.most, d.busy+len(d.queue)+1)
	if d.busy >= w.FleetCap {
		d.queue = append(d.queue, e)
		return
	}
	d.busy++
	w.plan(w.service(), e)
}

func (d *downstream) release(w *world) {
	d.busy--
	if len(d.queue) > 0 {
		d.busy++
		w.plan(w.service(), d.queue[0])
		d.queue = d.queue[1:]
	}
}

// service draws how long a call takes: lognormal with a mean of Service and a deviation of half of it.
func (w *world) service() time.Duration {
	const sigma = 0.47 // of the logarithm: sqrt(ln(1+0.5²))
	median := time.Duration(float64(w.Service) * w.slow * math.Exp(-sigma*sigma/2))
	return w.about(median, sigma)
}

// deal makes a rebalance that takes no time: the first one.
func (w *world) deal() {
	w.rebalance++
	w.assign()
}

// rebalanced makes every worker give its partitions up; once all have, they are dealt out.
func (w *world) rebalanced() {
	w.rebalance++
	for _, k := range w.workers {
		k.stop()
	}
	w.allDrained()
}

// allDrained deals the partitions out a join's time after the last worker is done.
func (w *world) allDrained() {
	for _, k := range w.workers {
		if k.draining {
			return
		}
	}
	w.plan(200*time.Millisecond, event{kind: assigned, a: int32(w.rebalance)}) //nolint:gosec // a handful
}

// assign deals the partitions out: as many as possible stay where they are, and counts differ by one at most.
func (w *world) assign() {
	var alive []*worker
	for _, k := range w.workers {
		if k.alive {
			k.parts = k.parts[:0]
			alive = append(alive, k)
		}
	}
	least, more := w.Partitions/len(alive), w.Partitions%len(alive)
	var homeless []int32
	for i := range w.partitions {
		p := &w.partitions[i]
		id := int32(i)
		if p.owner >= 0 && w.workers[p.owner].alive && len(w.workers[p.owner].parts) < least {
			w.workers[p.owner].parts = append(w.workers[p.owner].parts, id)
			continue
		}
		homeless = append(homeless, id)
	}
	slices.SortStableFunc(alive, func(a, b *worker) int { return len(a.parts) - len(b.parts) })
	for i, k := range alive {
		want := least
		if i < more {
			want++
		}
		for len(k.parts) < want && len(homeless) > 0 {
			k.parts = append(k.parts, homeless[0])
			homeless = homeless[1:]
		}
	}
	for _, k := range alive {
		k.start()
	}
}

// share deals the fleet's permits out by demand, as evenly as it goes: nobody gets more than it wants while another has
// less than it wants and less than the first. A worker that wants nothing keeps one.
func (w *world) share() {
	left := w.FleetCap
	var open []*worker
	wanted := 0
	for _, k := range w.workers {
		if !k.alive {
			left -= k.flying // of a worker that left: its calls still run
			continue
		}
		k.wants = k.demand()
		wanted += k.wants
		open = append(open, k)
	}
	slices.SortStableFunc(open, func(a, b *worker) int { return a.wants - b.wants })
	for i, k := range open {
		got := min(k.wants, max(left/(len(open)-i), 0))
		left -= got
		k.allotted = got
	}
	// What nobody wants now may be wanted within the second, the more the more somebody wants already.
	for i, total := len(open)-1, left; i >= 0 && left > 0; i-- {
		n := min(total*open[i].wants/max(wanted, 1)+1, left)
		open[i].allotted += n
		left -= n
	}
	// What somebody else still uses above its new share is not there yet.
	used := 0
	for _, k := range w.workers {
		used += max(k.flying-k.allotted, 0)
	}
	for _, k := range slices.Backward(open) {
		if spare := k.allotted - k.flying; used > 0 && spare > 0 {
			n := min(used, spare)
			k.allotted -= n
			used -= n
		}
	}
	for _, k := range open {
		k.gate.SetPermits(k.allotted)
		k.pump()
	}
}

// join adds a worker without partitions.
func (w *world) join() {
	k := &worker{world: w, id: int32(len(w.workers)), alive: true, gate: consumer.NewGate(w.Limits, consumer.Learned{})} //nolint:gosec // thousands
	k.allotted = w.FleetCap / max(w.Workers, 1)
	w.workers = append(w.workers, k)
}

// leave makes the i-th living worker leave, once it has drained.
func (w *world) leave(i int) {
	for j := i * 7; ; j++ {
		if k := w.workers[j%len(w.workers)]; k.alive {
			k.alive = false
			return
		}
	}
}
