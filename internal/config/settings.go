package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Setting describes one setting for people.
type Setting struct {
	Path     string // routes[].permits.limit; [] stands for any entry of a list
	Variable string // the environment variable, with <NAME> for the route's name; empty where there is none
	Default  string // as written in the file; in words where it follows from other settings; empty where there is none
	Accepted string
	Help     string
	Required bool
	Section  bool // whether it is a section or a list of sections, which holds other settings
	Hot      bool // whether a running worker takes a new value
	HotWhile bool // the same, but for turning it on or off
}

// Settings lists every setting and section in the order of the settings file.
func Settings() []Setting {
	return settings(nil, reflect.TypeFor[Config](), "", true, false)
}

// settings lists those of a section. named: they have variables; hot: the section is hot as a whole.
func settings(all []Setting, t reflect.Type, path string, named, hot bool) []Setting {
	for _, f := range fieldsOf(t) {
		s := Setting{Path: join(path, f.name), Default: f.def, Accepted: f.accepted(), Help: f.help, Required: f.need, Hot: hot || f.hot, HotWhile: f.hotWhile}
		if f.derive != "" {
			s.Default = f.derive
		}
		switch f.shape() {
		case section:
			s.Section = true
			all = settings(append(all, s), f.typ, s.Path, named, s.Hot)
		case entries:
			s.Section, s.Path = true, s.Path+"[]"
			all = settings(append(all, s), f.typ.Elem(), s.Path, f.typ == reflect.TypeFor[[]Route](), s.Hot)
		case scalar, list:
			if named && !isIdentity(t, &f) {
				s.Variable = strings.Replace(variable(s.Path), "[]", "_<NAME>", 1)
			}
			all = append(all, s)
		case texts:
			all = append(all, s)
		}
	}
	return all
}

// Document writes the reference of all settings in Markdown.
func Document() []byte {
	var b strings.Builder
	b.WriteString(`# Settings

Spillway reads one YAML file, ` + "`spillway.yaml`" + ` unless ` + "`-c`" + ` names another, and then the environment. ` +
		"`spillway config init`" + ` writes
a commented example, ` + "`spillway config check`" + ` gives the verdict of the worker without connecting to anything, ` +
		"`spillway config show`" + `
prints what is in force, secrets hidden, and ` + "`spillway config schema`" + ` writes a JSON schema for editors.

- Every mistake is reported, all at once, with its place, the setting, the value and what is accepted.
- A key that is not below, a key given twice, a second document, anchors, aliases, merge keys and tags are refused.
- Durations carry a unit (` + "`20ms`, `1m30s`" + `), sizes too (` + "`64MiB`, `500kB`" + `), percentages their sign (` + "`50%`" + `). A bare number is refused.
- Whole numbers are plain digits: ` + "`010`, `0x10`, `1_000` and `1e3`" + ` are refused, for different readers take them for different numbers.
- ` + "`true`, `yes`, `on`, `1` and `false`, `no`, `off`, `0`" + ` are the truth values, in any case of letters, in the file as in the environment.
- A list may be written as one text with commas. Blanks around an entry and empty entries do not count.
- A value left empty in the file is refused. A section left empty keeps its defaults.
- A variable overrides the file, by the same rules. An empty variable, or one of blanks alone, is taken as not set.
  Routes are overridden by name, in capitals and with _ for -. Lists of rules, headers and webhooks have no variables.
- A variable that begins with ` + "`SPILLWAY_`" + ` and names no setting is refused, but for ` + "`SPILLWAY_CONFIG`" + ` (the file's path),
  ` + "`SPILLWAY_POSTGRES_BIN`, `SPILLWAY_TEST_*`" + ` and those that Kubernetes makes for services.
- Settings marked *Hot* change while the worker runs, on SIGHUP and when the file changes (` + "`reload.poll`" + `): all of what changed, or nothing where
  the file has a mistake or any other setting differs, which needs a restart. What the files named by settings hold is read at the start only.
- Secrets are never printed: not in messages, logs or dumps. They may come from the file, the environment, or a file of their own.
`)
	all := Settings()
	for _, s := range all {
		if s.Section {
			documentSection(&b, s, all)
		}
	}
	return []byte(b.String())
}

// documentSection writes a section's table: its own settings, wherever in it they are declared. Those of its sections stand in
// tables of their own.
func documentSection(b *strings.Builder, section Setting, all []Setting) {
	marks := "###"
	if strings.Count(section.Path, ".") <= 1 || strings.HasSuffix(section.Path, "[]") || strings.HasPrefix(section.Path, "routes[].downstream") {
		marks = "##"
	}
	fmt.Fprintf(b, "\n%s %s\n\n%s\n\n", marks, section.Path, section.Help)
	b.WriteString("| setting | default | accepted | what it is |\n|---|---|---|---|\n")
	for _, s := range all {
		if name, within := strings.CutPrefix(s.Path, section.Path+"."); within && !s.Section && !strings.Contains(name, ".") {
			documentRow(b, s, name)
		}
	}
}

func documentRow(b *strings.Builder, s Setting, name string) {
	def := "—"
	switch {
	case s.Required:
		def = "must be given"
	case s.Default != "":
		def = "`" + s.Default + "`"
	}
	help := s.Help
	switch {
	case s.Hot:
		help += " *Hot.*"
	case s.HotWhile:
		help += " *Hot*, but for turning it on or off."
	}
	if s.Variable != "" {
		help += "<br>`" + s.Variable + "`"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, def, s.Accepted, help)
}
