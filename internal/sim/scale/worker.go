package scale

import (
	"slices"
	"time"

	"spillway/consumer"
)

const (
	batchRecords = 500
	admitters    = 2
	longPoll     = 500 * time.Millisecond
	settleEvery  = 15 * time.Millisecond
	permitWait   = 20 * time.Millisecond
	batchOf      = 20 // records in one of the log's batches: the first partition of a request gets so many at least
)

// run is some records of one partition, in a line.
type run struct {
	partition int32
	records   int
}

// line is records in order.
type line struct {
	runs    []run
	records int
}

func (l *line) push(p int32, n int) {
	l.records += n
	if k := len(l.runs); k > 0 && l.runs[k-1].partition == p {
		l.runs[k-1].records += n
		return
	}
	l.runs = append(l.runs, run{p, n})
}

// pop takes one record.
func (l *line) pop() (partition int32) {
	r := &l.runs[0]
	partition = r.partition
	l.records--
	if r.records--; r.records == 0 {
		if l.runs = l.runs[1:]; len(l.runs) == 0 {
			l.runs = nil
		}
	}
	return partition
}

// fetch is a request to one broker.
type fetch struct {
	grants []consumer.Grant
	number int32 // of the request: an answer to an earlier one is void
	polls  bool  // it waits for records
}

// worker is one, with its gate.
type worker struct {
	*world
	id       int32
	alive    bool
	gate     *consumer.Gate
	parts    []int32
	byBroker map[int32][]int32
	order    []int32 // of the brokers
	fetches  map[int32]*fetch
	hungry   map[int32]bool
	tenure   int32

	pending, ready line
	admitting      []line // batches under way
	flying         int
	allotted       int
	wants          int
	area           time.Duration // calls in flight and orders that wait for a permit, by time, since permits were dealt out
	areaAt         time.Duration
	done           int // calls that are over and not settled
	settling       bool
	waiting        bool // for a permit
	since          time.Duration
	timer          bool // is set
	draining       bool
}

// start begins a tenure with the partitions dealt out.
func (k *worker) start() {
	k.tenure++
	k.byBroker, k.fetches, k.hungry = map[int32][]int32{}, map[int32]*fetch{}, map[int32]bool{}
	k.order = k.order[:0]
	var ps []consumer.Position
	for _, id := range k.parts {
		p := &k.partitions[id]
		p.owner, p.poll, p.asked = k.id, false, k.now
		ps = append(ps, consumer.Position{Partition: id, Offset: p.next})
		b := id % int32(k.Brokers) //nolint:gosec // a handful
		if k.byBroker[b] == nil {
			k.order = append(k.order, b)
		}
		k.byBroker[b] = append(k.byBroker[b], id)
	}
	k.gate.Assign(k.clock(), ps)
	k.pump()
}

// stop ends a tenure: what has not begun goes back to the log, what is in flight ends.
func (k *worker) stop() {
	k.tenure++
	k.draining = true
	now := k.clock()
	lines := append(slices.Clone(k.admitting), k.pending, k.ready)
	for _, l := range lines {
		for _, r := range l.runs {
			k.gate.Dropped(now, r.records, int64(r.records*k.Record))
			k.partitions[r.partition].next -= int64(r.records)
		}
	}
	k.pending, k.ready, k.admitting, k.settling, k.waiting, k.timer = line{}, line{}, nil, false, false, false
	k.gate.Closed(now, int64(k.done*k.Record))
	k.done = 0
	k.gate.Assign(now, nil)
	k.byBroker, k.order = nil, nil
	if k.flying == 0 {
		k.draining = false
		return
	}
	k.plan(k.Drain, event{kind: drained, worker: k.id, tenure: k.tenure})
}

func (k *worker) do(e event) {
	switch e.kind {
	case fetched:
		k.answer(e.a, e.b)
	case admitted:
		k.admitted()
	case settled:
		k.settle()
	case late:
		k.timer = false
		if k.waiting && k.now-k.since >= permitWait {
			k.gate.Permit(k.clock(), true)
		} else if k.waiting {
			k.setTimer()
		}
	case drained:
		k.drainedNow()
	case ended, assigned, arrivals, dealt, ticked, phased, opened:
	}
	k.pump()
}

// pump does everything that can be done now.
func (k *worker) pump() {
	k.send()
	for k.admit() {
	}
	if len(k.order) == 0 || !k.gate.Open(k.clock()) && len(k.fetches) == len(k.order) {
		return
	}
	first := k.rng.IntN(len(k.order))
	for i := range k.order {
		k.ask(k.order[(first+i)%len(k.order)])
	}
}

// ask sends a request to a broker, if there is none under way and the gate grants something.
func (k *worker) ask(broker int32) {
	f := k.fetches[broker]
	if f == nil {
		f = &fetch{}
		k.fetches[broker] = f
	}
	if f.grants != nil {
		return
	}
	grants := k.gate.Plan(k.clock(), k.byBroker[broker], nil)
	if len(grants) == 0 {
		return
	}
	slices.SortStableFunc(grants, func(a, b consumer.Grant) int { return rank(k.hungry[a.Partition]) - rank(k.hungry[b.Partition]) })
	k.requests++
	f.grants = grants
	f.number++
	for _, gr := range grants {
		p := &k.partitions[gr.Partition]
		k.sawAsked(p)
		p.asked = k.now
	}
	k.plan(k.about(k.Fetch, 0.5), event{kind: fetched, worker: k.id, tenure: k.tenure, a: broker, b: f.number})
}

