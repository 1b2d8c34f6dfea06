package fleet

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"spillway/breaker"
)

var (
	simSeeds = flag.Int("fleet.seeds", 80, "how many simulations to run")
	simSeed  = flag.Uint64("fleet.seed", 0, "run this simulation only")
)

// A simulation runs some workers, their calls and a store in one goroutine, step by step. Messages take time and get
// lost before or after their effect, workers restart, the store goes away or loses its data, its clock jumps, the
// service falls ill and a worker's network breaks; from faultsEnd on all is well.
const (
	simStep   = 10 * time.Millisecond
	faultsEnd = 4 * time.Minute
	simLease  = 1500 * time.Millisecond
	// slack is what a worker may know the end of a wait too late: the lease of a word nobody renews, and messages.
	slack = 2 * time.Second
)

type sim struct {
	t     *testing.T
	rnd   *rand.Rand
	cfg   breaker.Config
	now   time.Duration
	store fakeStore
	jump  time.Duration // of the store's clock
	loss  float64
	jumps bool // else restarts

	workers []*simWorker
	names   int
	opened  map[string]simOpening // by epoch and origin
	away    bool
	ill     bool
	probes  int // first probes under the record's rule that run
	forces  int
}

type simOpening struct {
	epoch    uint64
	at, wait time.Duration
}

type simWorker struct {
	s     *sim
	name  string
	zero  time.Time // what its clock shows at the simulation's beginning
	b     *breaker.Breaker
	share *Sharer
	bad   bool // its network

	next    time.Duration // its next exchange
	sent    time.Duration
	arrives time.Duration // of the answer under way
	answer  []View
	calls   []simCall
	opening string        // the opening it follows, "" while it does not
	follows time.Duration // since when
}

type simCall struct {
	permit breaker.Permit
	ends   time.Duration
	result breaker.Result
	probe  bool // counted in sim.probes
}

func (w *simWorker) clock() time.Time { return w.zero.Add(w.s.now) }

