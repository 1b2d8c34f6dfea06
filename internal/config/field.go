package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is one key of the settings file, as the struct tags of Config describe it.
type field struct {
	index int
	name  string
	typ   reflect.Type

	def      string // default, as it would be written
	derive   string // words for a default that follows from other settings
	min, max string
	whole    string // the unit a duration must be a multiple of
	accept   string // closed set of texts, separated by |
	scheme   string // the same for the schemes of a URL
	form     string // what is accepted, in words, where nothing above says it
	example  string
	help     string
	need     bool
	hot      bool // a running worker takes a new value; on a section, everything in it
	hotWhile bool // the same, but for turning it on or off, which is from and to zero
}

// fieldsOf lists the settings of a struct in their order.
func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, ok := tag.Lookup("yaml")
		if !ok {
			continue
		}
		fs = append(fs, field{
			index: i, name: name, typ: t.Field(i).Type,
			def: tag.Get("default"), derive: tag.Get("derive"),
			min: tag.Get("min"), max: tag.Get("max"), whole: tag.Get("whole"),
			accept: tag.Get("accept"), scheme: tag.Get("scheme"), form: tag.Get("form"),
			example: tag.Get("example"), help: tag.Get("help"), need: tag.Get("need") == "true",
			hot: tag.Get("hot") == "true", hotWhile: tag.Get("hot") == "while on",
		})
	}
	return fs
}

// shape is how a setting is laid out in the file.
type shape int

const (
	scalar  shape = iota
	section       // a mapping with known keys
	entries       // a list of sections
	list          // a list of scalars
	texts         // a mapping with free keys
)

func (f *field) shape() shape {
	switch f.typ.Kind() { //nolint:exhaustive // the kinds of Config's fields; the rest are scalars
	case reflect.Slice:
		if isSection(f.typ.Elem()) {
			return entries
		}
		return list
	case reflect.Map:
		return texts
	case reflect.Struct:
		if isSection(f.typ) {
			return section
		}
	}
	return scalar
}

// isSection reports whether a type is a section.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && len(fieldsOf(t)) > 0 }

// secret reports whether values of the setting are never shown.
func (f *field) secret() bool { return f.typ == reflect.TypeFor[Secret]() }

// shown is a found value as a message may show it.
func (f *field) shown(text string) string {
	switch {
	case f.secret():
		return hidden
	case f.typ == reflect.TypeFor[URL]():
		return show(redactURL(text))
	case f.typ == reflect.TypeFor[[]URL]():
		parts := strings.Split(text, ",")
		for i, part := range parts {
			parts[i] = redactURL(strings.TrimSpace(part))
		}
		return show(strings.Join(parts, ","))
	case strings.Contains(text, "@"): // an address with a password, put where none belongs
		return show(hidden + text[strings.LastIndexByte(text, '@'):])
	}
	return show(text)
}

// accepted says what the setting may be.
func (f *field) accepted() string {
	switch f.typ {
	case reflect.TypeFor[time.Duration]():
		words := "a duration with a unit (ms, s, m, h)"
		if f.whole != "" {
			words = "a duration in whole seconds"
		}
		return words + f.bounds() + ", such as " + f.sample()
	case reflect.TypeFor[Size]():
		return "a size with a unit (B, KiB, MiB, GiB)" + f.bounds() + ", such as " + f.sample()
	case reflect.TypeFor[Percent]():
		return "a percentage" + f.bounds() + ", such as " + f.sample()
	case reflect.TypeFor[Rate]():
		return "a rate with a unit (/s, /m, /h), 1/h to " + f.max + ", such as " + f.sample() + ", or " + noRate
	case reflect.TypeFor[int]():
		return "a whole number" + f.bounds()
	case reflect.TypeFor[float64]():
		return "a number" + f.bounds()
	case reflect.TypeFor[bool]():
		return "true or false"
	case reflect.TypeFor[URL]():
		words := make([]string, 0, 2)
		for s := range strings.SplitSeq(f.scheme, "|") {
			words = append(words, s+"://host:port/…")
		}
		return "an address like " + strings.Join(words, " or ")
	}
	switch {
	case f.accept != "":
		return oneOf(strings.Split(f.accept, "|"))
	case f.form != "":
		return f.form
	}
	switch f.shape() {
	case section:
		return "a section with keys of its own"
	case entries:
		return "a list of sections, at least one"
	case scalar, list, texts:
	}
	return "a text"
}

func (f *field) bounds() string { return ", " + f.min + " to " + f.max }

// sample is a value that would be taken.
func (f *field) sample() string {
	switch {
	case f.example != "":
		return f.example
	case f.def != "":
		return f.def
	case f.typ == reflect.TypeFor[time.Duration]():
		return "10s"
	}
	return f.min
}

// set reads the text into v, and returns what is wrong with it, or "".
func (f *field) set(v reflect.Value, text string) (why string) {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return setWith(p, text, f, parseDuration)
	case *Size:
		return setWith(p, text, f, parseSize)
	case *Percent:
		return setWith(p, text, f, parsePercent)
	case *Rate:
		return setWith(p, text, f, parseRate)
	case *int:
		return setWith(p, text, f, parseInt)
	case *float64:
		return setWith(p, text, f, parseFloat)
	case *bool:
		*p, why = parseBool(text)
		return why
	case *StatusRange:
		*p, why = parseStatus(text)
		return why
	case *Secret:
		*p = NewSecret(text)
		return ""
	case *URL:
		u, why := parseURL(text, strings.Split(f.scheme, "|"))
		if why == "" {
			*p = u
		}
		return why
	case *string:
		if f.accept != "" && !slices.Contains(strings.Split(f.accept, "|"), text) {
			return "is not known"
		}
		*p = text
		return ""
	}
	panic(fmt.Sprintf("config: setting %s has the unknown type %s", f.name, f.typ))
}

// setWith parses the text, checks the field's bounds and stores the value.
func setWith[T time.Duration | Size | Percent | Rate | int | float64](p *T, text string, f *field, parse func(string) (T, string)) string {
	n, why := parse(text)
	if why != "" {
		return why
	}
	if low, _ := parse(f.limit(f.min)); n < low {
		return "is too small"
	}
	if high, _ := parse(f.limit(f.max)); n > high {
		return "is too large"
	}
	if f.whole != "" {
		if step, _ := parse(f.whole); step > 0 && int64(n)%int64(step) != 0 {
			return "is not in whole seconds"
		}
	}
	*p = n
	return ""
}

// limit is a bound's text. Every number has both: the tests see to it.
func (f *field) limit(text string) string {
	if text == "" {
		panic("config: setting " + f.name + " has no bounds")
	}
	return text
}

// oneOf joins words as a sentence does: a, b or c.
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest is the word that a mistyped one was probably meant to be, or "".
func nearest(word string, words []string) string {
	best, least := "", min(max(1, len(word)/3), 2)+1
	for _, w := range words {
		if d := distance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with a neighbour to make b of a.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 1000
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
