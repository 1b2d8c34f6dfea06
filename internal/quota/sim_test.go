package quota

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seeds = flag.Uint64("quota.seeds", 250, "seeds of the simulation of fleet permits")

const (
	simLongest = 1300 * time.Millisecond
	simTimeout = time.Second
	simStorm   = 90 * time.Second // of faults
	simCalm    = 45 * time.Second // after them: what was frozen, cut off or stuck by then was so for 20 s at most
)

// flaw takes a piece out of the protocol, to show that the simulation sees what it is for.
type flaw int

const (
	noFlaw       flaw = iota
	noLongest         // the table gives an amount away at the end of its lease, while the last calls run
	noSequence        // overtaken reports are taken
	noQuarantine      // a new table trusts itself at once
	noRun             // a server that starts anew is not noticed
	noOwnClock        // the table believes the server's clock
	lowerAtOnce       // a lower part frees the difference before the worker said so
	answerTime        // a lease is counted from the answer
)

// sim is a fleet, its table and the network between them. One goroutine moves it through time.
type sim struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand
	flaw flaw
	now  time.Duration // of the world
	cap  int

	// the server
	table  Table
	run    string
	wall   time.Duration // its clock less the world's
	up     bool
	saved  *Table // an older state, as a replica or a file has it
	leapt  time.Duration
	events []event // the next one first

	living  []*simWorker // in the order they came
	joined  int
	running int // calls at the service
	most    int
	begun   int
}

// event is something that happens at a moment.
type event struct {
	at time.Duration
	do func()
}

// simWorker is a process: its part, and its pool, which the real one's rules are kept by.
type simWorker struct {
	s      *sim
	name   string
	part   *Permits
	dead   bool
	leaves bool
	frozen time.Duration // until
	cut    time.Duration // from the network, until
	next   time.Duration // exchange
	sent   uint64        // number of the exchange under way; answers to others are not waited for any more

	leased int
	until  time.Time
	inUse  int
	peak   int
	ended  int // calls that ended while it was frozen
}

var simEpoch = time.Unix(1_700_000_000, 0)

func at(d time.Duration) time.Time { return simEpoch.Add(d) }

func (w *simWorker) Lease(n int, until time.Time) { w.leased, w.until = n, until }

func (w *simWorker) lapse(now time.Time) {
	if !w.until.IsZero() && now.After(w.until) {
		w.leased = 0
	}
}

func (w *simWorker) Use(now time.Time) (held, peak, limit int, short bool) {
	w.lapse(now)
	held, peak = max(w.leased, w.inUse), max(w.peak, w.inUse)
	w.peak = w.inUse
	return held, peak, 100, true
}

func newSim(t *testing.T, seed uint64, f flaw) *sim {
	t.Helper()
	s := &sim{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)), flaw: f, run: "r0", up: true}
	s.cap = 1 + s.rnd.IntN(40)
	for range 1 + s.rnd.IntN(8) {
		s.join()
	}
	return s
}

func (s *sim) join() {
	s.joined++
	w := &simWorker{s: s, name: fmt.Sprintf("w%03d", s.joined), next: s.now}
	var err error
	if w.part, err = NewPermits("k", s.cap, simLongest, w); err != nil {
		s.t.Fatal(err)
	}
	s.living = append(s.living, w)
}

func (s *sim) some() *simWorker { return s.living[s.rnd.IntN(len(s.living))] }

func (s *sim) after(d time.Duration, do func()) {
	e := event{s.now + d, do}
	i, _ := slices.BinarySearchFunc(s.events, e.at, func(o event, at time.Duration) int { return cmp.Compare(o.at, at+1) })
	s.events = slices.Insert(s.events, i, e)
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.rnd.Int64N(int64(d))) }

// lost reports whether the network loses a message.
func (s *sim) lost() bool { return s.now < simStorm && s.rnd.IntN(50) == 0 }

