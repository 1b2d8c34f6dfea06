package main

import (
	"os"
	"time"

	"spillway/bench/report"
)

// figure is one thing that the story is judged by.
type figure struct {
	name  string
	unit  string
	what  string
	worst bool // the worst round counts, not the middle one
	of    func(t tale) []float64
}

func figures() []figure {
	count := func(of func(t tale) int) func(tale) []float64 {
		return func(t tale) []float64 { return []float64{float64(of(t))} }
	}
	return []figure{
		{"lost", "orders", "produced, and neither SUCCEEDED and applied nor a dead letter", true, count(func(t tale) int { return t.lost })},
		{"double_effects", "effects", "effects beyond the first of an order", true, count(func(t tale) int { return t.doubleEffects })},
		{"parked", "orders", "dead letters, though nothing was wrong with any order", true, count(func(t tale) int { return t.parked })},
		{"parked_though_applied", "orders", "of those, the ones that the wallet had applied", true, count(func(t tale) int { return t.parkedApplied })},
		{"max_in_flight", "requests", "the most that the wallet worked on at once, POSTs and lookups", true, count(func(t tale) int { return t.maxInFlight })},
		{"answers_503", "answers", "503, to POSTs and lookups", true, count(func(t tale) int { return t.answers503 })},
		{
			"caught_up_s", "s", "from the last phase's begin to the first moment at which all orders produced a second before were final", false,
			func(t tale) []float64 { return []float64{seconds(t.caughtUp)} },
		},
		{
			"worst_age_after_s", "s", "the greatest age that an order reached unfinished after that moment", true,
			func(t tale) []float64 { return []float64{seconds(t.worstAge)} },
		},
		{"first_post_after_kill_s", "s", "from a kill to the next POST; two kills a round", true, func(t tale) (all []float64) {
			for _, d := range t.firstPosts {
				all = append(all, seconds(d))
			}
			return all
		}},
	}
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// write puts the results into a file, and prints them.
func write(path string, setup map[string]string, editions []edition, tales [][]tale) error {
	f := report.File{Bench: "story", Setup: setup}
	setup["short_waits"] = string(shortWaits("hold"))
	for i, e := range editions {
		for _, fig := range figures() {
			var runs []float64
			for _, t := range tales[i] {
				runs = append(runs, fig.of(t)...)
			}
			if len(runs) == 0 {
				continue
			}
			r := report.Figure(fig.name+e.suffix, fig.unit, fig.what, runs, nil)
			if fig.worst {
				r.Value = r.Max
			}
			f.Results = append(f.Results, r)
			if r.Name == "first_post_after_kill_s_kills" { // there is none without kills: it goes by both names
				r.Name = fig.name
				f.Results = append(f.Results, r)
			}
		}
	}
	if err := f.Save(path); err != nil {
		return err
	}
	return f.List(os.Stdout)
}
