package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Example is a settings file with every setting in it: what must be given with a made-up value, everything else commented
// out at its default or, where there is none, with a made-up value. It passes the check as it is.
func Example() []byte {
	var b strings.Builder
	b.WriteString(`# Settings of Spillway. Lines that begin with # and a key show the default, or an example where there is none.
# Check the file with: spillway config check -c FILE
# Any value can be overridden by a variable: SPILLWAY_KAFKA_BROKERS, SPILLWAY_ROUTES_WALLET_PERMITS_LIMIT.
`)
	exampleSection(&b, reflect.TypeFor[Config](), "")
	return []byte(b.String())
}

func exampleSection(b *strings.Builder, t reflect.Type, indent string) {
	dash := indent // the first key of a route stands behind a dash
	if t == reflect.TypeFor[Route]() {
		dash = indent[:len(indent)-2] + "- "
	}
	for _, f := range fieldsOf(t) {
		if indent == "" {
			b.WriteString("\n")
		}
		if dash == indent {
			b.WriteString(indent + "# " + f.help + "\n")
		} else {
			b.WriteString(indent[:len(indent)-2] + "# " + f.help + "\n")
		}
		switch shape := f.shape(); {
		case shape == section:
			b.WriteString(dash + f.name + ":\n")
			exampleSection(b, f.typ, indent+"  ")
		case shape == entries && f.need:
			b.WriteString(dash + f.name + ":\n")
			exampleSection(b, f.typ.Elem(), indent+"    ")
		case f.need:
			fmt.Fprintf(b, "%s%s: %s\n", dash, f.name, f.exampleValue())
		default:
			fmt.Fprintf(b, "%s#%s: %s\n", dash, f.name, f.exampleValue())
		}
		dash = indent
	}
}

// exampleValue is a value as it would be written in the file.
func (f *field) exampleValue() string {
	switch f.shape() {
	case list:
		return "[" + f.example + "]"
	case texts:
		return "{X-Source: spillway}"
	case entries:
		parts := make([]string, 0, 4)
		for _, g := range fieldsOf(f.typ.Elem()) {
			parts = append(parts, g.name+": "+g.exampleValue())
		}
		return "[{" + strings.Join(parts, ", ") + "}]"
	case scalar, section:
	}
	switch {
	case f.def != "":
		return quote(f.def)
	case f.derive != "" && f.example == "":
		return f.derivedExample()
	case f.secret():
		return `""`
	}
	return quote(f.example)
}

// derivedExample is what a derived default comes to in the example.
func (f *field) derivedExample() string {
	c, err := Parse("example", []byte(exampleMinimum), nil)
	if err != nil {
		panic("config: the example does not pass: " + err.Error())
	}
	r := reflect.ValueOf(c.Routes[0])
	for _, part := range []reflect.Value{r, r.FieldByName("Downstream"), r.FieldByName("Breaker")} {
		for _, g := range fieldsOf(part.Type()) {
			if g.name == f.name && g.derive == f.derive {
				return printed(part.Field(g.index))
			}
		}
	}
	panic("config: no such derived setting: " + f.name)
}

const exampleMinimum = `
kafka: {brokers: ["127.0.0.1:9092"]}
redis: {url: "redis://127.0.0.1:6379/0"}
postgres: {url: "postgres://spillway@127.0.0.1:5432/spillway"}
routes: [{name: wallet, topic: orders.in, downstream: {url: "http://127.0.0.1:8080", submit: {path: /orders}, lookup: {path: "/orders/{number}"}}}]
`
