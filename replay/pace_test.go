package replay

import (
	"testing"
	"time"

	"spillway/order"
)

// run feeds the pace answers that come evenly, each slot giving perSecond of them, and returns the limit after each second.
func run(p pace, now time.Time, seconds, perSecond int, outcome func(n int) order.Outcome) (limits []int, last pace) {
	n := 0
	for range seconds {
		each := p.limit * perSecond
		for i := range each {
			at := now.Add(time.Duration(i+1) * time.Second / time.Duration(each))
			p = p.after(outcome(n), at)
			n++
		}
		now = now.Add(time.Second)
		limits = append(limits, p.limit)
	}
	return limits, p
}

func always(o order.Outcome) func(int) order.Outcome { return func(int) order.Outcome { return o } }

func TestPaceDoublesWithGoodAnswersUpToItsCeiling(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	p := newPace(20, time.Second).after(order.OutcomeSucceeded, start)
	limits, _ := run(p, start, 6, 10, always(order.OutcomeRejected))
	want := []int{2, 4, 8, 16, 20, 20}
	for i := range want {
		if limits[i] != want[i] {
			t.Fatalf("limits %v, want %v", limits, want)
		}
	}
}

func TestPaceStaysWithoutEnoughAnswers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := pace{limit: 16, ceiling: 64, step: time.Second, since: now}
	for i := range 15 {
		p = p.after(order.OutcomeSucceeded, now.Add(time.Duration(i)*time.Second))
	}
	if p.limit != 16 {
		t.Errorf("15 answers of 16 slots moved the limit to %d", p.limit)
	}
}

func TestPaceHalvesOnFailures(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		bad  int // of 100 answers of a step of 16 slots
		want int
	}{
		"few":  {10, 32},
		"many": {11, 8},
	} {
		p := pace{limit: 16, ceiling: 64, step: time.Second, since: now}
		for i := range 99 {
			outcome := order.OutcomeSucceeded
			if i < c.bad {
				outcome = order.OutcomeOverloaded
			}
			p = p.after(outcome, now)
		}
		if p = p.after(order.OutcomeSucceeded, now.Add(time.Second)); p.limit != c.want {
			t.Errorf("%s: limit %d, want %d", name, p.limit, c.want)
		}
	}
}

func TestPaceHalvesAtOnceWhenEverySlotFails(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := pace{limit: 8, ceiling: 64, step: time.Second, since: now}
	for range 8 + 4 + 2 + 1 {
		p = p.after(order.OutcomeUnknown, now)
	}
	if p.limit != 1 {
		t.Errorf("limit %d after every slot of 8, 4, 2 and 1 failed, want 1", p.limit)
	}
}

func TestPaceIgnoresWhatWasOurOwnDoing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := pace{limit: 8, ceiling: 64, step: time.Second, since: now}
	for _, o := range []order.Outcome{order.OutcomeCancelled, order.OutcomeRefused} {
		if got := p.after(o, now.Add(time.Hour)); got != p {
			t.Errorf("%v made %+v of %+v", o, got, p)
		}
	}
}

func FuzzPaceStaysWithinItsBounds(f *testing.F) {
	f.Add([]byte{1, 1, 1, 4, 6, 7, 8}, uint16(64))
	f.Fuzz(func(t *testing.T, script []byte, ceiling uint16) {
		p := newPace(int(ceiling)+1, time.Second)
		now := time.Unix(1000, 0)
		for _, b := range script {
			now = now.Add(time.Duration(b>>4) * 100 * time.Millisecond)
			before := p.limit
			p = p.after(order.Outcome(b&7)+1, now)
			if p.limit < 1 || p.limit > p.ceiling || p.limit > 2*before {
				t.Fatalf("limit %d after %d, ceiling %d", p.limit, before, p.ceiling)
			}
		}
	})
}