// fault lets something bad happen.
func (s *sim) fault() {
	if len(s.living) == 0 {
		s.join()
	}
	switch s.rnd.IntN(12) {
	case 0, 1:
		if len(s.living) < 12 {
			s.join()
		}
	case 2: // kill -9: its calls go on at the service
		if len(s.living) > 1 {
			s.some().dead = true
		}
	case 3:
		if len(s.living) > 1 {
			s.some().leaves = true
		}
	case 4: // stopped, or collecting garbage
		s.some().frozen = s.now + s.upTo(15*time.Second)
	case 5:
		s.some().cut = s.now + s.upTo(20*time.Second)
	case 6: // the server away for all
		s.up = false
		s.after(s.upTo(20*time.Second), func() { s.up = true })
	case 7: // all data lost
		s.table = Table{}
	case 8: // started anew with nothing
		s.table, s.run = Table{}, fmt.Sprintf("r%d", s.now)
	case 9: // started anew, or another replica, with what was there a while ago
		if s.saved != nil {
			s.table, s.run = clone(s.saved), fmt.Sprintf("r%d", s.now)
		}
	case 10: // the server's clock is set, not again and again
		if s.now-s.leapt > Lease+simLongest {
			s.wall += s.upTo(2*time.Hour) - time.Hour
			s.leapt = s.now
		}
	case 11:
		c := clone(&s.table)
		s.saved = &c
	}
}

func clone(t *Table) Table {
	c := *t
	c.rows = maps.Clone(t.rows)
	return c
}

// exchange is the worker's message on its way there and back.
func (w *simWorker) exchange(gone bool) {
	s := w.s
	sent := s.now
	r := w.part.Report(at(s.now), gone)
	w.sent = r.Seq
	if s.flaw == noLongest {
		r.Hold = Lease
	}
	if s.now < w.cut || s.lost() {
		return
	}
	there := s.upTo(20 * time.Millisecond)
	if s.now < simStorm && s.rnd.IntN(40) == 0 {
		there = s.upTo(15 * time.Second) // stuck somewhere, and delivered after all
	}
	s.after(there, func() {
		if !s.up {
			return
		}
		a := s.take(w.name, r)
		if s.now < w.cut || s.lost() {
			return
		}
		s.after(s.upTo(20*time.Millisecond), func() { w.answered(sent, r.Seq, a) })
	})
}

// take is the server's side, with the flaw.
func (s *sim) take(name string, r Report) Answer {
	run, wall := s.run, s.now+s.wall+24*time.Hour
	switch s.flaw {
	case noSequence:
		w := s.table.rows[name]
		w.seq = 0
		if _, ok := s.table.rows[name]; ok {
			s.table.rows[name] = w
		}
	case noRun:
		run = "r"
	case noOwnClock:
		if s.table.rows != nil && s.table.run == run {
			s.table.clock += max(0, wall-s.table.last-Step)
		}
	case noFlaw, noLongest, noQuarantine, lowerAtOnce, answerTime:
	}
	before := s.table.rows[name].amount
	a := s.table.Exchange(wall, run, name, r)
	if s.flaw == noQuarantine {
		s.table.sure = 0
	}
	if w := s.table.rows[name]; s.flaw == lowerAtOnce && a.Grant < w.amount && before > 0 {
		s.table.allotted -= w.amount - a.Grant
		w.amount = a.Grant
		s.table.rows[name] = w
	}
	return a
}

func (w *simWorker) answered(sent time.Duration, seq uint64, a Answer) {
	s := w.s
	switch {
	case w.dead:
	case s.now < w.frozen: // it is read when the process goes on
		s.after(w.frozen-s.now, func() { w.answered(sent, seq, a) })
	case seq != w.sent: // the next exchange is under way: nobody waits for this answer
	case s.now-sent > simTimeout && s.rnd.IntN(2) == 0:
	default:
		if s.flaw == answerTime {
			sent = s.now
		}
		w.part.Answered(at(sent), at(s.now), a)
	}
}

