package breakersim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"spillway/breaker"
	"spillway/order"
)

// Call is one call of a trace.
type Call struct {
	At      time.Time // when it began
	Latency time.Duration
	Result  breaker.Result
}

// Source gives the calls of a trace in the order in which they began. After the last it returns io.EOF.
type Source interface {
	Next() (Call, error)
}

// maxLine bounds a line of a trace, in bytes.
const maxLine = 64 << 10

// maxColumns bounds how many columns a trace may have.
const maxColumns = 256

// TraceError is a line of a trace that can't be read.
type TraceError struct {
	File         string
	Line, Column int    // from 1; the column counts bytes
	Name         string // of the trace's column, if it is about a value
	Value        string
	Why          string
	Accepted     string
}

// Error returns the place, the column's name, the value, what is wrong and what is accepted.
func (e *TraceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Name != "" {
		b.WriteString(e.Name + ": ")
	}
	if e.Value != "" {
		b.WriteString(strconv.Quote(cut(e.Value)) + " ")
	}
	b.WriteString(e.Why)
	if e.Accepted != "" {
		b.WriteString("; accepted: " + e.Accepted)
	}
	return b.String()
}

// cut bounds a value in a message.
func cut(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// CSV reads a trace from text with a line per call. The first line names the columns, of which time, latency and outcome
// must be there, in any order; others are passed over. It is a [Source] and not safe for concurrent use.
type CSV struct {
	file    string
	lines   *bufio.Scanner
	line    int
	columns map[string]int // place of each column that is read
	width   int
	fields  []csvField
	last    time.Time
}

type csvField struct {
	text string
	at   int // column of its first byte, from 1
}

const (
	columnTime    = "time"
	columnLatency = "latency"
	columnOutcome = "outcome"
)

const (
	acceptTime    = "RFC 3339 such as 2026-11-30T10:00:00.123Z, or seconds since a beginning such as 12.345"
	acceptLatency = "a duration with a unit, such as 120ms, not negative and at most 24h"
	acceptOutcome = "an outcome (SUCCEEDED, REJECTED, INVALID, OVERLOADED, NOT_SENT, UNKNOWN, REFUSED, CANCELLED) or what a breaker is told (success, failure, slow, ignored)"
	maxLatency    = 24 * time.Hour
)

// NewCSV begins to read a trace. file stands for it in messages. The error is a *TraceError when the first line does not
// do.
func NewCSV(file string, from io.Reader) (*CSV, error) {
	c := &CSV{file: file, lines: bufio.NewScanner(from), columns: map[string]int{}}
	c.lines.Buffer(make([]byte, 0, 4096), maxLine)
	const accepted = "a first line that names the columns: time,latency,outcome"
	switch err := c.read(); {
	case errors.Is(err, io.EOF):
		return nil, &TraceError{File: file, Line: 1, Column: 1, Why: "is empty", Accepted: accepted}
	case err != nil:
		return nil, err
	}
	c.width = len(c.fields)
	for i, f := range c.fields {
		name := strings.ToLower(strings.TrimSpace(f.text))
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		switch name {
		case columnTime, columnLatency, columnOutcome:
			if _, ok := c.columns[name]; ok {
				return nil, &TraceError{File: file, Line: c.line, Column: f.at, Value: name, Why: "is there twice", Accepted: accepted}
			}
			c.columns[name] = i
		}
	}
	for _, name := range []string{columnTime, columnLatency, columnOutcome} {
		if _, ok := c.columns[name]; !ok {
			return nil, &TraceError{File: file, Line: c.line, Column: 1, Why: "names no column " + name, Accepted: accepted}
		}
	}
	return c, nil
}

// Next reads one call. The error is a *TraceError for a line that does not do, and io.EOF at the end.
func (c *CSV) Next() (Call, error) {
	if err := c.read(); err != nil {
		return Call{}, err
	}
	if len(c.fields) != c.width {
		return Call{}, &TraceError{
			File: c.file, Line: c.line, Column: 1, Why: fmt.Sprintf("has %d columns", len(c.fields)),
			Accepted: fmt.Sprintf("%d, as the first line has", c.width),
		}
	}
	at, ok := parseTime(c.value(columnTime))
	if !ok {
		return Call{}, c.wrong(columnTime, "is no time", acceptTime)
	}
	if at.Before(c.last) {
		return Call{}, c.wrong(columnTime, "is before the line above", "lines in the order in which the calls began")
	}
	latency, err := time.ParseDuration(c.value(columnLatency))
	if err != nil || latency < 0 || latency > maxLatency {
		return Call{}, c.wrong(columnLatency, "is no latency", acceptLatency)
	}
	result, ok := parseResult(c.value(columnOutcome))
	if !ok {
		return Call{}, c.wrong(columnOutcome, "is no outcome", acceptOutcome)
	}
	c.last = at
	return Call{At: at, Latency: latency, Result: result}, nil
}

func (c *CSV) value(name string) string { return strings.TrimSpace(c.fields[c.columns[name]].text) }

func (c *CSV) wrong(name, why, accepted string) error {
	f := c.fields[c.columns[name]]
	if strings.TrimSpace(f.text) == "" {
		why = "is empty"
	}
	return &TraceError{File: c.file, Line: c.line, Column: f.at, Name: name, Value: strings.TrimSpace(f.text), Why: why, Accepted: accepted}
}

// read splits the next line that is not blank.
func (c *CSV) read() error {
	for c.lines.Scan() {
		c.line++
		text := strings.TrimSuffix(c.lines.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		return c.split(text)
	}
	switch err := c.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &TraceError{File: c.file, Line: c.line + 1, Column: 1, Why: "is too long", Accepted: fmt.Sprintf("lines of less than %d bytes", maxLine)}
	case err != nil:
		return fmt.Errorf("%s:%d: %w", c.file, c.line+1, err)
	}
	return io.EOF
}

// split cuts a line at its commas. A field in quotes may hold commas, and quotes written twice; it ends on its line.
func (c *CSV) split(text string) error {
	c.fields = c.fields[:0]
	for from := 0; ; {
		if len(c.fields) == maxColumns {
			return &TraceError{File: c.file, Line: c.line, Column: from + 1, Why: "has too many columns", Accepted: fmt.Sprintf("at most %d", maxColumns)}
		}
		f := csvField{at: from + 1}
		rest := text[from:]
		n := strings.IndexByte(rest, ',')
		if strings.HasPrefix(rest, `"`) {
			var ok bool
			if f.text, n, ok = quoted(rest); !ok {
				return &TraceError{
					File: c.file, Line: c.line, Column: f.at, Why: "begins with a quote that does not end before the comma",
					Accepted: `quotes around a whole field, "" for a quote within`,
				}
			}
		} else if n < 0 {
			f.text = rest
		} else {
			f.text = rest[:n]
		}
		c.fields = append(c.fields, f)
		if n < 0 {
			return nil
		}
		from += n + 1
	}
}

// quoted reads the field in quotes that text begins with, and returns where the comma behind it is, or -1 at the end.
func quoted(text string) (field string, comma int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			b.WriteByte(text[i])
			continue
		}
		switch rest := text[i+1:]; {
		case rest == "":
			return b.String(), -1, true
		case rest[0] == ',':
			return b.String(), i + 1, true
		case rest[0] == '"':
			b.WriteByte('"')
			i++
		default:
			return "", 0, false
		}
	}
	return "", 0, false
}

// parseTime reads a moment, or seconds, which count from 1970 whatever they were counted from.
func parseTime(text string) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC(), true
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > 1e10 {
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(part*1e6))*1000).UTC(), true // a float of today's seconds has no more than microseconds
}

// parseResult reads an outcome as the worker classifies it, or what a breaker is told.
func parseResult(text string) (breaker.Result, bool) {
	for _, r := range []breaker.Result{breaker.Success, breaker.Failure, breaker.Slow, breaker.Ignored} {
		if strings.EqualFold(text, r.String()) {
			return r, true
		}
	}
	outcome, err := order.ParseOutcome(strings.ToUpper(text))
	if err != nil {
		return breaker.Ignored, false
	}
	switch outcome {
	case order.OutcomeSucceeded, order.OutcomeRejected:
		return breaker.Success, true
	case order.OutcomeOverloaded, order.OutcomeNotSent, order.OutcomeUnknown:
		return breaker.Failure, true
	case order.OutcomeInvalid, order.OutcomeRefused, order.OutcomeCancelled:
		return breaker.Ignored, true
	case order.NoOutcome:
	}
	return breaker.Ignored, false
}
