package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Problem is one mistake in the settings. No field of it holds a secret.
type Problem struct {
	File     string `json:"file,omitempty"`     // where the value was read, if in a file
	Line     int    `json:"line,omitempty"`     // from 1
	Column   int    `json:"column,omitempty"`   // from 1
	Variable string `json:"variable,omitempty"` // the environment variable, if the value came from one
	Path     string `json:"path,omitempty"`     // the setting, such as routes.wallet.permits.wait
	Value    string `json:"value,omitempty"`    // what was found, redacted and cut; empty where there is nothing to show
	Why      string `json:"why"`                // what is wrong
	Accepted string `json:"accepted,omitempty"` // what would be accepted
}

// String is the problem on one line: place, path, value, what is wrong and what is accepted.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Variable != "":
		b.WriteString(p.Variable)
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d", p.File, p.Line, p.Column)
	default:
		b.WriteString(p.File)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	if p.Value != "" {
		b.WriteString(p.Value + " ")
	}
	b.WriteString(p.Why)
	if p.Accepted != "" {
		b.WriteString("; accepted: " + p.Accepted)
	}
	return b.String()
}

// Problems lists every mistake that was found, in the order of the file, those of the environment last.
type Problems []Problem

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Error says that the settings cannot be used, and all that is wrong with them.
type Error struct{ Problems Problems }

// Error prints one problem a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxShown bounds a value in a message, in characters.
const maxShown = 80

// show makes a value fit for a message: cut, and quoted where it holds anything that could disturb a terminal or be
// mistaken for the message's own words.
func show(text string) string {
	runes := []rune(text)
	cut := len(runes) > maxShown
	if cut {
		text = string(runes[:maxShown])
	}
	plain := text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == '"' || r == ';' || r == unicode.ReplacementChar
	})
	if !plain {
		text = strconv.Quote(text)
	}
	if cut {
		text += "…"
	}
	return text
}
