package adapt

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// service is a simulated downstream: so many calls are at it at once, and each needs some work. What a shape says is how
// fast the work goes.
type service struct {
	servers  int                     // of a fixed concurrency; 0: all calls are worked on at once
	speed    func(n float64) float64 // of each call's work with n calls at work; nil: 1
	work     time.Duration           // mean of a call
	sigma    float64                 // of the logarithm of a call's work; 0: all the same
	capacity int                     // of calls at it: more are turned away; 0: no bound
}

// fixed is c servers and a queue.
func fixed(c int, work time.Duration) service { return service{servers: c, work: work} }

// saturating is a service whose latency rises with the calls at it, hyperbolically with its throughput: with n calls
// it is work·(1 + n/k), and the throughput k/work·n/(n+k).
func saturating(k float64, work time.Duration) service {
	return service{work: work, speed: func(n float64) float64 { return 1 / (1 + n/k) }}
}

// contended is the universal scalability law of Gunther: throughput n/(1 + σ(n-1) + κn(n-1)) calls in a work's time.
func contended(sigma, kappa float64, work time.Duration) service {
	return service{work: work, speed: func(n float64) float64 { return 1 / (1 + sigma*(n-1) + kappa*n*(n-1)) }}
}

// call is one call at the service.
type call struct {
	began time.Duration
	left  float64 // work, in seconds
	ends  float64 // in the service's own time, where the work is done
}

// calls are those at work, the first to end on top.
type calls []*call

func (c *calls) Len() int           { return len(*c) }
func (c *calls) Less(i, j int) bool { return (*c)[i].ends < (*c)[j].ends }
func (c *calls) Swap(i, j int)      { (*c)[i], (*c)[j] = (*c)[j], (*c)[i] }

// Push is for package heap.
func (c *calls) Push(x any) {
	if one, ok := x.(*call); ok {
		*c = append(*c, one)
	}
}

// Pop is for package heap.
func (c *calls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// world is a limiter before a service, in simulated time.
type world struct {
	svc     service
	limiter *Limiter
	rnd     *rand.Rand
	limit   int // in force
	observe bool
	timeout time.Duration // 0: none
	rate    float64       // calls wanted per second; 0: as many as the limit lets
	factor  float64       // on all work that is done from now on: 10 is ten times slower

	now     time.Duration
	own     float64 // the service's own time, in which work is done at speed 1
	working calls
	queue   []*call
	arrival time.Duration
	waiting int

	done    int // answered
	dropped int
	limits  float64 // ∫ limit dt
}

func newWorld(svc service, cfg Config, seed uint64) *world {
	return &world{
		svc: svc, limiter: New(cfg), limit: cfg.Start, rnd: rand.New(rand.NewPCG(seed, 7)), factor: 1,
	}
}

func (w *world) inFlight() int { return len(w.working) + len(w.queue) }

func (w *world) speed() float64 {
	v := 1 / w.factor
	if w.svc.speed != nil {
		v *= w.svc.speed(float64(len(w.working)))
	}
	return v
}

var epoch = time.Unix(1_700_000_000, 0) // where simulated time begins

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.fill()
		next := end
		if len(w.working) > 0 {
			left := (w.working[0].ends - w.own) / w.speed()
			next = min(next, w.now+time.Duration(math.Ceil(left*1e9)))
		}
		if w.rate > 0 {
			next = min(next, w.arrival)
		}
		w.pass(next)
		for len(w.working) > 0 && w.working[0].ends <= w.own+1e-12 {
			first := w.working[0]
			heap.Pop(&w.working)
			w.finish(first)
			w.fill() // a permit that comes back goes to the next at once
		}
	}
}

func (w *world) pass(to time.Duration) {
	w.own += (to - w.now).Seconds() * w.speed()
	w.limits += (to - w.now).Seconds() * float64(w.limit)
	w.now = to
	for w.rate > 0 && w.arrival <= w.now {
		w.waiting++
		w.arrival += time.Duration(w.rnd.ExpFloat64() / w.rate * 1e9)
	}
}

// fill begins the calls that the limit lets.
func (w *world) fill() {
	for w.inFlight() < w.limit && (w.rate == 0 || w.waiting > 0) {
		if w.rate > 0 {
			w.waiting--
		}
		c := &call{began: w.now, left: w.svc.work.Seconds()}
		if s := w.svc.sigma; s > 0 {
			c.left *= math.Exp(s*w.rnd.NormFloat64() - s*s/2)
		}
		if w.svc.capacity > 0 && w.inFlight() >= w.svc.capacity {
			w.turnAway(c)
			return // time has passed
		}
		w.queue = append(w.queue, c)
		w.start()
	}
}

// turnAway answers with "too much" after a millisecond, in which nothing else is begun: enough to see what it does.
func (w *world) turnAway(c *call) {
	w.dropped++
	w.note(c, w.now+time.Millisecond, Dropped)
	w.pass(w.now + time.Millisecond)
}

func (w *world) start() {
	for len(w.queue) > 0 && (w.svc.servers == 0 || len(w.working) < w.svc.servers) {
		c := w.queue[0]
		w.queue = w.queue[1:]
		c.ends = w.own + c.left
		heap.Push(&w.working, c)
	}
}

func (w *world) finish(c *call) {
	w.start()
	kind := Answered
	if w.timeout > 0 && w.now-c.began > w.timeout {
		kind = Dropped
		w.dropped++
	} else {
		w.done++
	}
	w.note(c, w.now, kind)
}

func (w *world) note(c *call, ended time.Duration, kind Kind) {
	limit := w.limiter.Note(epoch.Add(c.began), epoch.Add(ended), w.inFlight()+1, kind)
	if !w.observe {
		w.limit = limit
	}
}
