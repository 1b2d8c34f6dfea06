package downstream

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"spillway/breaker"
)

// ground drives a choice: calls one after the other, a hundred a second, each answered by what the test says of its
// instance.
type ground struct {
	t   *testing.T
	c   choice
	rnd *rand.Rand
	now time.Duration

	calls, failures, own []int // by instance; own are the failures that are the instance's and not the service's
}

func newGround(t *testing.T, n int, cfg Ejection) *ground {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	g := &ground{t: t, rnd: rnd, c: newChoice(cfg, n, rnd.Float64)}
	g.calls, g.failures, g.own = make([]int, n), make([]int, n), make([]int, n)
	return g
}

const callEvery = 10 * time.Millisecond

// call makes one call and reports whether it failed, and whether that was the instance's own failure.
func (g *ground) call(rates []float64) (failed, one bool) {
	g.t.Helper()
	g.now += callEvery
	to := g.c.pick(g.now)
	v := showsHealth
	if failed = g.rnd.Float64() < rates[to.at]; failed {
		v = showsFailure
		g.failures[to.at]++
	}
	one, _ = g.c.done(g.now, to, v)
	g.calls[to.at]++
	if one {
		g.own[to.at]++
	}
	g.sound()
	return failed, one
}

func (g *ground) run(d time.Duration, rates ...float64) {
	g.t.Helper()
	for end := g.now + d; g.now < end; {
		g.call(rates)
	}
}

// sound checks what must hold after every step.
func (g *ground) sound() {
	g.t.Helper()
	out := 0
	for i := range g.c.ends {
		e := &g.c.ends[i]
		if e.out {
			out++
		}
		if e.inFlight < 0 || e.seen > historyLength || e.failures() > e.seen {
			g.t.Fatalf("instance %d: %+v", i, *e)
		}
	}
	if out != g.c.out || 2*out > len(g.c.ends) {
		g.t.Fatalf("%d of %d are out, counted as %d", out, len(g.c.ends), g.c.out)
	}
}

func TestInstanceThatFailsIsTakenOutAndProbedUntilItIsWell(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3, Ejection{})
	g.run(time.Minute, 1, 0, 0)
	if e := g.c.ends[0]; !e.out || e.total < 3 {
		t.Fatalf("after a minute of failures: %+v", e)
	}
	// Five to be taken out, and a probe after each of some 5, 10 and 20 seconds.
	if g.failures[0] > 10 {
		t.Errorf("the failing instance got %d calls of 6000", g.calls[0])
	}
	g.run(2*time.Minute, 0, 0, 0)
	if e := g.c.ends[0]; e.out {
		t.Errorf("two minutes after it was well again: %+v", e)
	}
	before := g.calls[0]
	g.run(time.Minute, 0, 0, 0)
	if got := g.calls[0] - before; got < 1500 {
		t.Errorf("%d of 6000 calls went to the instance that came back", got)
	}
}

func TestInstanceThatFailsHalfOfItsCallsIsTakenOut(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3, Ejection{Consecutive: 1000})
	g.run(2*time.Minute, .5, .02, .02)
	if e := g.c.ends[0]; e.total == 0 {
		t.Errorf("never taken out: %+v", e)
	}
	if g.c.ends[1].total+g.c.ends[2].total > 0 {
		t.Error("a good instance was taken out")
	}
}

func TestIllServiceHasNoInstanceTakenOut(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{.3, .6, 1} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, 3, Ejection{})
			g.run(time.Minute, 0, 0, 0)
			g.run(2*time.Minute, rate, rate, rate)
			ejections, own, failures := uint64(0), 0, 0
			for i := range g.c.ends {
				ejections += g.c.ends[i].total
				own += g.own[i]
				failures += g.failures[i]
			}
			// Chance makes one look worse than the others now and then; each time costs a few seconds of a third.
			if ejections > 8 || own > failures/20 {
				t.Errorf("%d ejections; %d of %d failures were put down to one instance", ejections, own, failures)
			}
		})
	}
}