// step lets a worker do what it does now.
func (w *simWorker) step() {
	s := w.s
	if s.now < w.frozen {
		return
	}
	w.inUse -= w.ended
	w.ended = 0
	if w.leaves && w.inUse == 0 {
		w.exchange(true)
		w.dead = true
		return
	}
	if s.now >= w.next {
		w.exchange(false)
		w.next = s.now + time.Second*3/4 + s.upTo(time.Second/2)
	}
	w.lapse(at(s.now))
	for !w.leaves && w.inUse < w.leased {
		w.call()
	}
}

// call begins one call at the service.
func (w *simWorker) call() {
	s := w.s
	w.inUse++
	w.peak = max(w.peak, w.inUse)
	s.running++
	s.begun++
	s.most = max(s.most, s.running)
	d := s.upTo(simLongest)
	if s.rnd.IntN(4) == 0 {
		d = simLongest
	}
	s.after(d, func() {
		s.running--
		w.ended++ // it learns when it runs
	})
}

// move goes on to the next moment.
func (s *sim) move() {
	s.now += time.Duration(1+s.rnd.IntN(10)) * time.Millisecond
	for len(s.events) > 0 && s.events[0].at <= s.now {
		do := s.events[0].do
		s.events = slices.Delete(s.events, 0, 1)
		do()
	}
	s.living = slices.DeleteFunc(s.living, func(w *simWorker) bool {
		if !w.dead {
			w.step()
		}
		return w.dead
	})
}

// play runs the storm and the calm. It ends early when too many calls run.
func (s *sim) play() (tooMany bool) {
	fault := s.upTo(3 * time.Second)
	for s.now < simStorm && s.most <= s.cap {
		if s.now >= fault {
			s.fault()
			fault = s.now + s.upTo(4*time.Second)
		}
		s.move()
	}
	for end := s.now + simCalm; s.now < end && s.most <= s.cap; {
		s.up = true
		s.move()
	}
	return s.most > s.cap
}

// TestPermitsInUseNeverExceedTheCap is invariant one, whatever happens, and then that everybody has his part.
func TestPermitsInUseNeverExceedTheCap(t *testing.T) {
	t.Parallel()
	begun, joined := 0, 0
	for seed := range *seeds {
		s := newSim(t, seed, noFlaw)
		if s.play() {
			t.Fatalf("seed %d: %d calls at %v, the cap is %d", seed, s.most, s.now, s.cap)
		}
		begun, joined = begun+s.begun, joined+s.joined
		held, staying := 0, 0
		for _, w := range s.living {
			if !w.leaves {
				staying++
				held += w.leased
			}
		}
		for _, w := range s.living {
			if !w.leaves && w.leased < s.cap/staying {
				t.Errorf("seed %d: worker %s of %d has %d of %d, %v after the last fault", seed, w.name, staying, w.leased, s.cap, simCalm)
			}
		}
		// With less than one for each they take turns, and between two turns something lies idle.
		if staying > 0 && held != s.cap && s.cap >= staying {
			t.Errorf("seed %d: %d workers hold %d of %d, %v after the last fault", seed, staying, held, s.cap, simCalm)
		}
	}
	t.Logf("%d seeds of %v: %d workers, %d calls", *seeds, simStorm+simCalm, joined, begun)
}

// TestTheSimulationSeesWhatEachPartOfTheProtocolIsFor takes one after the other out.
func TestTheSimulationSeesWhatEachPartOfTheProtocolIsFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		flaw flaw
		from uint64 // a little before the first seed that shows it, to save time
	}{
		{"the longest call", noLongest, 0},
		{"numbered reports", noSequence, 590},
		{"the wait of a new table", noQuarantine, 0},
		{"the server's run", noRun, 0},
		{"the table's own clock", noOwnClock, 0},
		{"release by the worker's word", lowerAtOnce, 0},
		{"a lease from before the question", answerTime, 540},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := c.from; seed < c.from+3000; seed++ {
				if newSim(t, seed, c.flaw).play() {
					t.Logf("seen with seed %d", seed)
					return
				}
			}
			t.Error("no seed shows that it is needed")
		})
	}
}
