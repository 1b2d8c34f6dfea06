// Package report is the shape of every file under bench/out: what was measured, how often, and how ours stands to the
// references of the same run.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// File is one benchmark's outcome.
type File struct {
	Bench   string            `json:"bench"`
	Setup   map[string]string `json:"setup"` // what must be known to judge the figures
	Results []Result          `json:"results"`
}

// Result is one thing that was measured. Value is the median of Runs. Ratio says, per reference, ours ÷ reference; it
// is empty for the references themselves.
type Result struct {
	Name  string             `json:"name"`
	Value float64            `json:"value"`
	Unit  string             `json:"unit"`
	Ratio map[string]float64 `json:"ratio"`
	Min   float64            `json:"min"`
	Max   float64            `json:"max"`
	Runs  []float64          `json:"runs"`
	What  string             `json:"what"`
}

// Series is what one contender reached, a value per round. The rounds of all contenders go together.
type Series struct {
	Name   string
	What   string
	Values []float64
}

// New sets ours beside the references. A ratio is the median of the rounds' own ratios, because what one round takes
// of the machine's time it takes from all its contenders.
func New(bench, unit string, setup map[string]string, ours Series, references ...Series) File {
	f := File{Bench: bench, Setup: setup}
	for _, s := range append([]Series{ours}, references...) {
		f.Results = append(f.Results, Result{
			Name: s.Name, Value: round(Median(s.Values)), Unit: unit, Ratio: map[string]float64{},
			Min: round(slices.Min(s.Values)), Max: round(slices.Max(s.Values)), Runs: rounded(s.Values), What: s.What,
		})
	}
	for _, s := range references {
		ratios := make([]float64, len(s.Values))
		for i := range ratios {
			ratios[i] = ours.Values[i] / s.Values[i]
		}
		f.Results[0].Ratio[s.Name] = float64(int(Median(ratios)*1000+0.5)) / 1000
	}
	return f
}

// Median is the middle value, or the mean of the two middle ones. There must be a value.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func round(v float64) float64 { return float64(int64(v + 0.5)) }

func rounded(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = round(v)
	}
	return out
}

// Write puts the file at path, and prints it as a table for people.
func (f File) Write(path string, out io.Writer) error {
	if err := f.Save(path); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	unit := f.Results[0].Unit
	_, _ = fmt.Fprintf(w, "\t%s\tleast\tmost\t%s is\t\n", unit, f.Results[0].Name)
	for i, r := range f.Results {
		ratio := ""
		if i > 0 {
			ratio = fmt.Sprintf("%.2f x", f.Results[0].Ratio[r.Name])
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s\t\n", r.Name, r.Value, r.Min, r.Max, ratio)
	}
	return w.Flush() // says what went wrong before, too
}

// Figure is a result that is measured against something else than a contender: a formula, a calm phase, a limit. Each
// ratio has a value per round as the figure has. There must be a value.
func Figure(name, unit, what string, values []float64, ratios map[string][]float64) Result {
	r := Result{
		Name: name, Value: fine(Median(values)), Unit: unit, Ratio: map[string]float64{},
		Min: fine(slices.Min(values)), Max: fine(slices.Max(values)), What: what,
	}
	for _, v := range values {
		r.Runs = append(r.Runs, fine(v))
	}
	for against, of := range ratios {
		r.Ratio[against] = math.Round(Median(of)*1e4) / 1e4
	}
	return r
}

// Save puts the file at path.
func (f File) Save(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// List prints results that have units of their own.
func (f File) List(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range f.Results {
		_, _ = fmt.Fprintf(w, "%s\t%v\t%s", r.Name, r.Value, r.Unit)
		for _, against := range slices.Sorted(maps.Keys(r.Ratio)) {
			_, _ = fmt.Fprintf(w, "\t%s %.4f", against, r.Ratio[against])
		}
		_, _ = fmt.Fprintln(w)
	}
	return w.Flush() // says what went wrong before, too
}

// fine keeps two decimals, which is more than any of this is worth.
func fine(v float64) float64 { return math.Round(v*100) / 100 }

// Machine says what the figures were taken on, and how busy it was with other things when they were begun.
func Machine() map[string]string {
	setup := map[string]string{"go": runtime.Version(), "cores": fmt.Sprint(runtime.NumCPU()), "os": runtime.GOOS + "/" + runtime.GOARCH}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		setup["load_before"] = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := strings.Cut(string(info), "model name"); ok {
			name, _, _ := strings.Cut(after, "\n")
			setup["cpu"] = strings.TrimLeft(name, "\t :")
		}
	}
	return setup
}