func TestHalfOfTheInstancesStayHoweverManyFail(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 7; n++ {
		rates := make([]float64, n) // all but the last fail
		for i := range n - 1 {
			rates[i] = 1
		}
		g := newGround(t, n, Ejection{})
		g.run(time.Minute, make([]float64, n)...)
		most := 0
		for range 6000 {
			g.call(rates)
			most = max(most, g.c.out)
		}
		if want := n / 2; most > want {
			t.Errorf("%d of %d were out at once", most, n)
		}
	}
}

// TestOneBadInstanceOpensNoBreakerAndABadServiceDoes drives a breaker as the attempt does: failures that are one
// instance's own are ignored.
func TestOneBadInstanceOpensNoBreakerAndABadServiceDoes(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		rates []float64
		opens bool
	}{
		{"one of two fails", []float64{1, 0}, false},
		{"one of two fails half of its calls", []float64{.5, 0}, false},
		{"one of three fails", []float64{1, 0, 0}, false},
		{"two of four fail", []float64{1, 1, 0, 0}, false},
		{"both of two fail", []float64{1, 1}, true},
		{"all of three fail two calls in three", []float64{.67, .67, .67}, true},
		{"three of four fail", []float64{1, 1, 1, 0}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, len(x.rates), Ejection{})
			epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			b, err := breaker.NewAt(epoch, breaker.Key{Service: "wallet", Endpoint: "submit"}, breaker.Config{}, rand.New(rand.NewPCG(3, 4)), nil)
			if err != nil {
				t.Fatal(err)
			}
			run := func(d time.Duration, rates []float64) {
				for end := g.now + d; g.now < end; {
					p, ok := b.AllowAt(epoch.Add(g.now))
					if !ok {
						g.now += callEvery
						continue
					}
					result := breaker.Success
					switch failed, one := g.call(rates); {
					case one:
						result = breaker.Ignored
					case failed:
						result = breaker.Failure
					}
					b.DoneAt(epoch.Add(g.now), p, result)
				}
			}
			run(20*time.Second, make([]float64, len(x.rates)))
			run(time.Minute, x.rates)
			if opened := b.SnapshotAt(epoch.Add(g.now)).Totals.Opened > 0; opened != x.opens {
				t.Errorf("opened: %v, want %v; calls %v, failures %v, own %v", opened, x.opens, g.calls, g.failures, g.own)
			}
		})
	}
}

func TestEjectionsGrowUntilTheInstanceHasShownHealth(t *testing.T) {
	t.Parallel()
	c := newChoice(Ejection{Consecutive: 5, Failures: 8, Wait: time.Second, WaitMax: 10 * time.Second, Probes: 1}, 2, func() float64 { return .5 })
	g := &ground{t: t, c: c}
	ill := func(v verdict) time.Duration { // fails the instance until it is out, then waits and answers the probe with v
		e := &g.c.ends[0]
		for !e.out {
			g.c.done(g.now, ticket{at: 1, life: g.c.ends[1].life}, showsHealth)
			g.c.ends[1].inFlight++
			e.inFlight++
			g.c.done(g.now, ticket{at: 0, life: e.life}, showsFailure)
			g.c.ends[1].inFlight = 0
		}
		wait := e.until - g.now
		if to := g.c.pick(g.now + wait - 1); to.at != 1 {
			t.Fatal("probed before its wait was over")
		} else if _, m := g.c.done(g.now, to, showsHealth); m != stays {
			t.Fatal("moved")
		}
		g.now += wait
		to := g.c.pick(g.now)
		if to.at != 0 || !to.probe {
			t.Fatalf("no probe once the wait was over: %+v", to)
		}
		if again := g.c.pick(g.now); again.at != 1 {
			t.Fatal("two probes at once")
		} else {
			g.c.done(g.now, again, showsHealth)
		}
		one, m := g.c.done(g.now, to, v)
		if v == showsFailure && (!one || m != probeFailed) || v == showsHealth && m != cameBack {
			t.Fatalf("probe: own %v, move %v", one, m)
		}
		return wait
	}
	var waits []time.Duration
	for _, v := range []verdict{showsFailure, showsFailure, showsHealth, showsFailure, showsFailure, showsHealth} {
		waits = append(waits, ill(v))
	}
	for i, seconds := range []float64{1, 2, 4, 8, 10, 10} {
		if waits[i].Seconds() != seconds {
			t.Fatalf("waits %v: number %d should be %vs", waits, i+1, seconds)
		}
	}
	// It comes back, serves for longer than its last wait, and is ill again: from the beginning.
	e := &g.c.ends[0]
	for range historyLength {
		g.now += time.Second
		e.inFlight++
		g.c.done(g.now, ticket{at: 0, life: e.life}, showsHealth)
	}
	if wait := ill(showsHealth); wait != time.Second {
		t.Errorf("wait %v after it had shown health", wait)
	}
}

func TestResultsFromBeforeAMoveDecideNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t, 2, Ejection{Probes: 1})
	g.run(time.Second, 0, 0)
	var old []ticket
	for range 3 {
		g.c.ends[1].inFlight = 10
		old = append(old, g.c.pick(g.now))
		g.c.ends[1].inFlight = 0
	}
	for !g.c.ends[0].out {
		g.c.ends[0].inFlight++
		g.c.done(g.now, ticket{at: 0, life: g.c.ends[0].life}, showsFailure)
	}
	before := g.c.ends[0].until
	if one, m := g.c.done(g.now, old[0], showsFailure); !one || m != stays {
		t.Errorf("a failure from before the ejection: own %v, move %v", one, m)
	}
	if one, m := g.c.done(g.now, old[1], showsHealth); one || m != stays {
		t.Errorf("a success from before the ejection: own %v, move %v", one, m)
	}
	if e := g.c.ends[0]; !e.out || e.until != before {
		t.Errorf("it was moved: %+v", e)
	}
	g.now = before
	probe := g.c.pick(g.now)
	g.c.done(g.now, probe, showsHealth)
	if one, _ := g.c.done(g.now, old[2], showsFailure); !one || g.c.ends[0].streak != 0 {
		t.Error("a failure from before it came back was held against it")
	}
}

func TestProbeThatShowsNothingLeavesRoomForTheNext(t *testing.T) {
	t.Parallel()
	g := newGround(t, 2, Ejection{})
	for !g.c.ends[0].out {
		g.call([]float64{1, 0})
	}
	g.now = g.c.ends[0].until
	for range 3 {
		to := g.c.pick(g.now)
		if to.at != 0 || !to.probe {
			t.Fatalf("%+v: want a probe", to)
		}
		if one, m := g.c.done(g.now, to, showsNothing); one || m != stays {
			t.Errorf("own %v, move %v", one, m)
		}
		g.c.done(g.now, g.c.pick(g.now), showsHealth) // never two probes without an ordinary call between
	}
}

// With calls further apart than the wait, each of them was once a probe of the instance that is dead.
func TestThinTrafficDoesNotEndAtTheInstanceThatIsIll(t *testing.T) {
	t.Parallel()
	g := newGround(t, 2, Ejection{})
	g.run(5*time.Second, 0, 0)
	for g.c.out == 0 {
		g.call([]float64{1, 0})
	}
	g.calls = make([]int, 2)
	for range 100 {
		g.now += 7 * time.Minute
		g.call([]float64{1, 0})
	}
	if g.calls[1] < 50 {
		t.Errorf("calls %v: want every other one at the instance that is well", g.calls)
	}
}

func TestLessBusyOfTwoIsChosen(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3, Ejection{})
	g.c.ends[1].inFlight = 10
	chosen := make([]int, 3)
	for range 3000 {
		to := g.c.pick(g.now)
		chosen[to.at]++
		g.c.done(g.now, to, showsHealth)
	}
	if chosen[1] != 0 || chosen[0] < 1200 || chosen[2] < 1200 {
		t.Errorf("chosen %v", chosen)
	}
}

