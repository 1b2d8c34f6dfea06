package sim

import (
	"flag"
	"testing"
)

var seedFlag = flag.Int64("sim.seed", -1, "run this seed alone, with its trace")

func TestSmoke(t *testing.T) {
	if *seedFlag >= 0 {
		r := Run(uint64(*seedFlag), Options{Trace: 300})
		for _, l := range r.Trace {
			t.Log(l)
		}
		t.Fatal(r.Violation)
	}
	steps := 0
	for seed := range uint64(200) {
		r := Run(seed, Options{})
		steps += r.Steps
		if r.Violation != nil {
			t.Errorf("seed %d: %v", seed, r.Violation)
		}
	}
	t.Log(steps)
}
