package board

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Caption is what the caller says beside the metrics.
type Caption struct {
	Title string
	Phase string        // where the story stands
	Told  time.Duration // how long the story has run
	Total time.Duration // how long it is meant to run; zero where nobody knows
	Extra []string      // at most MaxExtra lines are shown
}

// MaxExtra bounds the caller's own lines.
const MaxExtra = 6

// View is one frame: the reading of now, and an earlier one that rates are taken over.
type View struct {
	Caption

	Before, Now Reading
	Trouble     string // why the reading is not whole; empty where it is
}

// Style is how a frame is drawn.
type Style struct {
	Width int // columns; lines are cut to it, between 20 and 200
	Color bool
}

const (
	minWidth   = 20
	maxWidth   = 200
	labelWidth = 14
	gaugeCells = 12
)

// The few attributes of a terminal that are used.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// span is a piece of a line and its attribute.
type span struct{ text, style string }

// Lines draws a frame. It is pure, and gives the same number of lines for the same number of extra ones.
func Lines(v View, s Style) []string {
	width := min(max(s.Width, minWidth), maxWidth)
	rows := [][]span{
		{{v.Title, bold}},
		{{phaseText(v), bold}},
		{{strings.Repeat("─", width), dim}},
		row("flow", flow(v)...),
		row("permits", permits(v.Now)...),
		row("intake", intake(v.Now)...),
		row("prefetch", span{prefetch(v.Now), ""}),
		row("breaker", breakers(v.Now)...),
		row("replay", span{replay(v.Now), ""}),
		row("processing", processing(v.Now)...),
		row("dead letters", dead(v.Now)...),
		row("so far", span{sofar(v.Now), dim}),
	}
	for i, extra := range v.Extra {
		if i == MaxExtra {
			break
		}
		rows = append(rows, []span{{clean(extra), dim}})
	}
	if v.Trouble != "" {
		rows = append(rows, row("metrics", span{clean(v.Trouble), red}))
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		lines[i] = draw(r, width, s.Color)
	}
	return lines
}

// Line draws a frame as one line without attributes, for a log or a pipe.
func Line(v View) string {
	n := v.Now
	return fmt.Sprintf("%6.1fs %-22s consumed %.0f (%.0f/s) final %.0f (%.0f/s) in flight %.0f/%.0f paused %.0f/%.0f "+
		"prefetched %.0f (%s of %s) bound by %s breaker %s/%s replay %.0f+%.0f+%.0f processing %.0f oldest %s dead %.0f",
		v.Told.Seconds(), clean(v.Phase), n.Consumed, rate(v, consumed), n.Final, rate(v, final), n.InFlight(), n.Permits,
		n.Paused, n.Assigned, n.Prefetched, size(n.PrefetchBytes), size(n.PrefetchTarget), orNone(n.Constraint),
		orNone(n.Breakers["submit"]), orNone(n.Breakers["lookup"]), n.Replay["ready"], n.Replay["delayed"],
		n.Replay["in_flight"], sum(n.Processing), age(n.Oldest), n.Dead)
}

func row(label string, spans ...span) []span {
	return append([]span{{fmt.Sprintf("%-*s", labelWidth, label), dim}}, spans...)
}

func phaseText(v View) string {
	text := clean(v.Phase) + "   " + clock(v.Told)
	if v.Total > 0 {
		text += " of " + clock(v.Total)
	}
	return text
}

func consumed(r Reading) float64 { return r.Consumed }
func final(r Reading) float64    { return r.Final }

// rate is how fast a counter grew between the two readings, per second.
func rate(v View, of func(Reading) float64) float64 {
	seconds := v.Now.At.Sub(v.Before.At).Seconds()
	if seconds <= 0 {
		return 0
	}
	return max(of(v.Now)-of(v.Before), 0) / seconds
}