func (s *sim) start(w *simWorker) {
	s.names++
	w.name = fmt.Sprint("w", s.names)
	w.zero = time.Unix(s.rnd.Int64N(4e9), 0)
	var err error
	if w.b, err = breaker.NewAt(w.clock(), breaker.Key{Service: "s", Endpoint: "e"}, s.cfg, rand.New(rand.NewPCG(s.rnd.Uint64(), 1)), nil); err != nil {
		s.t.Fatal(err)
	}
	w.share, err = New(Config{Worker: w.name, Lease: simLease}, &s.store, func() []*breaker.Breaker { return []*breaker.Breaker{w.b} }, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	w.answer, w.next, w.opening = nil, s.now+time.Duration(s.rnd.IntN(300))*time.Millisecond, ""
}

func runSim(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	s := &sim{
		t: t, rnd: rnd, loss: []float64{0, 0.05, 0.3}[rnd.IntN(3)], jumps: rnd.IntN(3) == 0, opened: make(map[string]simOpening),
		cfg: breaker.Config{
			OpenWait: 10 * time.Second, OpenWaitMax: 20 * time.Second, FirstProbes: 1 + rnd.IntN(4), ProbesInFlight: 1 + rnd.IntN(3),
			RampStart: 0.1, RampStep: time.Second, PermitDeadline: 2 * time.Second, SuccessesToClose: max(0, rnd.IntN(6)-3), SlowCall: 250 * time.Millisecond,
		},
	}
	for range 1 + rnd.IntN(4) {
		w := &simWorker{s: s}
		s.start(w)
		s.workers = append(s.workers, w)
	}
	defer func() {
		if t.Failed() {
			t.Logf("again with: go test ./breaker/fleet -run Simulated -fleet.seed=%d", seed)
		}
	}()
	healthy := time.Duration(0)
	for ; s.now < faultsEnd+2*time.Minute && !t.Failed(); s.now += simStep {
		s.store.now = s.now + s.jump + 1e15
		if s.now < faultsEnd {
			s.faults()
		} else {
			s.away, s.ill, s.loss = false, false, 0
		}
		done := s.now > faultsEnd
		for _, w := range s.workers {
			if s.now >= faultsEnd {
				w.bad = false
			}
			s.step(w)
			s.check(w)
			done = done && w.b.SnapshotAt(w.clock()).State == breaker.Closed
		}
		if done && healthy == 0 {
			healthy = s.now
		}
	}
	// Longest force, longest wait of a worker's own with its jitter, then the ramp, twice for a worker that opened just
	// before the end.
	if t.Failed() {
		return
	}
	if limit := faultsEnd + 70*time.Second; healthy == 0 || healthy > limit {
		for _, w := range s.workers {
			t.Logf("%s: %+v", w.name, w.b.SnapshotAt(w.clock()))
		}
		t.Errorf("all is well since %v, all were closed at %v (record %+v)", faultsEnd, healthy, s.store.record)
	}
}

// faults breaks and mends things now and then.
func (s *sim) faults() {
	often := func(mean time.Duration) bool { return s.rnd.Float64() < float64(simStep)/float64(mean) }
	if often(25 * time.Second) {
		s.ill = !s.ill
	}
	if s.away && often(10*time.Second) || !s.away && often(40*time.Second) {
		s.away = !s.away
		if s.away && s.rnd.IntN(4) == 0 {
			s.store = fakeStore{now: s.store.now, moves: s.store.moves} // it comes back empty
		}
	}
	w := s.workers[s.rnd.IntN(len(s.workers))]
	if often(40 * time.Second) {
		w.bad = !w.bad
	}
	if !s.jumps && often(20*time.Second) {
		s.start(w) // its calls go on at the service, and nobody hears of them
	}
	if s.jumps && often(30*time.Second) {
		s.jump += time.Duration(s.rnd.NormFloat64() * float64(time.Minute))
	}
	if !s.away && often(60*time.Second) {
		o := Order{Key: w.b.Key(), Force: breaker.Force(s.rnd.IntN(4)), For: time.Duration(1+s.rnd.IntN(5000)) * time.Millisecond, Operator: "kim", Reason: "sim"}
		if _, err := Give(s.t.Context(), &s.store, o); err == nil {
			s.forces++
		}
	}
}

func (s *sim) step(w *simWorker) {
	keep := w.calls[:0]
	for _, c := range w.calls {
		if s.now < c.ends {
			keep = append(keep, c)
			continue
		}
		if c.probe {
			s.probes--
		}
		w.b.DoneAt(w.clock(), c.permit, c.result)
	}
	w.calls = keep
	if s.rnd.IntN(4) == 0 {
		s.call(w)
	}
	s.exchange(w)
}

func (s *sim) call(w *simWorker) {
	before := w.b.SnapshotAt(w.clock())
	p, ok := w.b.AllowAt(w.clock())
	if !ok {
		return
	}
	c := simCall{permit: p, ends: s.now + time.Duration(20+s.rnd.IntN(200))*time.Millisecond, result: breaker.Success}
	switch {
	case s.ill && s.rnd.IntN(10) > 0 || w.bad:
		c.result = breaker.Failure
	case s.rnd.IntN(200) == 0:
		c.result = breaker.Ignored
	case s.rnd.IntN(500) == 0 && s.now < faultsEnd:
		c.ends = s.now + 3*time.Second // later than its deadline
	}
	if p.Probe() && before.Share == 0 && before.Linked && !before.Own && c.ends-s.now <= s.cfg.PermitDeadline {
		c.probe = true
		s.probes++
		if s.probes > s.cfg.ProbesInFlight && !s.jumps { // a clock that jumps ahead ends leases
			s.t.Errorf("%v: %d first probes of the fleet run at once, the limit is %d", s.now, s.probes, s.cfg.ProbesInFlight)
		}
	}
	w.calls = append(w.calls, c)
}

// exchange is Sharer.round with messages that take time and get lost. A lost request has no effect, a lost answer has.
func (s *sim) exchange(w *simWorker) {
	ctx := s.t.Context()
	if w.answer != nil {
		if s.now < w.arrives {
			return
		}
		moves := w.share.absorb(w.zero.Add(w.sent), w.clock(), w.answer)
		w.answer = nil
		if len(moves) == 0 || s.away || s.rnd.Float64() < s.loss {
			return
		}
		done, err := s.store.Move(ctx, moves)
		if err != nil {
			s.t.Fatal(err)
		}
		if r := moves[0].Record; done[0] && r.State == breaker.Open {
			id := fmt.Sprint(r.Epoch, r.By)
			if _, known := s.opened[id]; !known || r.Age == 0 { // else it is restored
				s.opened[id] = simOpening{r.Epoch, s.now - r.Age, r.Wait}
			}
		}
		if s.rnd.Float64() >= s.loss {
			w.share.moved(w.clock(), moves, done)
		}
		return
	}
	if s.now < w.next {
		return
	}
	w.next = s.now + time.Duration(225+s.rnd.IntN(150))*time.Millisecond
	w.sent = s.now
	reports := w.share.reports(w.clock(), false)
	if s.away || s.rnd.Float64() < s.loss {
		return
	}
	views, err := s.store.Exchange(ctx, w.name, reports)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.rnd.Float64() >= s.loss {
		w.answer, w.arrives = views, s.now+time.Duration(s.rnd.IntN(200))*time.Millisecond
	}
}

// check looks whether a worker that follows an opening of the fleet leaves it when its wait is over: not later, and not
// earlier unless a record of a higher epoch than the next turns up, after the store lost its data.
func (s *sim) check(w *simWorker) {
	snap := w.b.SnapshotAt(w.clock())
	k := w.share.keep[w.b]
	following := ""
	if k != nil && k.known && k.record.State == breaker.Open && snap.State == breaker.Open && !snap.Own && snap.Force == breaker.ForceNone {
		following = fmt.Sprint(k.record.Epoch, k.record.By)
	}
	if following != w.opening {
		w.follows = s.now
	}
	if o, ok := s.opened[following]; ok && s.now > max(o.at+o.wait, w.follows)+slack && !s.jumps {
		s.t.Errorf("%v: %s still follows the opening of %v, whose wait was %v: %+v", s.now, w.name, o.at, o.wait, snap)
	}
	if o, ok := s.opened[w.opening]; ok && w.opening != "" && following == "" && snap.State != breaker.Open && snap.Force == breaker.ForceNone &&
		!s.jumps && s.forces == 0 && k.record.Epoch <= o.epoch+1 && s.now < o.at+o.wait-slack {
		s.t.Errorf("%v: %s left the opening of %v, whose wait is %v: %+v\nknown %+v, was %s", s.now, w.name, o.at, o.wait, snap, k.record, w.opening)
	}
	w.opening = following
}

func TestSimulatedFleetIsNeverStuckAndKeepsItsWaits(t *testing.T) {
	t.Parallel()
	if *simSeed > 0 {
		runSim(t, *simSeed)
		return
	}
	n := *simSeeds
	if testing.Short() {
		n /= 4
	}
	for seed := range n {
		t.Run(fmt.Sprint("seed ", seed+1), func(t *testing.T) {
			t.Parallel()
			runSim(t, uint64(seed+1))
		})
	}
}
