package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// envPrefix begins the name of every variable that is ours.
const envPrefix = "SPILLWAY_"

// variable is the environment's name of a setting: SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT for routes.wallet.permits.limit.
func variable(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// target is a setting that a variable may override.
type target struct {
	path  string
	field field
	value reflect.Value
}

// overrides applies the environment to what the file gave.
func (l *loader) overrides() {
	found := l.variables()
	if len(found) == 0 {
		return
	}
	targets := map[string][]target{}
	l.targets(targets, reflect.ValueOf(&l.cfg).Elem(), "")
	for _, name := range sortedKeys(found) {
		text := found[name]
		switch ts := targets[name]; len(ts) {
		case 1:
			l.override(name, text, ts[0])
		case 0:
			l.unknownVariable(name, text, targets)
		default:
			l.problemAt(origin{variable: name}, "",
				fmt.Sprintf("could be %s or %s", ts[0].path, ts[1].path), "such a setting in the file, or another route's name")
		}
	}
}

// variables lists those of ours that are set and not blank.
func (l *loader) variables() map[string]string {
	found := map[string]string{}
	for _, entry := range l.env {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || isOthers(name) {
			continue
		}
		delete(found, name) // the last of several counts
		if strings.TrimSpace(text) != "" {
			found[name] = text
		}
	}
	return found
}

// isOthers reports whether a variable with our prefix is not a setting: those of the command line, of tests and of what they
// run on.
func isOthers(name string) bool {
	switch name {
	case envPrefix + "CONFIG", envPrefix + "POSTGRES_BIN", envPrefix + "SERVICES_DIR":
		return true
	}
	return strings.HasPrefix(name, envPrefix+"TEST_")
}

// targets collects the settings that a variable can name: every scalar and every list of scalars, but for those in rules
// and the names of routes.
func (l *loader) targets(targets map[string][]target, v reflect.Value, path string) {
	for _, f := range fieldsOf(v.Type()) {
		p, value := join(path, f.name), v.Field(f.index)
		switch f.shape() {
		case section:
			l.targets(targets, value, p)
		case scalar, list:
			if !isIdentity(v.Type(), &f) {
				targets[variable(p)] = append(targets[variable(p)], target{p, f, value})
			}
		case entries:
			if f.typ != reflect.TypeFor[[]Route]() {
				continue
			}
			for i := range value.Len() {
				if r := l.entryPath(p, value, i); !strings.HasSuffix(r, "]") {
					l.targets(targets, value.Index(i), r)
				}
			}
		case texts:
		}
	}
}

// isIdentity reports whether the setting is what a route's variables are named by.
func isIdentity(t reflect.Type, f *field) bool {
	return t == reflect.TypeFor[Route]() && f.name == "name"
}

// override reads a variable's text by the rules of the file.
func (l *loader) override(name, text string, t target) {
	at := origin{variable: name}
	if t.field.shape() == list {
		l.listText(at, t.value, &t.field, t.path, text)
		return
	}
	if t.field.typ.Kind() != reflect.String && !t.field.secret() {
		text = strings.TrimSpace(text)
	}
	at.text = t.field.shown(text)
	l.set(at, t.value, &t.field, t.path, text)
}

func (l *loader) unknownVariable(name, text string, targets map[string][]target) {
	if isServiceLink(name, text) {
		return
	}
	why := "is not a setting"
	if guess := nearest(name, sortedKeys(targets)); guess != "" {
		why += "; did you mean " + guess + "?"
	}
	accepted := "a setting's path in capitals, such as " + variable("kafka.brokers")
	if strings.HasPrefix(name, envPrefix+"ROUTES_") {
		accepted += " or " + variable("routes") + "_<NAME>_PERMITS_LIMIT for a route of the file"
	}
	l.problemAt(origin{variable: show(name)}, "", why, accepted)
}

// isServiceLink reports whether Kubernetes made the variable: it describes every service of a namespace that way, those
// called spillway or spillway-metrics too.
func isServiceLink(name, text string) bool {
	match, err := regexp.MatchString(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`, name)
	if err == nil && match {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && strings.Contains(text, "://")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
