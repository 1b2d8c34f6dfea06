package quota

import (
	"sync"
	"testing"
	"time"
)

// fakeLimiter remembers its share.
type fakeLimiter struct {
	mu    sync.Mutex // guards share
	share float64
	taken int
	short bool
}

func (l *fakeLimiter) SetShare(perSecond float64, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share = perSecond
}

func (l *fakeLimiter) now() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.share
}

func (l *fakeLimiter) Demand() (int, bool) { return l.taken, l.short }

func newRate(t *testing.T, perSecond float64, l *fakeLimiter) *Rate {
	t.Helper()
	r, err := NewRate("k", perSecond, l, at(0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAWorkerWithoutAShareStartsWithAHundredth(t *testing.T) {
	t.Parallel()
	l := &fakeLimiter{}
	r := newRate(t, 200, l)
	if l.now() != 2 {
		t.Errorf("share %v", l.now())
	}
	r.Report(at(time.Second), false)
	r.Missed(at(time.Hour))
	if l.now() != 2 {
		t.Errorf("share %v without the table", l.now())
	}
}

func TestAShareIsHalvedForEachLeaseWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l := &fakeLimiter{}
	r := newRate(t, 100, l)
	r.Answered(at(0), at(0), Answer{Grant: 80 * Unit, Cap: 100 * Unit})
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{
		{0, 80}, {Lease, 80}, {Lease + 1, 40}, {2*Lease - 1, 40}, {2 * Lease, 20}, {3 * Lease, 10}, {10 * Lease, 1}, {1000 * Lease, 1},
	} {
		r.Missed(at(c.after))
		if l.now() != c.want {
			t.Errorf("%v after the answer the share is %v, want %v", c.after, l.now(), c.want)
		}
		if held := r.Report(at(c.after), false).Held; held != int64(c.want*Unit) {
			t.Errorf("%v after the answer %d are held, want %v", c.after, held, c.want)
		}
	}
	r.Answered(at(time.Hour), at(time.Hour), Answer{Stale: true, Grant: 5})
	if l.now() != 1 {
		t.Errorf("a stale answer gave %v", l.now())
	}
	r.Answered(at(time.Hour), at(time.Hour), Answer{Grant: 50 * Unit, Cap: 100 * Unit})
	if l.now() != 50 {
		t.Errorf("share %v", l.now())
	}
	if rep := r.Report(at(time.Hour), true); l.now() != 0 || rep.Held != 0 || !rep.Gone {
		t.Errorf("leaving with %v: %+v", l.now(), rep)
	}
}

func TestAShareIsAskedForByDemand(t *testing.T) {
	t.Parallel()
	l := &fakeLimiter{taken: 40}
	r := newRate(t, 100, l)
	if rep := r.Report(at(time.Second), false); rep.Want != 51*Unit || rep.Most != 100*Unit || rep.Cap != 100*Unit || rep.Hold != Lease+Step {
		t.Errorf("report %+v", rep)
	}
	l.short = true
	if rep := r.Report(at(2*time.Second), false); rep.Want != 100*Unit {
		t.Errorf("a worker that was kept waiting wants %d", rep.Want)
	}
	l.taken, l.short = 0, false
	if rep := r.Report(at(3*time.Second), false); rep.Want != Unit || rep.Seq != 3 {
		t.Errorf("an idle one: %+v", rep)
	}
}

func TestTheSmallestRateOfAFleetIsKept(t *testing.T) {
	t.Parallel()
	for _, perHour := range []float64{1, 2, 10} {
		if got := newRate(t, perHour/3600, &fakeLimiter{}).Cap() * 3600; got < perHour || got > perHour*1.01 {
			t.Errorf("%v an hour is taken for %v", perHour, got)
		}
	}
}

func TestCapsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{0, -1, 1e6 + 1} {
		if _, err := NewRate("k", perSecond, &fakeLimiter{}, at(0)); err == nil {
			t.Errorf("%v per second was taken", perSecond)
		}
	}
	for _, n := range []int{0, -5, MaxCap + 1} {
		if _, err := NewPermits("k", n, time.Second, &simWorker{}); err == nil {
			t.Errorf("%d permits were taken", n)
		}
	}
}

// fleet is workers that answer as they should, over one table, without faults.
type fleet struct {
	table Table
	now   time.Duration
	held  map[string]int64
	seq   uint64
}

func (f *fleet) round(reports map[string]Report) {
	for _, name := range []string{"a", "b", "c", "d"} {
		r, ok := reports[name]
		if !ok {
			continue
		}
		f.seq++
		r.Seq, r.Held, r.Hold = f.seq, f.held[name], Lease+Step
		f.now += 250 * time.Millisecond
		f.held[name] = f.table.Exchange(f.now, "r", name, r).Grant
	}
}

func TestTheCapIsDividedByWhatEachWantsAndTheRestEvenly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		in   map[string]Report
		want map[string]int64
	}{
		{
			"all hungry",
			map[string]Report{"a": {Want: 100, Most: 100}, "b": {Want: 100, Most: 100}, "c": {Want: 100, Most: 100}},
			map[string]int64{"a": 6, "b": 7, "c": 7},
		},
		{
			"one modest",
			map[string]Report{"a": {Want: 2, Most: 100}, "b": {Want: 100, Most: 100}, "c": {Want: 100, Most: 100}},
			map[string]int64{"a": 2, "b": 9, "c": 9},
		},
		{
			"all modest: what is spare is dealt out too",
			map[string]Report{"a": {Want: 2, Most: 100}, "b": {Want: 3, Most: 100}},
			map[string]int64{"a": 10, "b": 10},
		},
		{
			"nobody gets more than he could use",
			map[string]Report{"a": {Want: 2, Most: 4}, "b": {Want: 5, Most: 6}},
			map[string]int64{"a": 4, "b": 6},
		},
		{"alone", map[string]Report{"a": {Want: 1, Most: 50}}, map[string]int64{"a": 20}},
	} {
		f := &fleet{held: map[string]int64{}}
		for name, r := range c.in {
			r.Cap = 20
			c.in[name] = r
		}
		for range 50 {
			f.round(c.in)
		}
		for name, want := range c.want {
			if f.held[name] != want {
				t.Errorf("%s: %v, want %v", c.what, f.held, c.want)
				break
			}
		}
	}
}

