package fleet

import (
	"testing"
	"time"

	"spillway/breaker"
)

// seen makes a member that is closed and has failures among its samples.
func seen(name string, samples, failed int) Member {
	w := breaker.Window{Samples: samples, Failures: failed}
	return Member{Worker: name, Evidence: breaker.Evidence{Epoch: 4, Failure: w, Slow: breaker.Window{Samples: samples}, Successes: samples - failed}}
}

// own makes a member that opened by itself.
func own(name string, samples, failed int) Member {
	m := seen(name, samples, failed)
	m.Evidence.Own, m.Evidence.State = true, breaker.Open
	return m
}

// probed makes a member with first probes.
func probed(name string, good, bad int) Member {
	return Member{Worker: name, Evidence: breaker.Evidence{Epoch: 4, State: breaker.HalfOpen, ProbesGood: good, ProbesBad: bad}}
}

// ramped makes a member with results since half-open.
func ramped(name string, samples, failed int) Member {
	return Member{Worker: name, Evidence: breaker.Evidence{
		Epoch: 4, State: breaker.HalfOpen, Ramping: true, Half: breaker.Window{Samples: samples, Failures: failed},
	}}
}

func stale(m Member) Member {
	m.Evidence.Epoch = 3
	return m
}

func slowly(m Member) Member {
	m.Evidence.Slow = breaker.Window{Samples: m.Evidence.Failure.Samples, Slow: m.Evidence.Failure.Failures}
	m.Evidence.Failure.Failures = 0
	return m
}

// alone makes the member a what it is after it went on alone.
func alone(e breaker.Evidence) Member {
	e.Epoch, e.Own = 4, true
	return Member{Worker: "a", Evidence: e}
}