func flow(v View) []span {
	return []span{
		{fmt.Sprintf("consumed %.0f (%.0f/s)   ", v.Now.Consumed, rate(v, consumed)), ""},
		{fmt.Sprintf("final %.0f (%.0f/s)", v.Now.Final, rate(v, final)), green},
		{fmt.Sprintf("   not committed %.0f", v.Now.Lag), ""},
	}
}

func permits(r Reading) []span {
	style, used := green, r.InFlight()
	if used >= r.Permits {
		style = yellow
	}
	return []span{
		{gauge(used, r.Permits), style},
		{fmt.Sprintf(" %.0f of %.0f in flight (live %.0f, replay %.0f, compensate %.0f)",
			used, r.Permits, r.InUse["live"], r.InUse["replay"], r.InUse["compensate"]), ""},
	}
}

// gauge is a bar of gaugeCells cells.
func gauge(used, of float64) string {
	full := 0
	if of > 0 {
		full = min(int(used/of*gaugeCells+0.5), gaugeCells)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", gaugeCells-full)
}

func intake(r Reading) []span {
	style := green
	if r.Paused > 0 {
		style = yellow
	}
	return []span{
		{fmt.Sprintf("%.0f of %.0f partitions paused", r.Paused, r.Assigned), style},
		{"   bound by " + orNone(r.Constraint), ""},
		{fmt.Sprintf("   pauses so far %.0f", r.Pauses), dim},
	}
}

func prefetch(r Reading) string {
	return fmt.Sprintf("%.0f records, %s   target %s", r.Prefetched, size(r.PrefetchBytes), size(r.PrefetchTarget))
}

func breakers(r Reading) []span {
	var spans []span
	for i, endpoint := range []string{"submit", "lookup"} {
		if i > 0 {
			spans = append(spans, span{"   ", ""})
		}
		style := ""
		switch state := r.Breakers[endpoint]; state {
		case "closed":
			style = green
		case "half-open":
			style = yellow
		case "open":
			style = red
		}
		spans = append(spans, span{endpoint + " " + orNone(r.Breakers[endpoint]), style})
	}
	return append(spans, span{fmt.Sprintf("   opened so far %.0f", r.Opened), dim})
}

func replay(r Reading) string {
	return fmt.Sprintf("ready %.0f   delayed %.0f   in flight %.0f", r.Replay["ready"], r.Replay["delayed"], r.Replay["in_flight"])
}

func processing(r Reading) []span {
	return []span{
		{fmt.Sprintf("%.0f   (in flight %.0f, replaying %.0f, unknown %.0f)", sum(r.Processing),
			r.Processing["IN_FLIGHT"], r.Processing["REPLAYING"], r.Processing["UNKNOWN"]), ""},
		{"   oldest " + age(r.Oldest), ""},
	}
}

func dead(r Reading) []span {
	style := ""
	if r.Dead > 0 {
		style = yellow
	}
	return []span{{fmt.Sprintf("%.0f waiting for a person", r.Dead), style}}
}

func sofar(r Reading) string {
	return fmt.Sprintf("spilled %.0f, replayed %.0f, compensated %.0f", r.Spilled, r.Replayed, r.Settled)
}

func sum(m map[string]float64) float64 {
	n := 0.0
	for _, v := range m {
		n += v
	}
	return n
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// size writes bytes for people.
func size(n float64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	}
	return fmt.Sprintf("%.0f B", n)
}

func age(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

func clock(d time.Duration) string {
	s := int(max(d, 0).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// clean makes a text fit for a terminal: no control characters, so no escapes of its own.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// draw puts a row together and cuts it to the width.
func draw(spans []span, width int, color bool) string {
	var b strings.Builder
	for _, s := range spans {
		text := s.text
		if n := utf8.RuneCountInString(text); n > width {
			text = string([]rune(text)[:width])
		}
		width -= utf8.RuneCountInString(text)
		if text == "" {
			continue
		}
		if color && s.style != "" {
			text = s.style + text + plain
		}
		b.WriteString(text)
	}
	return strings.TrimRight(b.String(), " ")
}