func TestTheSmallestCapCounts(t *testing.T) {
	t.Parallel()
	f := &fleet{held: map[string]int64{}}
	in := map[string]Report{"a": {Want: 100, Most: 100, Cap: 20}, "b": {Want: 100, Most: 100, Cap: 20}}
	for range 50 {
		f.round(in)
	}
	in["c"] = Report{Want: 100, Most: 100, Cap: 9}
	for range 10 {
		f.round(in)
	}
	if f.held["a"] != 3 || f.held["b"] != 3 || f.held["c"] != 3 {
		t.Errorf("%v under caps of 20, 20 and 9", f.held)
	}
	delete(in, "c") // killed
	for range 50 {
		f.round(in)
	}
	if f.held["a"] != 10 || f.held["b"] != 10 {
		t.Errorf("%v once the one with 9 is forgotten", f.held)
	}
}

func TestWithLessThanOneForEachTheyTakeTurns(t *testing.T) {
	t.Parallel()
	f := &fleet{held: map[string]int64{}}
	in := map[string]Report{}
	for _, name := range []string{"a", "b", "c", "d"} {
		in[name] = Report{Want: 10, Most: 10, Cap: 1}
	}
	had := map[string]int{}
	for range 300 {
		f.round(in)
		sum := int64(0)
		for name, n := range f.held {
			sum += n
			had[name] += int(n)
		}
		if sum > 1 {
			t.Fatalf("%v", f.held)
		}
	}
	for name := range in {
		if had[name] < 30 {
			t.Errorf("%s had the one permit in %d of 300 rounds", name, had[name])
		}
	}
}
