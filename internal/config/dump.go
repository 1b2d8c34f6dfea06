package config

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Redacted writes the settings in force as YAML: defaults and overrides included, secrets hidden. What holds no secret can
// be read again to the same effect.
func (c *Config) Redacted() []byte {
	var b strings.Builder
	dump(&b, reflect.ValueOf(c).Elem(), "", "")
	return []byte(b.String())
}

func dump(b *strings.Builder, v reflect.Value, indent, dash string) {
	for _, f := range fieldsOf(v.Type()) {
		value := v.Field(f.index)
		lead := indent
		if dash != "" {
			lead = dash
		}
		switch f.shape() {
		case section:
			b.WriteString(lead + f.name + ":\n")
			dump(b, value, indent+"  ", "")
		case entries:
			if value.Len() == 0 {
				continue
			}
			b.WriteString(lead + f.name + ":\n")
			for i := range value.Len() {
				dump(b, value.Index(i), indent+"    ", indent+"  - ")
			}
		case list:
			if value.Len() == 0 {
				continue
			}
			items := make([]string, value.Len())
			for i := range items {
				items[i] = quote(printed(value.Index(i)))
			}
			b.WriteString(lead + f.name + ": [" + strings.Join(items, ", ") + "]\n")
		case texts:
			headers, ok := reflect.TypeAssert[map[string]Secret](value)
			if !ok || len(headers) == 0 {
				continue
			}
			b.WriteString(lead + f.name + ":\n")
			for _, name := range sortedKeys(headers) {
				b.WriteString(indent + "  " + quote(name) + ": " + quote(headers[name].String()) + "\n")
			}
		case scalar:
			text := printed(value)
			if text == "" {
				continue
			}
			b.WriteString(lead + f.name + ": " + quote(text) + "\n")
		}
		dash = ""
	}
}

// quote writes a text so that YAML reads it as that text, with quotes only where they are needed.
func quote(text string) string {
	if isPlain(text) && !strings.HasPrefix(text, "---") && !strings.HasPrefix(text, "-.") && text != "-" && !isNull(text) {
		return text
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// isPlain reports whether a text needs no quotes for its letters: ^[A-Za-z0-9/-]([A-Za-z0-9_./:@?=&%+-]*[A-Za-z0-9_/%])?$.
func isPlain(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return text != "" && strings.Trim(text, letters+"_./:@?=&%+-") == "" && strings.Contains(letters+"/-", text[:1]) &&
		(len(text) == 1 || strings.Contains(letters+"_/%", text[len(text)-1:]))
}

func isNull(text string) bool { return strings.EqualFold(text, "null") }