func rank(hungry bool) int {
	if hungry {
		return 0
	}
	return 1
}

// answer brings what there is, or waits for something to come.
func (k *worker) answer(broker, number int32) {
	f := k.fetches[broker]
	if f.grants == nil || f.number != number {
		return
	}
	some := false
	for _, gr := range f.grants {
		p := &k.partitions[gr.Partition]
		some = some || p.end > p.next
	}
	if !some && !f.polls {
		f.polls = true
		wait := longPoll
		if len(f.grants) < len(k.byBroker[broker]) {
			wait /= 5
		}
		for _, gr := range f.grants {
			k.partitions[gr.Partition].poll = true
		}
		k.plan(wait, event{kind: fetched, worker: k.id, tenure: k.tenure, a: broker, b: number})
		return
	}
	now, first, grants := k.clock(), true, f.grants
	f.grants, f.polls = nil, false
	for _, gr := range grants {
		p := &k.partitions[gr.Partition]
		p.poll = false
		n := min(p.end-p.next, (int64(gr.Bytes)+int64(k.Record)-1)/int64(k.Record))
		if n < batchOf { // a batch comes whole or not at all
			n = 0
			if first || int64(gr.Bytes) >= int64(batchOf*k.Record) {
				n = min(p.end-p.next, batchOf)
			}
		}
		k.hungry[gr.Partition] = n == 0 && p.end > p.next
		first = first && n == 0
		p.next += n
		if n > 0 {
			k.pending.push(gr.Partition, int(n))
		}
		if p.end == p.next {
			p.asked = k.now // it has nothing to be asked for
		}
		k.gate.Delivered(now, gr, int(n), n*int64(k.Record), p.next, p.end)
	}
	k.sawLevel(k.gate.Level())
}

// arrived is told that a partition it polls for has something.
func (k *worker) arrived(id int32) {
	b := id % int32(k.Brokers) //nolint:gosec // a handful
	if f := k.fetches[b]; f != nil && f.polls {
		f.polls = true
		f.number++ // the poll's end is void
		for _, gr := range f.grants {
			k.partitions[gr.Partition].poll = false
		}
		k.plan(k.Fetch/2, event{kind: fetched, worker: k.id, tenure: k.tenure, a: b, b: f.number})
	}
}

// admit begins to admit a batch, if there is one and room for it.
func (k *worker) admit() bool {
	under := 0
	for _, l := range k.admitting {
		under += l.records
	}
	n := min(k.gate.Ahead(k.clock())-k.ready.records-under, batchRecords, k.pending.records)
	if n <= 0 || len(k.admitting) >= admitters {
		return false
	}
	var batch line
	for range n {
		batch.push(k.pending.pop(), 1)
	}
	k.admitting = append(k.admitting, batch)
	took := k.about(k.Admission, 0.4)
	k.gate.Admitted(took)
	k.statements++
	k.plan(took, event{kind: admitted, worker: k.id, tenure: k.tenure})
	return true
}

func (k *worker) admitted() {
	for _, r := range k.admitting[0].runs {
		k.ready.push(r.partition, r.records)
	}
	k.admitting = k.admitting[1:]
}

// send begins calls while there are permits.
func (k *worker) send() {
	now := k.clock()
	k.measure()
	for k.ready.records > 0 && k.flying < k.allotted {
		if k.waiting {
			k.waiting = false
			if k.now-k.since <= permitWait {
				k.gate.Permit(now, false)
			}
		}
		k.ready.pop()
		k.gate.Started(now, 1, int64(k.Record))
		k.flying++
		k.down.call(k.world, event{kind: ended, worker: k.id, tenure: k.tenure})
	}
	switch {
	case k.ready.records == 0:
		k.gate.Awaits(now, consumer.ConstraintNone)
	case !k.waiting:
		k.waiting, k.since = true, k.now
		k.gate.Awaits(now, consumer.ConstraintPermits)
		if !k.timer {
			k.setTimer()
		}
	}
}

func (k *worker) setTimer() {
	k.timer = true
	k.plan(k.since+permitWait-k.now, event{kind: late, worker: k.id, tenure: k.tenure})
}

// measure adds up what the worker could use permits for. It is called before that changes.
func (k *worker) measure() {
	k.area += (k.now - k.areaAt) * time.Duration(k.flying+k.ready.records)
	k.areaAt = k.now
}

// demand is how many permits it could have used in the last second.
func (k *worker) demand() int {
	k.measure()
	n := max(int((k.area+time.Second/2)/time.Second), 1)
	k.area = 0
	return n
}

// ended is told that a call has its answer.
func (k *worker) ended(e event) {
	k.measure()
	k.flying--
	k.completed++
	if e.tenure != k.tenure {
		k.gate.Closed(k.clock(), int64(k.Record))
		if k.draining && k.flying == 0 {
			k.drainedNow()
		}
		return
	}
	k.done++
	if !k.settling {
		k.settling = true
		k.plan(settleEvery, event{kind: settled, worker: k.id, tenure: k.tenure})
	}
	k.pump()
}

func (k *worker) settle() {
	k.settling = false
	k.statements++
	k.gate.Closed(k.clock(), int64(k.done*k.Record))
	k.done = 0
}

// drainedNow gives the partitions up.
func (k *worker) drainedNow() {
	if k.draining {
		k.draining = false
		k.allDrained()
	}
}