func TestEveryWorkerDecidesByTheTable(t *testing.T) {
	t.Parallel()
	closed := breaker.Record{Epoch: 4, Moves: 4, Age: time.Hour, Wait: 30 * time.Second, Opens: 3}
	open := breaker.Record{Epoch: 4, Moves: 4, State: breaker.Open, Age: 30 * time.Second, Wait: 30 * time.Second, Opens: 1}
	waiting := open
	waiting.Age = 29 * time.Second
	probing := breaker.Record{Epoch: 4, Moves: 4, State: breaker.HalfOpen, Wait: 30 * time.Second, Opens: 1}
	ramping := probing
	ramping.Ramping, ramping.Age = true, 5*time.Second
	top := ramping
	top.Age = 21 * time.Second
	forced := func(r breaker.Record, f breaker.Force, left time.Duration) breaker.Record {
		r.Force, r.ForceLeft = f, left
		return r
	}
	const stay = "stays"
	for name, c := range map[string]struct {
		cfg     breaker.Config
		record  breaker.Record
		members []Member
		want    string
	}{
		"nothing seen":                           {record: closed, members: []Member{seen("a", 0, 0), seen("b", 0, 0)}, want: stay},
		"the pool is bad":                        {record: closed, members: []Member{seen("a", 20, 18), seen("b", 20, 15), seen("c", 20, 16)}, want: "open failure-rate"},
		"the pool is bad, each has too few":      {record: closed, members: []Member{seen("a", 9, 9), seen("b", 9, 9), seen("c", 9, 9)}, want: "open failure-rate"},
		"the pool is short of the minimum":       {record: closed, members: []Member{seen("a", 9, 9), seen("b", 10, 10)}, want: stay},
		"the pool is above the rate, not surely": {record: closed, members: []Member{seen("a", 10, 6), seen("b", 10, 5)}, want: stay},
		"the pool is slow":                       {record: closed, members: []Member{slowly(seen("a", 20, 18)), slowly(seen("b", 20, 15))}, want: "open slow-rate"},
		"one is bad, the others are well":        {record: closed, members: []Member{own("a", 20, 20), seen("b", 20, 0), seen("c", 20, 0)}, want: stay},
		"one that has most of the calls is bad":  {record: closed, members: []Member{own("a", 500, 500), seen("b", 3, 0), seen("c", 2, 0)}, want: stay},
		"one is bad, nobody else calls":          {record: closed, members: []Member{own("a", 20, 20), seen("b", 0, 0), seen("c", 0, 0)}, want: "open failure-rate"},
		"one is bad, another sees it too":        {record: closed, members: []Member{own("a", 20, 20), seen("b", 2, 1), seen("c", 0, 0)}, want: "open failure-rate"},
		"two of three opened":                    {record: closed, members: []Member{own("a", 0, 0), own("b", 0, 0), seen("c", 0, 0)}, want: "open quorum"},
		"two of five opened":                     {record: closed, members: []Member{own("a", 0, 0), own("b", 0, 0), seen("c", 0, 0), seen("d", 0, 0), seen("e", 0, 0)}, want: stay},
		"two of four opened":                     {record: closed, members: []Member{own("a", 0, 0), own("b", 0, 0), seen("c", 0, 0), seen("d", 0, 0)}, want: "open quorum"},
		"one of two opened":                      {record: closed, members: []Member{own("a", 0, 0), seen("b", 0, 0)}, want: stay},
		"the only one opened":                    {record: closed, members: []Member{own("a", 0, 0)}, want: "open quorum"},
		"what was seen under an earlier record":  {record: closed, members: []Member{stale(own("a", 50, 50)), stale(own("b", 50, 50))}, want: stay},
		"nobody is alive":                        {record: closed, want: stay},
		"disabled":                               {cfg: breaker.Config{Mode: breaker.ModeDisabled}, record: closed, members: []Member{seen("a", 50, 50)}, want: stay},
		"a threshold of all":                     {cfg: breaker.Config{FailureRate: 1}, record: closed, members: []Member{seen("a", 20, 20), seen("b", 20, 20)}, want: "open failure-rate"},
		"a rule that is off":                     {cfg: breaker.Config{FailureRate: -1}, record: closed, members: []Member{seen("a", 20, 20), seen("b", 20, 20)}, want: stay},
		"waiting":                                {record: waiting, members: []Member{seen("a", 0, 0)}, want: stay},
		"the wait is over":                       {record: open, members: []Member{seen("a", 0, 0)}, want: "half-open wait-over"},
		"the wait is over, a ramps alone":        {record: open, members: []Member{alone(breaker.Evidence{State: breaker.HalfOpen, Ramping: true, RampAge: 7 * time.Second})}, want: "ramp probes-succeeded 7s"},
		"the wait is over, a probes alone":       {record: open, members: []Member{alone(breaker.Evidence{State: breaker.HalfOpen})}, want: "half-open wait-over"},
		"the wait is over, a closed alone":       {record: open, members: []Member{alone(breaker.Evidence{State: breaker.Closed})}, want: "closed ramp-done"},
		"the wait is over, a reopened alone":     {record: open, members: []Member{alone(breaker.Evidence{State: breaker.Open}), seen("b", 0, 0)}, want: "half-open wait-over"},
		"waiting, though a says it closed":       {record: waiting, members: []Member{alone(breaker.Evidence{State: breaker.Closed})}, want: stay},
		"probing":                                {record: probing, members: []Member{probed("a", 1, 0), probed("b", 1, 0)}, want: stay},
		"enough probes of two":                   {record: probing, members: []Member{probed("a", 1, 0), probed("b", 2, 0)}, want: "ramp probes-succeeded 0s"},
		"enough probes to close":                 {cfg: breaker.Config{SuccessesToClose: 3}, record: probing, members: []Member{probed("a", 1, 0), probed("b", 2, 0)}, want: "closed probes-succeeded"},
		"not enough to close":                    {cfg: breaker.Config{SuccessesToClose: 4}, record: probing, members: []Member{probed("a", 1, 0), probed("b", 2, 0)}, want: stay},
		"bad probes of two":                      {record: probing, members: []Member{probed("a", 0, 1), probed("b", 0, 1), probed("c", 0, 0)}, want: "open probes-failed"},
		"bad probes of two, as many good":        {record: probing, members: []Member{probed("a", 0, 1), probed("b", 0, 1), probed("c", 2, 0)}, want: stay},
		"bad probes of one of three":             {record: probing, members: []Member{own("a", 0, 0), probed("b", 0, 0), probed("c", 0, 0)}, want: stay},
		"bad probes of the only one":             {record: probing, members: []Member{probed("a", 0, 2)}, want: "open probes-failed"},
		"two of three opened again":              {record: probing, members: []Member{own("a", 0, 0), own("b", 0, 0), probed("c", 2, 0)}, want: "open quorum"},
		"probing, a ramps alone":                 {record: probing, members: []Member{alone(breaker.Evidence{State: breaker.HalfOpen, Ramping: true, RampAge: time.Second})}, want: "ramp probes-succeeded 1s"},
		"probing, b ramps alone":                 {record: probing, members: []Member{probed("a", 0, 0), {Worker: "b", Evidence: alone(breaker.Evidence{State: breaker.HalfOpen, Ramping: true}).Evidence}}, want: stay},
		"ramping":                                {record: ramping, members: []Member{ramped("a", 10, 2), ramped("b", 10, 1)}, want: stay},
		"the ramp is bad":                        {record: ramping, members: []Member{ramped("a", 10, 9), ramped("b", 10, 8)}, want: "open ramp-failure-rate"},
		"the ramp is bad at one":                 {record: ramping, members: []Member{ramped("a", 10, 9), ramped("b", 3, 0)}, want: stay},
		"the top":                                {record: top, members: []Member{ramped("a", 100, 2), ramped("b", 100, 1)}, want: "closed ramp-done"},
		"the top of a quiet ramp that was bad":   {record: top, members: []Member{ramped("a", 1, 1), ramped("b", 1, 1)}, want: "open ramp-failure-rate"},
		"the top, nobody called":                 {record: top, members: []Member{ramped("a", 0, 0)}, want: "closed ramp-done"},
		"the top, one opened again":              {record: top, members: []Member{own("a", 0, 0), ramped("b", 10, 0), ramped("c", 10, 0)}, want: "closed ramp-done"},
		"ramping, a closed alone":                {record: ramping, members: []Member{alone(breaker.Evidence{State: breaker.Closed})}, want: "closed ramp-done"},
		"forced open, all is bad":                {record: forced(probing, breaker.ForceOpen, time.Minute), members: []Member{own("a", 0, 0), own("b", 0, 0)}, want: stay},
		"forced closed, all is bad":              {record: forced(closed, breaker.ForceClosed, time.Minute), members: []Member{seen("a", 50, 50), seen("b", 50, 50)}, want: stay},
		"observing, all is bad":                  {record: forced(closed, breaker.ForceObserve, time.Minute), members: []Member{seen("a", 50, 50), seen("b", 50, 50)}, want: "open failure-rate observe"},
		"disabled but observing, all is bad":     {cfg: breaker.Config{Mode: breaker.ModeDisabled}, record: forced(closed, breaker.ForceObserve, time.Minute), members: []Member{seen("a", 50, 50), seen("b", 50, 50)}, want: "open failure-rate observe"},
		"the forced open ends":                   {record: forced(probing, breaker.ForceOpen, 0), want: "half-open force-ended"},
		"the forced closed ends, all is bad":     {record: forced(closed, breaker.ForceClosed, 0), members: []Member{seen("a", 50, 50)}, want: "closed force-ended"},
		"observing ends in the ramp":             {record: forced(ramping, breaker.ForceObserve, 0), members: []Member{ramped("a", 1, 0)}, want: "ramp none 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, ok := decide(c.cfg.WithDefaults(), View{Record: c.record, Members: c.members}, "a")
			got := stay
			if ok {
				got = describe(next)
			}
			if got != c.want {
				t.Errorf("%s, want %s (%+v)", got, c.want, next)
			}
			if ok && next.Epoch != c.record.Epoch+1 {
				t.Errorf("epoch %d after %d", next.Epoch, c.record.Epoch)
			}
			if again, too := decide(c.cfg.WithDefaults(), View{Record: c.record, Members: c.members}, "a"); too != ok || again != next {
				t.Error("it decided differently the second time")
			}
		})
	}
}

