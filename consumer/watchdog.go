package consumer

import "time"

// wedge is what a lane that no longer works is stuck at. The set is closed: it is a label.
type wedge string

// The wedges.
const (
	noWedge       wedge = ""
	wedgeCall     wedge = "call"     // an attempt ignores its context: it has not come back, long after its deadline
	wedgeDispatch wedge = "dispatch" // orders could begin and none does
	wedgeSettle   wedge = "settle"   // outcomes wait to be written and none is, though the store is not known to be away
)

// sight is what the watchdog sees of a generation at one look.
type sight struct {
	oldest  time.Duration // since the oldest attempt under way began
	ready   bool          // an order could begin: it waits neither for a permit, nor for a rate, nor for a hold
	begun   uint64        // orders begun so far
	waits   bool          // outcomes wait to be written, and the store is not known to be away
	written uint64        // batches of outcomes written so far
}

// watchdog tells a lane that is wedged from one that waits. It is pure, and looks every watchEvery.
type watchdog struct {
	call  time.Duration // the longest an attempt may take
	stuck time.Duration // the longest without progress

	last             time.Time
	dispatch, settle stall
}

// stall is since when a count has stood still while something waited.
type stall struct {
	since time.Time
	at    uint64
}

func (s *stall) look(now time.Time, waits bool, n uint64) time.Duration {
	if !waits || n != s.at || s.since.IsZero() {
		s.since, s.at = now, n
	}
	return now.Sub(s.since)
}

// watchEvery is how often the watchdog and the watch for what holds back the offsets look.
const watchEvery = time.Second

// look says what the lane is wedged at. The same attempt must be overdue at two looks in a row: on a busy machine one or
// another always comes back a little late. When the watchdog itself did not run for a while, the machine was busy or
// suspended: it begins anew.
func (w *watchdog) look(now time.Time, s sight) wedge {
	passed := now.Sub(w.last)
	if w.last.IsZero() || passed > 3*watchEvery {
		passed, w.dispatch, w.settle = s.oldest, stall{}, stall{}
	}
	w.last = now
	dispatch := w.dispatch.look(now, s.ready, s.begun)
	settle := w.settle.look(now, s.waits, s.written)
	switch {
	case s.oldest-passed > w.call: // its age at the look before
		return wedgeCall
	case dispatch > w.stuck:
		return wedgeDispatch
	case settle > w.stuck:
		return wedgeSettle
	}
	return noWedge
}
