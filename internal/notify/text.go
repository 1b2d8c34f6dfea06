package notify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"spillway/internal/desk"
)

// Bounds of a message to people.
const (
	maxShown = 10   // breakers in a message
	maxText  = 1800 // bytes of a message; the smallest limit of a service is 2048
	maxCalls = 3    // failed calls shown of an event
	maxWord  = 64   // bytes of a business number or a request's id
	maxNote  = 100  // bytes of a detail or a note
)

// collapse picks what a message shows: the latest event of each breaker, of at most maxShown breakers, those that opened
// first, then the latest. rest are the others.
func collapse(events []desk.BreakerEvent) (shown, rest []desk.BreakerEvent) {
	type key struct{ route, endpoint string }
	latest := map[key]int{}
	for i := range events {
		k := key{events[i].Route, events[i].Endpoint}
		if j, ok := latest[k]; !ok || events[j].Generation <= events[i].Generation {
			latest[k] = i
		}
	}
	for i := range events {
		if latest[key{events[i].Route, events[i].Endpoint}] == i {
			shown = append(shown, events[i])
		} else {
			rest = append(rest, events[i])
		}
	}
	slices.SortStableFunc(shown, func(a, b desk.BreakerEvent) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), b.At.Compare(a.At))
	})
	if len(shown) > maxShown {
		rest = append(rest, shown[maxShown:]...)
		shown = shown[:maxShown]
	}
	return shown, rest
}

// rank orders events by how much they matter.
func rank(e *desk.BreakerEvent) int {
	if e.To == desk.BreakerOpen {
		return 0
	}
	return 1
}

// title says it in one line.
func title(events []desk.BreakerEvent) string {
	e := &events[0]
	s := fmt.Sprintf("Spillway: breaker %s/%s is %s", word(e.Route), word(e.Endpoint), word(e.To))
	if len(events) > 1 {
		s += fmt.Sprintf(", and %d more moved", len(events)-1)
	}
	return s
}

// lines says it in full, a line each; the title is not among them.
func lines(events []desk.BreakerEvent, rest int) []string {
	var all []string
	for i := range events {
		all = append(all, eventLines(&events[i])...)
	}
	if rest > 0 {
		all = append(all, fmt.Sprintf("%d earlier or further moves are not shown.", rest))
	}
	return fit(all, maxText-200) // the title has room beside them
}

func eventLines(e *desk.BreakerEvent) []string {
	all := []string{fmt.Sprintf("%s/%s: %s → %s, by %s (%s, mode %s), %s", word(e.Route), word(e.Endpoint), word(e.From),
		word(e.To), word(e.Reason), word(e.Source), word(e.Mode), e.At.UTC().Format(time.RFC3339))}
	if e.Samples > 0 {
		all = append(all, fmt.Sprintf("%d calls in %s: %d failed, %d slow; rate %s, bound %s, threshold %s", e.Samples,
			rounded(e.Window), e.Failures, e.Slow, number(e.Rate), number(e.Bound), number(e.Threshold)))
	}
	if e.To == desk.BreakerOpen && e.Wait > 0 {
		all = append(all, "open for "+rounded(e.Wait).String())
	}
	if e.Operator != "" {
		all = append(all, "by operator "+plain(e.Operator, maxWord)+": "+plain(e.Note, maxNote))
	}
	for _, c := range e.Errors[max(0, len(e.Errors)-maxCalls):] {
		s := c.At.UTC().Format("15:04:05.000") + " " + word(c.Outcome)
		if c.Reason != "" {
			s += " " + word(c.Reason)
		}
		if c.Status != 0 {
			s += fmt.Sprintf(" %d", c.Status)
		}
		s += ", order " + plain(c.Number, maxWord)
		if c.RequestID != "" {
			s += ", request " + plain(c.RequestID, maxWord)
		}
		if c.Detail != "" {
			s += ": " + plain(c.Detail, maxNote)
		}
		all = append(all, s)
	}
	return append(all, "worker "+word(e.Worker))
}

// number writes a rate as it is compared: rules that count have whole thresholds.
func number(f float64) string { return fmt.Sprintf("%.3g", f) }

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// word is a name of ours, which needs no more than to be short.
func word(s string) string { return plain(s, 2*maxWord) }

// plain makes text of others fit for a message: one line, nothing that can't be seen, at most limit bytes.
func plain(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit-3], "") + "..."
	}
	return s
}

// fit leaves out the lines that go beyond limit bytes, and says so.
func fit(all []string, limit int) []string {
	size := 0
	for i, s := range all {
		if size += len(s) + 1; size > limit {
			return append(slices.Clip(all[:i]), fmt.Sprintf("%d more lines are left out.", len(all)-i))
		}
	}
	return all
}
