package main

import (
	"fmt"

	"spillway/bench/report"
)

// measure is one figure of one contender on one topic, a value per round.
type measure struct {
	figure    string
	size      int32
	contender string
}

type measures map[measure][]float64

// figures are what is measured, and how to read the ratios: those of a rate are better the higher they are, the others
// the lower.
var figures = []struct{ name, unit, what string }{
	{"rate", "msgs/s", "records a second from the client's start to the last record, joining the group included; higher is better"},
	{"cpu", "CPU s/million", "processor time of the reading process for a million records, user and system; lower is better"},
	{"rss", "MB", "peak resident memory of the reading process; lower is better"},
	{"sockets", "sockets", "open sockets once everything was read; lower is better"},
	{"idle_fetches", "requests", "fetch requests while nothing came; lower is better"},
	{"idle_cpu", "CPU s", "processor time while nothing came; lower is better"},
}

// add takes in what one run of a contender says, and prints it.
func (m measures) add(o options, name string, size int32, round int, r reading) {
	put := func(figure string, v float64) {
		at := measure{figure, size, name}
		m[at] = append(m[at], v)
	}
	million := float64(o.records) / 1e6
	put("rate", float64(o.records)/r.Seconds)
	put("cpu", r.CPU/million)
	put("rss", r.PeakRSS/1e6)
	put("sockets", r.Sockets)
	fmt.Printf("round %d  %3d partitions  %-9s %9.0f msgs/s  %.3f CPU s/million  %4.0f MB  %3.0f sockets  first after %3.0f ms",
		round+1, size, name, float64(o.records)/r.Seconds, r.CPU/million, r.PeakRSS/1e6, r.Sockets, r.First*1e3)
	if round == 0 {
		put("idle_fetches", r.IdleFetches)
		put("idle_cpu", r.IdleCPU)
		fmt.Printf("  at rest for %v: %.0f fetches, %.2f CPU s", o.idle, r.IdleFetches, r.IdleCPU)
	}
	fmt.Println()
}

// results sets ours, which is the first of the field, beside the others. Every ratio is ours ÷ theirs.
func (m measures) results(field []contender) []report.Result {
	var all []report.Result
	for _, f := range figures {
		for _, size := range sizes {
			name := fmt.Sprintf("%s_%d", f.name, size)
			ours := m[measure{f.name, size, field[0].name}]
			ratios := map[string][]float64{}
			var others []report.Result
			for _, c := range field[1:] {
				theirs := m[measure{f.name, size, c.name}]
				for i := range theirs {
					if theirs[i] > 0 { // at rest nobody need use anything
						ratios[c.name] = append(ratios[c.name], ours[i]/theirs[i])
					}
				}
				others = append(others, report.Figure(name+"_"+c.name, f.unit, c.what, theirs, nil))
			}
			all = append(all, report.Figure(name, f.unit, f.what+"; a ratio is ours ÷ theirs", ours, ratios))
			all = append(all, others...)
		}
	}
	return all
}
