package config

import (
	"fmt"
	"testing"
)

func TestARateIsPrintedShortAndReadAgainAsTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, out string }{
		{"200/s", "200/s"}, {"0.5/s", "30/m"}, {"7/m", "7/m"}, {"60/m", "1/s"}, {"1/h", "1/h"}, {"none", "none"}, {".25/s", "15/m"}, {"5./s", "5/s"},
	} {
		r, why := parseRate(c.in)
		if why != "" || r.String() != c.out {
			t.Errorf("%s is printed as %s (%s), want %s", c.in, r, why, c.out)
		}
	}
	for n := 1; n < 5000; n++ {
		for _, unit := range []string{"/s", "/m", "/h"} {
			r, why := parseRate(fmt.Sprint(n) + unit)
			again, whyAgain := parseRate(r.String())
			if why != "" || whyAgain != "" || again != r {
				t.Fatalf("%d%s is printed as %s, which is another rate", n, unit, r)
			}
		}
	}
}