func TestInstanceThatFailsAtOnceDoesNotDrawTheCallsOfBusyOnes(t *testing.T) {
	t.Parallel()
	g := newGround(t, 3, Ejection{Consecutive: 1000, Failures: historyLength})
	g.run(time.Second, 0, 0, 0)
	g.c.ends[0].streak, g.c.ends[0].failed = 4, g.now
	g.c.ends[1].inFlight, g.c.ends[2].inFlight = 3, 3 // as busy as they usually are
	for range 100 {
		if to := g.c.pick(g.now + shyFor - 1); to.at == 0 {
			t.Fatal("the instance that has just failed was chosen before busy ones")
		} else {
			g.c.done(g.now, to, showsHealth)
		}
	}
	chosen := 0
	for range 100 {
		to := g.c.pick(g.now + shyFor)
		if to.at == 0 {
			chosen++
		}
		g.c.done(g.now, to, showsNothing)
	}
	if chosen < 50 {
		t.Errorf("a second later it was chosen %d times of 100", chosen)
	}
}

// TestCallsThatHangAtOneInstanceCostTheBreakerThreeFailures has many calls in flight at an instance that stops answering:
// all of them end as failures, most after it was taken out.
func TestCallsThatHangAtOneInstanceCostTheBreakerThreeFailures(t *testing.T) {
	t.Parallel()
	g := newGround(t, 2, Ejection{})
	var hung []ticket
	for range 40 {
		g.c.ends[1].inFlight = 1000
		hung = append(hung, g.c.pick(g.now))
		g.c.ends[1].inFlight = 0
	}
	for range 10 {
		g.c.ends[1].inFlight++
		g.c.done(g.now, ticket{at: 1, life: g.c.ends[1].life}, showsHealth)
	}
	counted := 0
	for _, to := range hung {
		if one, _ := g.c.done(g.now, to, showsFailure); !one {
			counted++
		}
	}
	if counted != suspectFailures-1 || !g.c.ends[0].out {
		t.Errorf("%d of 40 failures were the service's, want 3; out: %v", counted, g.c.ends[0].out)
	}
}

// FuzzChoice holds the machine to its invariants under any order of picks and results, and then lets every instance be
// well: all of them must come back.
func FuzzChoice(f *testing.F) {
	f.Add([]byte{2, 0, 1, 2, 3, 250, 17, 9})
	f.Add([]byte("any text does for a script of picks and results"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 || len(script) > 2000 {
			return
		}
		n := 2 + int(script[0])%(MaxEndpoints-1)
		g := newGround(t, n, Ejection{})
		var open []ticket
		for _, b := range script[1:] {
			g.now += time.Duration(b) * time.Duration(b) * time.Millisecond
			if b&3 == 0 || len(open) == 0 {
				open = append(open, g.c.pick(g.now))
			} else {
				at := int(b>>2) % len(open)
				g.c.done(g.now, open[at], verdict(b&3-1))
				open = append(open[:at], open[at+1:]...)
			}
			g.sound()
			busy := 0
			for i := range g.c.ends {
				busy += g.c.ends[i].inFlight
			}
			if busy != len(open) {
				t.Fatalf("%d calls in flight, counted as %d", len(open), busy)
			}
		}
		for _, to := range open {
			g.c.done(g.now, to, showsNothing)
		}
		g.now += 10 * time.Minute // longer than any wait
		for range 20 * n {
			g.call(make([]float64, n))
		}
		if g.c.out != 0 {
			t.Fatalf("%d are out though all are well", g.c.out)
		}
	})
}

func BenchmarkChoice(b *testing.B) {
	cfg, err := Ejection{}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	c := newChoice(cfg, 3, rand.New(rand.NewPCG(1, 2)).Float64)
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		now += time.Microsecond
		c.done(now, c.pick(now), showsHealth)
	}
}
