package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Schema is the JSON schema (draft 2020-12) of the settings file, for editors. It knows names, units and closed sets; what
// settings mean together only the check knows.
func Schema() ([]byte, error) {
	root := sectionSchema(reflect.TypeFor[Config]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Spillway settings"
	root["type"] = "object"
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

func sectionSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, f := range fieldsOf(t) {
		s := f.schema()
		s["description"] = f.help
		properties[f.name] = s
		if f.need || f.shape() == section && hasNeeds(f.typ) {
			required = append(required, f.name)
		}
	}
	s := map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"], s["type"] = required, "object"
	}
	return s
}

// hasNeeds reports whether something in a section must be given.
func hasNeeds(t reflect.Type) bool {
	for _, f := range fieldsOf(t) {
		if f.need || f.shape() == section && hasNeeds(f.typ) {
			return true
		}
	}
	return false
}

func (f *field) schema() map[string]any {
	switch f.shape() {
	case section:
		return sectionSchema(f.typ)
	case entries:
		s := map[string]any{"type": "array", "items": sectionSchema(f.typ.Elem())}
		if f.need {
			s["minItems"] = 1
		}
		return s
	case list:
		element := elementOf(f)
		return map[string]any{"type": []string{"array", "string"}, "minItems": 1, "items": element.schema()}
	case texts:
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": []string{"string", "number"}}}
	case scalar:
	}
	s := f.scalarSchema()
	if f.def != "" {
		s["default"] = f.schemaDefault()
	}
	return s
}

func (f *field) scalarSchema() map[string]any {
	switch f.typ {
	case reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	case reflect.TypeFor[Size]():
		return map[string]any{"type": "string", "pattern": `^(0|[1-9][0-9]*)(B|KiB|MiB|GiB|kB|MB|GB)$`}
	case reflect.TypeFor[Percent]():
		return map[string]any{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)?%$`}
	case reflect.TypeFor[Rate]():
		return map[string]any{"type": "string", "pattern": `^(none|([0-9]+(\.[0-9]*)?|\.[0-9]+)/(s|m|h))$`}
	case reflect.TypeFor[int]():
		return map[string]any{"type": "integer", "minimum": json.Number(f.min), "maximum": json.Number(f.max)}
	case reflect.TypeFor[float64]():
		return map[string]any{"type": "number", "minimum": json.Number(f.min), "maximum": json.Number(f.max)}
	case reflect.TypeFor[bool]():
		return map[string]any{"type": "boolean"}
	case reflect.TypeFor[StatusRange]():
		return map[string]any{"type": []string{"integer", "string"}, "pattern": `^[1-5][0-9]{2}(-[1-5][0-9]{2})?$`}
	case reflect.TypeFor[URL]():
		return map[string]any{"type": "string", "pattern": "^(" + f.scheme + ")://"}
	}
	if f.accept != "" {
		return map[string]any{"enum": strings.Split(f.accept, "|")}
	}
	if f.name == "equals" || f.secret() {
		return map[string]any{"type": []string{"string", "number", "boolean"}}
	}
	s := map[string]any{"type": "string", "minLength": 1}
	if ok, err := regexp.MatchString("^a path", f.form); err == nil && ok {
		s["pattern"] = "^/"
	}
	return s
}

// schemaDefault is the default as JSON has it.
func (f *field) schemaDefault() any {
	switch f.typ {
	case reflect.TypeFor[int](), reflect.TypeFor[float64]():
		return json.Number(f.def)
	case reflect.TypeFor[bool]():
		b, err := strconv.ParseBool(f.def)
		return err == nil && b
	}
	return f.def
}
