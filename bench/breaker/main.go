// Command breaker measures what Spillway's circuit breaker costs per call beside the breakers that Go programs use
// otherwise, and beside the least that any of them must do. Everything is measured in one process, round by round, each
// round beginning with another contender; a ratio is the median of the rounds' own ratios.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"text/tabwriter"
	"time"

	"spillway/bench/report"
)

// file is bench/out/breaker.json.
type file struct {
	Bench   string            `json:"bench"`
	Setup   map[string]string `json:"setup"`
	Results []result          `json:"results"`
}

// result is one kind of call. Value is our median; Ratio is ours ÷ reference, so less is better.
type result struct {
	Name       string             `json:"name"`
	Value      float64            `json:"value"`
	Unit       string             `json:"unit"`
	Ratio      map[string]float64 `json:"ratio"`
	Allocs     int64              `json:"allocs"`
	Min        float64            `json:"min"`
	Max        float64            `json:"max"`
	What       string             `json:"what"`
	Contenders []figure           `json:"contenders"`
}

// figure is what one contender reached.
type figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"` // median of the rounds
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Spread float64 `json:"spread"` // the middle half of the rounds ÷ the median
	Allocs int64   `json:"allocs"`

	rounds []float64
}

// kind is one kind of call.
type kind struct {
	name, what string
	pick       func(c *contender) loop
	against    func(c *contender) loop // of the references
	admits     bool
	parallel   bool
}

func permitOf(c *contender) loop { return c.permit }
func rejectOf(c *contender) loop { return c.reject }
func timedOf(c *contender) loop  { return c.timed }

func kinds() []kind {
	return []kind{
		{"permit_record", "a call is admitted and its success recorded; processor time", permitOf, permitOf, true, false},
		{"reject", "an open breaker refuses a call; processor time", rejectOf, rejectOf, false, false},
		{"permit_record_with_time", "ours is given the moment, and looks at durations too; the others, which can't be, as in permit_record; processor time", timedOf, permitOf, true, false},
		{"permit_record_parallel", "as permit_record, on one breaker from all cores at once; time on the wall", permitOf, permitOf, true, true},
		{"reject_parallel", "as reject, from all cores at once; time on the wall", rejectOf, rejectOf, false, true},
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "out/breaker.json", "file for the results")
	rounds := flag.Int("rounds", 41, "how often each contender is measured")
	slice := flag.Duration("slice", 10*time.Millisecond, "how long one measurement lasts")
	flag.Parse()
	if *rounds < 1 || *slice < time.Millisecond || flag.NArg() > 0 {
		return errors.New("want at least one round of at least 1ms, and no arguments but flags")
	}
	field, err := contenders()
	if err != nil {
		return err
	}
	f := file{Bench: "breaker", Setup: report.Machine()}
	f.Setup["rounds"], f.Setup["slice"] = fmt.Sprint(*rounds), slice.String()
	for _, k := range kinds() {
		r, err := k.measure(field, *rounds, *slice)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		f.Results = append(f.Results, r)
	}
	f.Setup["load_after"] = report.Machine()["load_before"]
	return f.write(*out, os.Stdout)
}

// measure runs all contenders round by round.
func (k *kind) measure(field []contender, rounds int, slice time.Duration) (result, error) {
	m := measurement{slice: slice, parallel: k.parallel}
	figures, loops, sizes := make([]figure, len(field)), make([]loop, len(field)), make([]int, len(field))
	mine := 0
	for i := range field {
		figures[i].Name, loops[i] = field[i].name, k.against(&field[i])
		if field[i].name == oursName {
			mine, loops[i] = i, k.pick(&field[i])
		}
		var err error
		if sizes[i], err = m.fit(loops[i], k.admits); err != nil {
			return result{}, fmt.Errorf("%s: %w", field[i].name, err)
		}
		figures[i].Allocs = allocations(loops[i])
	}
	// A collection would be charged to whoever runs when it comes; the allocations are reported beside the times.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for round := range rounds {
		for i := range field {
			at := (i + round) % len(field)
			v, err := m.one(loops[at], sizes[at], k.admits)
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", field[at].name, err)
			}
			figures[at].rounds = append(figures[at].rounds, v)
		}
	}
	return k.result(figures, mine), nil
}

func (k *kind) result(figures []figure, mine int) result {
	for i := range figures {
		f := &figures[i]
		sorted := slices.Sorted(slices.Values(f.rounds))
		n := len(sorted)
		f.Value, f.Min, f.Max = cut(report.Median(sorted)), cut(sorted[0]), cut(sorted[n-1])
		f.Spread = cut((sorted[n*3/4] - sorted[n/4]) / report.Median(sorted))
	}
	us := figures[mine]
	r := result{
		Name: k.name, Value: us.Value, Unit: "ns/op", Ratio: map[string]float64{}, Allocs: us.Allocs,
		Min: us.Min, Max: us.Max, What: k.what, Contenders: figures,
	}
	for i := range figures {
		if i == mine {
			continue
		}
		ratios := make([]float64, len(us.rounds))
		for round := range ratios {
			ratios[round] = us.rounds[round] / figures[i].rounds[round]
		}
		r.Ratio[figures[i].Name] = cut(report.Median(ratios))
	}
	return r
}

// cut keeps two places behind the point.
func cut(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// write puts the file at path, and prints it as tables for people.
func (f *file) write(path string, out io.Writer) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "load %s before, %s after\n", f.Setup["load_before"], f.Setup["load_after"])
	for _, r := range f.Results {
		fmt.Fprintf(w, "\n%s\tns/op\tleast\tmost\tspread\tallocs\tours is\t\n", r.Name)
		for _, c := range r.Contenders {
			ratio := ""
			if c.Name != oursName {
				ratio = fmt.Sprintf("%.2f x", r.Ratio[c.Name])
			}
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f%%\t%d\t%s\t\n", c.Name, c.Value, c.Min, c.Max, 100*c.Spread, c.Allocs, ratio)
		}
	}
	return w.Flush()
}
