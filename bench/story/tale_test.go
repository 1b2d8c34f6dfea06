package main

import (
	"testing"
	"time"
)

func TestCaughtUpIsTheFirstMomentWithoutABacklog(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	for name, c := range map[string]struct {
		spans       []span
		took, worst float64
	}{
		"nothing was late":                    {[]span{{at(-5), at(-4)}, {at(0.5), at(0.6)}}, 0, 0.1},
		"a backlog, then orders as they come": {[]span{{at(-5), at(3)}, {at(1), at(4)}, {at(2.5), at(5)}, {at(4.5), at(4.6)}}, 5, 0},
		"one that came in time keeps nobody":  {[]span{{at(-5), at(3)}, {at(2.5), at(3.2)}}, 3, 0.7},
		"a later hiccup is the worst age":     {[]span{{at(-5), at(3)}, {at(9), at(12)}}, 3, 3},
		"in any order":                        {[]span{{at(2.5), at(5)}, {at(1), at(4)}, {at(-5), at(3)}}, 5, 0},
	} {
		took, worst := caughtUp(begin, c.spans)
		if took.Seconds() != c.took || worst.Round(time.Millisecond).Seconds() != c.worst {
			t.Errorf("%s: %v, worst %v; want %v, %v", name, took.Seconds(), worst.Seconds(), c.took, c.worst)
		}
	}
}
