package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file, or rewrites it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: go test ./internal/config -update", path)
	}
}

func TestSettingsPageIsUpToDate(t *testing.T) {
	t.Parallel()
	golden(t, "../../docs/settings.md", Document())
}

// TestSettingsPageShowsEachSettingUnderItsSection: those of a route that follow a section of it, ordering among them, stood
// in that section's table.
func TestSettingsPageShowsEachSettingUnderItsSection(t *testing.T) {
	t.Parallel()
	shown := map[string]int{}
	section := ""
	for line := range strings.SplitSeq(string(Document()), "\n") {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
			section = heading
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
			shown[section+"."+name]++
		}
	}
	for _, s := range Settings() {
		if !s.Section && shown[s.Path] != 1 {
			t.Errorf("%s stands %d times under its section, want once", s.Path, shown[s.Path])
		}
	}
}

func TestExampleAndSchemaAreUpToDate(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/example.yaml", Example())
	schema, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/schema.json", schema)
}

func TestEverySettingSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, s := range Settings() {
		if s.Help == "" || s.Accepted == "" || !strings.HasSuffix(s.Help, ".") {
			t.Errorf("%s: help %q, accepted %q", s.Path, s.Help, s.Accepted)
		}
		if s.Required && s.Default != "" {
			t.Errorf("%s must be given and has a default", s.Path)
		}
	}
	eachField(reflect.TypeFor[Config](), func(f *field) {
		switch f.typ {
		case reflect.TypeFor[time.Duration](), reflect.TypeFor[Size](), reflect.TypeFor[Percent](), reflect.TypeFor[int](), reflect.TypeFor[float64]():
			v := reflect.New(f.typ).Elem()
			for _, bound := range []string{f.min, f.max} {
				if f.whole != "" && bound == "" {
					continue
				}
				if why := f.set(v, bound); why != "" {
					t.Errorf("%s: the bound %q %s", f.name, bound, why)
				}
			}
			if f.def == "" && f.derive == "" {
				t.Errorf("%s has no default", f.name)
			}
		}
		if f.need && f.shape() == scalar && f.example == "" {
			t.Errorf("%s must be given and has no example", f.name)
		}
	})
}

func eachField(t reflect.Type, do func(f *field)) {
	for _, f := range fieldsOf(t) {
		do(&f)
		switch f.shape() {
		case section:
			eachField(f.typ, do)
		case entries:
			eachField(f.typ.Elem(), do)
		case scalar, list, texts:
		}
	}
}

func TestExamplePassesAndItsCommentsAreTheDefaults(t *testing.T) {
	t.Parallel()
	example := string(Example())
	plain := mustParse(t, example)

	// With every default written out it means the same.
	var lines []string
	for line := range strings.SplitSeq(example, "\n") {
		key, value, ok := strings.Cut(strings.TrimLeft(line, " "), ":")
		if name, commented := strings.CutPrefix(key, "#"); ok && commented && hasDefault(name) && !strings.Contains(name, " ") {
			line = strings.Replace(line, "#"+name, name, 1)
			if value == "" {
				t.Errorf("%s has no value", name)
			}
		}
		lines = append(lines, line)
	}
	full := mustParse(t, strings.Join(lines, "\n"))
	if got, want := string(full.Redacted()), string(plain.Redacted()); got != want {
		t.Errorf("with the defaults written out:\n%s\nwant:\n%s", got, want)
	}
	if !reflect.DeepEqual(full, plain) {
		t.Error("the defaults written out are not the defaults")
	}
	for _, s := range Settings() {
		name := s.Path[strings.LastIndexByte(s.Path, '.')+1:]
		if !regexp.MustCompile(`(?m)^ *(- )?#?`+strings.TrimSuffix(name, "[]")+`:`).MatchString(example) &&
			!strings.Contains(s.Path, "rules[]") && !strings.Contains(s.Path, "webhooks[]") { // those stand on one line
			t.Errorf("%s is not in the example", s.Path)
		}
	}
}

func hasDefault(name string) bool {
	has := false
	eachField(reflect.TypeFor[Config](), func(f *field) { has = has || f.name == name && (f.def != "" || f.derive != "") })
	return has
}

func TestEveryCommentedLineOfTheExampleIsReadableByItself(t *testing.T) {
	t.Parallel()
	lines := strings.Split(string(Example()), "\n")
	for i, line := range lines {
		if !regexp.MustCompile(`^ *#[a-z]`).MatchString(line) {
			continue
		}
		changed := append([]string(nil), lines...)
		changed[i] = strings.Replace(line, "#", "", 1)
		_, err := Parse("example", []byte(strings.Join(changed, "\n")), nil)
		if err == nil {
			continue
		}
		// Some need another setting beside them, which the message says.
		if !regexp.MustCompile(`has no effect|is needed|is empty`).MatchString(err.Error()) {
			t.Errorf("%s\n%v", line, err)
		}
	}
}

func TestDumpCanBeReadAgain(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal(t), "postgres://spillway@", "postgres://", 1)
	text = strings.Replace(text, "      submit:\n", `      submit:
        body: '{"no": "{number}", "order": {value}, "x": " # : {"}'
        rules:
          - {status: [200-299, 409], pointer: /status, equals: [PAID, "1", "a: b", "null", "x, y", "[z]"], outcome: SUCCEEDED}
          - {pointer: /a~1b, equals: [true], outcome: INVALID}
`, 1)
	c := mustParse(t, text)
	again, err := Parse("dump", c.Redacted(), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Redacted())
	}
	if !reflect.DeepEqual(again, c) {
		t.Errorf("read again:\n%s\nwant:\n%s", again.Redacted(), c.Redacted())
	}
	rules := c.Routes[0].Downstream.Submit.Rules
	if len(rules) != 2 || !rules[0].Status[0].Has(204) || rules[0].Status[0].Has(300) || rules[1].Equals[0] != "true" {
		t.Errorf("rules %+v", rules)
	}
}

func TestSchemaKnowsEverySettingAndNothingElse(t *testing.T) {
	t.Parallel()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	var walk func(s map[string]any, path string)
	walk = func(s map[string]any, path string) {
		properties, _ := s["properties"].(map[string]any)
		if properties != nil && s["additionalProperties"] != false {
			t.Errorf("%q takes unknown keys", path)
		}
		for name, p := range properties {
			sub, _ := p.(map[string]any)
			at := join(path, name)
			if items, ok := sub["items"].(map[string]any); ok && items["properties"] != nil {
				at += "[]"
				walk(items, at)
			}
			known[at] = true
			walk(sub, at)
			if pattern, ok := sub["pattern"].(string); ok {
				if def, ok := sub["default"].(string); ok && !regexp.MustCompile(pattern).MatchString(def) {
					t.Errorf("%s: the default %s does not match %s", at, def, pattern)
				}
			}
		}
	}
	walk(schema, "")
	for _, s := range Settings() {
		if !known[s.Path] {
			t.Errorf("the schema lacks %s", s.Path)
		}
		delete(known, s.Path)
	}
	if len(known) > 0 {
		t.Errorf("the schema has too much: %v", known)
	}
}
