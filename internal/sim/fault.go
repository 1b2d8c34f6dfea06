package sim

import (
	"errors"
	"time"
)

// effect names what a worker asks of others.
type effect string

const (
	admit  effect = "admit"
	bury   effect = "bury"
	settle effect = "settle"
	renew  effect = "renew"
	begin  effect = "begin"
	scan   effect = "scan" // the scanner's claim of due orders
	push   effect = "push"
	claim  effect = "claim"
	finish effect = "finish"
	extend effect = "extend" // the renewal of a claim of the replay queue
	has    effect = "has"
	commit effect = "commit"
	submit effect = "submit"
	lookup effect = "lookup"
)

// effects lists them.
func effects() []effect {
	return []effect{admit, bury, settle, renew, begin, scan, push, claim, finish, extend, has, commit, submit, lookup}
}

// fault is what goes wrong with one request.
type fault string

const (
	noFault     fault = ""
	crashBefore fault = "crash before"
	crashAfter  fault = "crash after"
	errorBefore fault = "error before"
	errorAfter  fault = "error after" // the effect happened and the answer was lost
	sleepAfter  fault = "sleep after" // the answer is read when the worker wakes up
)

// faults lists what can go wrong.
func faults() []fault { return []fault{crashBefore, crashAfter, errorBefore, errorAfter, sleepAfter} }

var (
	errLost = errors.New("the connection broke")
	errAway = errors.New("nobody answers")
)

func (s *world) fault(e effect) fault {
	if s.calmed {
		return noFault
	}
	crash, fail := s.crash, s.numbers.fault
	if e == s.cursed {
		crash, fail = 0.06, 0.15
		if e == extend {
			crash = 0.12 // few are made
		}
	}
	var f fault
	switch {
	case s.chance(crash):
		f = crashBefore
	case s.chance(crash):
		f = crashAfter
	case s.chance(crash):
		f = sleepAfter
	case s.chance(fail):
		f = errorBefore
	case s.chance(fail):
		f = errorAfter
	default:
		return noFault
	}
	s.count(string(f) + " " + string(e))
	return f
}

// call makes a request: it arrives a little later whatever became of the worker meanwhile, and its answer is heard
// if the same life of the worker is there to hear it.
func (w *worker) call(e effect, do func() error, then func(err error)) {
	f := w.fault(e)
	if f == crashBefore {
		w.note("%s: crash before %s", w.name, e)
		w.crash()
		return
	}
	life := w.life
	w.after(w.latency(), func() {
		var err error
		if f == errorBefore {
			err = errLost
		} else {
			err = do()
		}
		switch f {
		case errorAfter:
			err = errLost
		case crashAfter:
			if w.life == life {
				w.note("%s: crash after %s", w.name, e)
				w.crash()
			}
		case sleepAfter:
			if w.life == life {
				w.sleep()
			}
		case noFault, crashBefore, errorBefore:
		}
		if err != nil {
			w.note("%s: %s: %v", w.name, e, err)
		}
		w.hear(life, w.latency(), func() { then(err) })
	})
}

// nemesis does something to the surroundings from time to time.
func (s *world) nemesis() {
	if s.calmed {
		return
	}
	s.strike()
	s.after(s.between(s.every/2, 2*s.every), s.nemesis)
}

func (s *world) strike() {
	w := s.workers[s.rng.IntN(len(s.workers))]
	switch s.rng.IntN(13) {
	case 0:
		s.count("store away")
		s.store.awayUntil = s.now.Add(s.between(50*time.Millisecond, 3*time.Second))
		s.note("store away until %v", s.store.awayUntil.Sub(epoch))
	case 1:
		s.count("queue away")
		s.queue.awayUntil = s.now.Add(s.between(50*time.Millisecond, 4*time.Second))
		s.note("queue away until %v", s.queue.awayUntil.Sub(epoch))
	case 2:
		s.queue.wipe()
	case 3:
		s.queue.wipeEntries()
	case 4, 5, 6:
		s.down.change()
	case 7:
		if w.up {
			w.sleep()
		}
	case 8:
		if w.up {
			s.count("crash")
			s.note("%s: crash", w.name)
			w.crash()
		}
	case 9:
		if w.up && w.generation != nil {
			s.count("stop")
			w.stop()
		}
	case 10:
		s.group.rebalance()
	case 11:
		s.down.changeLookups()
	case 12:
		if s.retention {
			s.topic.truncate(s.rng.IntN(s.partitions))
		}
	}
}