func describe(r breaker.Record) string {
	s := r.State.String()
	if r.Ramping {
		s = "ramp"
	}
	s += " " + r.Why.Reason.String()
	if r.Ramping {
		s += " " + r.Age.String()
	}
	if r.Force != breaker.ForceNone {
		s += " " + r.Force.String()
	}
	return s
}

func TestWaitGrowsUntilTheFleetHasShownHealth(t *testing.T) {
	t.Parallel()
	cfg := breaker.Config{}.WithDefaults()
	bad := []Member{seen("a", 50, 40), seen("b", 50, 40)} // 20 successes since it closed
	for name, c := range map[string]struct {
		record breaker.Record
		wait   time.Duration
		opens  int
	}{
		"the first time":                {breaker.Record{Epoch: 4}, 30 * time.Second, 1},
		"again soon after it closed":    {breaker.Record{Epoch: 4, Age: 29 * time.Second, Wait: 30 * time.Second, Opens: 1}, 45 * time.Second, 2},
		"again later":                   {breaker.Record{Epoch: 4, Age: 31 * time.Second, Wait: 30 * time.Second, Opens: 1}, 30 * time.Second, 1},
		"for the hundredth time":        {breaker.Record{Epoch: 4, Wait: 300 * time.Second, Opens: 99}, 5 * time.Minute, 100},
		"more often than can be raised": {breaker.Record{Epoch: 4, Wait: 300 * time.Second, Opens: 1 << 30}, 5 * time.Minute, 1<<30 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, ok := decide(cfg, View{Record: c.record, Members: bad}, "a")
			if !ok || next.State != breaker.Open || next.Wait != c.wait || next.Opens != c.opens {
				t.Errorf("%v %+v, want a wait of %v and %d openings", ok, next, c.wait, c.opens)
			}
		})
	}
}

func TestRampIsAsLongAsTheBreakersOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []breaker.Config{
		{}, {RampStart: 1}, {RampStart: 0.5}, {RampStart: 0.125, RampFactor: 2}, {RampFactor: 1.01}, {RampStart: 0.001, RampFactor: 10}, {RampFactor: 100},
	} {
		c = c.WithDefaults()
		n := 0
		for share := c.RampStart; share < 1-1e-9; share *= c.RampFactor {
			n++
		}
		if got, want := rampLength(c), time.Duration(n)*c.RampStep; got != want {
			t.Errorf("start %v factor %v: %v, want %v", c.RampStart, c.RampFactor, got, want)
		}
	}
}

func TestOrdersThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Order{
		"no operator":      {Force: breaker.ForceOpen, For: time.Hour, Reason: "x"},
		"no reason":        {Force: breaker.ForceOpen, For: time.Hour, Operator: "kim"},
		"no duration":      {Force: breaker.ForceOpen, Operator: "kim", Reason: "x"},
		"too long":         {Force: breaker.ForceOpen, For: 721 * time.Hour, Operator: "kim", Reason: "x"},
		"unknown force":    {Force: 9, For: time.Hour, Operator: "kim", Reason: "x"},
		"nothing to leave": {Operator: "kim", Reason: "x"},
	} {
		s := &fakeStore{}
		if _, err := Give(t.Context(), s, o); err == nil || s.moves != 0 {
			t.Errorf("%s: %v, %d moves", name, err, s.moves)
		}
	}
}
