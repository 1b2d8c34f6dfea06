package main

import (
	"fmt"
	"slices"
	"time"
)

// tale is what one playing of the story came to.
type tale struct {
	lost          int
	doubleEffects int
	parked        int
	parkedApplied int
	maxInFlight   int
	maxPosts      int
	answers503    int
	caughtUp      time.Duration
	worstAge      time.Duration   // of an order after that
	firstPosts    []time.Duration // after each kill
	lookups       int
}

func (t tale) String() string {
	return fmt.Sprintf("lost %d  double %d  parked %d (%d applied)  in flight %d (%d POSTs)  503s %d  caught up %.1f s (worst age after: %.1f s)  lookups %d  first POSTs %v",
		t.lost, t.doubleEffects, t.parked, t.parkedApplied, t.maxInFlight, t.maxPosts, t.answers503, t.caughtUp.Seconds(),
		t.worstAge.Seconds(), t.lookups, t.firstPosts)
}

// span is the life of an order: when it was handed to the broker and when it was final in Postgres.
type span struct{ produced, final time.Time }

// behind is the age below which an unfinished order does not count as backlog.
const behind = time.Second

// caughtUp says how long after begin the backlog was gone: the first moment at which every order that had been produced
// a second before was final. The other duration is the greatest age that an order produced after begin reached unfinished
// from then on.
func caughtUp(begin time.Time, spans []span) (took, worst time.Duration) {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b span) int { return a.produced.Compare(b.produced) })
	// Walking through the orders as they were produced, at is the earliest moment at which all so far are final. Should
	// the next one have been produced less than a second before at, it does not hold at up.
	at := begin
	i := 0
	for ; i < len(sorted) && sorted[i].produced.Add(behind).Compare(at) <= 0; i++ {
		if sorted[i].final.After(at) {
			at = sorted[i].final
		}
	}
	for _, s := range sorted {
		if s.final.After(at) {
			worst = max(worst, s.final.Sub(s.produced))
		}
	}
	return at.Sub(begin), worst
}
