package breakersim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Write prints the report for people.
func (r *Report) Write(to io.Writer) error {
	w := &printer{Writer: tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)}
	w.line("%d calls in %s, the first at %s\n", r.Calls, span(r.Seconds), r.Start.Format(time.RFC3339Nano))
	if len(r.Moves) == 0 {
		w.line("The breaker would have stayed closed.\n")
	} else {
		w.line("AFTER\tTO\tRULE\tWINDOW\tSAMPLES\tFAILURES\tSLOW\tRATE\tBOUND\tTHRESHOLD\tWAIT")
		for _, m := range r.Moves {
			w.line("%s\t%s\t%s\t%s", span(m.After), m.To, m.Rule, m.evidence())
		}
		if r.Omitted > 0 {
			w.line("and %d more moves", r.Omitted)
		}
		w.line("")
	}
	w.flush()
	w.line("SETTING\tOPENED\tFIRST AFTER\tNOT CLOSED\tREFUSED\tSHARE\tSAVED\tLOST\tFAILED ALL THE SAME")
	for _, t := range r.Tried {
		first := "-"
		if t.FirstOpen != nil {
			first = span(*t.FirstOpen)
		}
		w.line("%s\t%d\t%s\t%s\t%d\t%.2f%%\t%d\t%d\t%d", t.Setting, t.Opened, first, span(t.NotClosed),
			t.Refused, 100*t.Share, t.Saved, t.Lost, t.Failed)
	}
	w.flush()
	return w.err
}

// evidence is the part of a move's line that its rule saw: empty cells where no rule counted.
func (m *Move) evidence() string {
	if m.Samples == 0 {
		return "\t\t\t\t\t\t\t" + waited(m.Wait)
	}
	threshold := fmt.Sprintf("%.0f%%", 100*m.Threshold)
	switch {
	case m.Threshold == 0:
		threshold = ""
	case m.Threshold >= 1 && m.Rule != "failure-rate" && m.Rule != "slow-rate":
		threshold = fmt.Sprintf("%.0f", m.Threshold) // a count
	}
	window := ""
	if m.Window > 0 {
		window = span(m.Window)
	}
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%.1f%%\t%.1f%%\t%s\t%s", window, m.Samples, m.Failures, m.Slow, 100*m.Rate, 100*m.Bound,
		threshold, waited(m.Wait))
}

func waited(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return span(seconds)
}

// span prints seconds to the millisecond, as a duration.
func span(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// printer remembers the first error of its writer.
type printer struct {
	*tabwriter.Writer

	err error
}

func (p *printer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.Writer, format+"\n", args...); p.err == nil {
		p.err = err
	}
}

func (p *printer) flush() {
	if err := p.Flush(); p.err == nil {
		p.err = err
	}
}
