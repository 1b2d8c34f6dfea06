package config

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
)

// Change is one setting that differs between two configs.
type Change struct {
	Path     string // such as routes.wallet.permits.limit; a route goes by its name
	Old, New string // as a message may show them: cut, secrets hidden; "not there" for a route that one of the two lacks
	Hot      bool   // whether a running worker can take the new value
	Wrong    string // why no file could hold the new value, with what is accepted; empty where one could
}

// String is the change on one line: path: old → new. A secret shows *** on both sides.
func (c Change) String() string { return c.Path + ": " + c.Old + " → " + c.New }

// Diff lists the settings that differ, in the order of the settings file. Routes are compared by name, whatever their
// order; the entries of other lists by their places. What was read from a file that a setting names is not compared, only the name: it is read
// at the start and no more.
func Diff(before, after *Config) []Change {
	d := differ{}
	d.section(reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem(), "", false)
	return d.changes
}

// notThere stands for a route that a config lacks.
const notThere = "not there"

type differ struct{ changes []Change }

func (d *differ) add(path, before, after string, hot bool) {
	d.changes = append(d.changes, Change{Path: path, Old: before, New: after, Hot: hot})
}

// section compares two sections of one type. hot: it is hot as a whole.
func (d *differ) section(before, after reflect.Value, path string, hot bool) {
	for _, f := range fieldsOf(before.Type()) {
		b, a, p := before.Field(f.index), after.Field(f.index), join(path, f.name)
		hot := hot || f.hot || f.hotWhile && !b.IsZero() && !a.IsZero()
		fromFile := isFromFile(before, &f) && isFromFile(after, &f)
		switch shape := f.shape(); {
		case shape == section:
			d.section(b, a, p, hot)
		case f.typ == reflect.TypeFor[[]Route]():
			d.routes(b, a, p)
		case shape == entries && b.Len() == a.Len():
			for i := range b.Len() {
				d.section(b.Index(i), a.Index(i), fmt.Sprintf("%s[%d]", p, i), hot)
			}
		case same(b, a, fromFile):
		case shape == scalar && f.typ == reflect.TypeFor[URL]():
			d.add(p, show(printed(b)), show(printed(a)), hot)
		case shape == scalar && b.Kind() == reflect.String:
			d.add(p, show(printed(b)), show(printed(a)), hot)
			d.judge(&f, a)
		case shape == scalar:
			d.add(p, printed(b), printed(a), hot)
			d.judge(&f, a)
		default:
			d.add(p, outline(&f, b), outline(&f, a), hot)
		}
	}
}

// judge says of the change added last whether a file could hold its new value: a program may have set it.
func (d *differ) judge(f *field, after reflect.Value) {
	if f.secret() {
		return
	}
	if why := f.set(reflect.New(f.typ).Elem(), printed(after)); why != "" {
		d.changes[len(d.changes)-1].Wrong = why + "; accepted: " + f.accepted()
	}
}

// routes compares two lists of routes by name. A route that only one of the two has is no hot change.
func (d *differ) routes(before, after reflect.Value, path string) {
	find := func(routes reflect.Value, name string) (reflect.Value, bool) {
		for i := range routes.Len() {
			if routes.Index(i).FieldByName("Name").String() == name {
				return routes.Index(i), true
			}
		}
		return reflect.Value{}, false
	}
	for i := range before.Len() {
		b := before.Index(i)
		name := b.FieldByName("Name").String()
		if a, ok := find(after, name); ok {
			d.section(b, a, join(path, name), false)
		} else {
			d.add(join(path, name), "a route", notThere, false)
		}
	}
	for i := range after.Len() {
		name := after.Index(i).FieldByName("Name").String()
		if _, ok := find(before, name); !ok {
			d.add(join(path, name), notThere, "a route", false)
		}
	}
}

// isFromFile reports whether the value of a secret, or the password in an address, was read from a file that the setting
// beside it names.
func isFromFile(section reflect.Value, f *field) bool {
	want := f.name + "_file"
	if f.typ == reflect.TypeFor[URL]() {
		want = "password_file"
	} else if !f.secret() {
		return false
	}
	for _, other := range fieldsOf(section.Type()) {
		if other.name == want {
			return section.Field(other.index).String() != ""
		}
	}
	return false
}

// same reports whether two values are equal; of those read from files nothing but what the settings file says itself.
func same(before, after reflect.Value, fromFile bool) bool {
	if k := before.Kind(); (k == reflect.Slice || k == reflect.Map) && before.Len()+after.Len() == 0 {
		return true // one not given and one given as empty
	}
	if !fromFile {
		return reflect.DeepEqual(before.Interface(), after.Interface())
	}
	b, isURL := reflect.TypeAssert[URL](before)
	a, _ := reflect.TypeAssert[URL](after)
	return !isURL || withPassword(b, "").Equal(withPassword(a, ""))
}

// outline is what a message shows of a list or a mapping.
func outline(f *field, v reflect.Value) string {
	switch f.shape() {
	case list:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = printed(v.Index(i))
		}
		return show(strings.Join(items, ","))
	case texts:
		headers, _ := reflect.TypeAssert[map[string]Secret](v)
		items := make([]string, 0, len(headers))
		for _, name := range sortedKeys(headers) {
			items = append(items, name+"="+hidden)
		}
		return show(strings.Join(items, ","))
	case entries:
		return fmt.Sprintf("%d entries", v.Len())
	case scalar, section:
	}
	return hidden
}

// Fingerprint is a number that two workers share if their settings are the same, but for what is each worker's own
// (http.listen, kafka.client_id) and for the texts of secrets, which are not part of it. It is below 2^48, so that a float
// holds it exactly.
func (c *Config) Fingerprint() uint64 {
	common := *c
	common.HTTP.Listen, common.Kafka.ClientID = "", ""
	sum := sha256.Sum256(common.Redacted())
	return binary.BigEndian.Uint64(sum[:8]) >> 16
}
