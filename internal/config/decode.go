package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// parse reads the file into the config. It returns false where the text is no YAML at all, so that nothing further can
// be said about it.
func (l *loader) parse(data []byte) bool {
	root := reflect.ValueOf(&l.cfg).Elem()
	l.fill(root, "")
	if len(data) > maxFile {
		l.problem("", errTooLarge.Error(), "")
		return false
	}
	file, err := parseYAML(data)
	if err != nil {
		at := origin{line: 1, column: 1}
		why := "is not YAML"
		// The error's own text would quote the lines around, secrets and all.
		if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			at = place(syntax.Token)
			why += ": " + syntax.Message
		}
		l.problemAt(at, "", why, "")
		return false
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.DirectiveType:
		case body != nil:
			l.problemAt(start(doc.Body), "", "begins a second document", "one document")
		default:
			body = doc.Body
		}
	}
	if body != nil {
		l.section(body, root, "")
	}
	return true
}

// parseYAML turns a panic of the parser into an error: it has met odd input before.
func parseYAML(data []byte) (file *ast.File, err error) {
	defer func() {
		if recover() != nil {
			file, err = nil, errors.New("the parser gave up")
		}
	}()
	// Duplicate keys are found here and not by the parser, which stops at the first.
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

// place is where a token stands.
func place(t *token.Token) origin {
	if t == nil || t.Position == nil {
		return origin{line: 1, column: 1}
	}
	return origin{line: t.Position.Line, column: t.Position.Column}
}

// start is where a node begins.
func start(n ast.Node) origin {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return place(m.Values[0].Key.GetToken()) // the mapping's own token is the first colon
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return place(m.Key.GetToken())
	}
	return place(n.GetToken())
}

// section reads a mapping into a struct.
func (l *loader) section(n ast.Node, v reflect.Value, path string) {
	if n.Type() == ast.NullType {
		return // a section whose keys are all commented out
	}
	fields := fieldsOf(v.Type())
	pairs, ok := l.pairs(n, path, "a section with keys of its own")
	if !ok {
		return
	}
	for _, pair := range pairs {
		p := join(path, pair.key)
		i := indexOf(fields, pair.key)
		if i < 0 {
			names := make([]string, len(fields))
			for j := range fields {
				names[j] = fields[j].name
			}
			why := "is not a setting"
			if guess := nearest(pair.key, names); guess != "" {
				why += "; did you mean " + guess + "?"
			}
			l.problemAt(pair.at, join(path, show(pair.key)), why, oneOf(names))
			continue
		}
		l.value(pair, v.Field(fields[i].index), &fields[i], p)
	}
}

func indexOf(fields []field, name string) int {
	for i := range fields {
		if fields[i].name == name {
			return i
		}
	}
	return -1
}

// pair is one key of a mapping with its value.
type pair struct {
	key   string
	at    origin // of the key
	value ast.Node
}

// pairs lists the keys of a mapping, each once.
func (l *loader) pairs(n ast.Node, path, accepted string) ([]pair, bool) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		l.problemAt(start(n), path, "is "+nodeWords(n), accepted)
		return nil, false
	}
	first := map[string]int{}
	var ps []pair
	for _, value := range values {
		at := place(value.Key.GetToken())
		key, ok := scalarText(value.Key)
		if !ok {
			l.problemAt(at, path, "has a key that is "+nodeWords(value.Key), "plain keys; write shared values out")
			continue
		}
		if line, ok := first[key]; ok {
			l.problemAt(at, join(path, show(key)), fmt.Sprintf("is given twice, first on line %d", line), "each key once")
			continue
		}
		first[key] = at.line
		ps = append(ps, pair{key: key, at: at, value: value.Value})
	}
	return ps, true
}

// value reads the value of a known key.
func (l *loader) value(p pair, v reflect.Value, f *field, path string) {
	switch f.shape() {
	case section:
		l.origins[path] = p.at
		l.section(p.value, v, path)
	case entries:
		l.origins[path] = p.at
		l.entries(p.value, v, f, path)
	case list:
		l.list(p, v, f, path)
	case texts:
		l.origins[path] = p.at
		l.texts(p.value, v, f, path)
	case scalar:
		l.scalar(p.value, v, f, path)
	}
}

// scalar reads one value. The text is taken as it is written: YAML's idea of its type does not count, so that the rules
// are those of the environment.
func (l *loader) scalar(n ast.Node, v reflect.Value, f *field, path string) {
	text, ok := scalarText(n)
	if !ok {
		l.problemAt(start(n), path, "is "+nodeWords(n), f.accepted())
		return
	}
	at := place(n.GetToken())
	if text == "" || n.Type() == ast.NullType {
		l.problemAt(at, path, "is empty", f.accepted()+"; leave the key out for the default")
		return
	}
	at.text = f.shown(text)
	l.set(at, v, f, path, text)
}

// set reads a text into a setting and notes where it came from.
func (l *loader) set(at origin, v reflect.Value, f *field, path, text string) {
	l.origins[path] = at
	if why := f.set(v, text); why != "" {
		l.problemAt(at, path, why, f.accepted())
	}
}

// list reads a list of scalars, or a text that holds one, separated by commas as in the environment.
func (l *loader) list(p pair, v reflect.Value, f *field, path string) {
	items, isList := p.value.(*ast.SequenceNode)
	if !isList {
		text, ok := scalarText(p.value)
		if !ok || p.value.Type() == ast.NullType {
			l.problemAt(start(p.value), path, "is "+nodeWords(p.value), "a list: "+f.accepted())
			return
		}
		at := place(p.value.GetToken())
		l.listText(at, v, f, path, text)
		return
	}
	at := place(items.GetToken())
	l.origins[path] = at
	element := elementOf(f)
	for i, item := range items.Values {
		one := reflect.New(f.typ.Elem()).Elem()
		l.scalar(item, one, &element, fmt.Sprintf("%s[%d]", path, i))
		v.Set(reflect.Append(v, one))
	}
	if len(items.Values) == 0 {
		l.problemAt(at, path, "is an empty list", f.accepted())
	}
}

// listText reads a list of scalars separated by commas. Blanks around them and empty entries do not count.
func (l *loader) listText(at origin, v reflect.Value, f *field, path, text string) {
	at.text = f.shown(text)
	l.origins[path] = at
	v.SetZero()
	element := elementOf(f)
	i := 0
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		itemAt := at
		itemAt.text = f.shown(item)
		one := reflect.New(f.typ.Elem()).Elem()
		l.set(itemAt, one, &element, fmt.Sprintf("%s[%d]", path, i), item)
		v.Set(reflect.Append(v, one))
		i++
	}
	if i == 0 {
		l.problemAt(at, path, "holds no entry", f.accepted())
	}
}

func elementOf(f *field) field {
	element := *f
	element.typ = f.typ.Elem()
	return element
}

// texts reads a mapping with free keys and secret values: headers.
func (l *loader) texts(n ast.Node, v reflect.Value, f *field, path string) {
	if n.Type() == ast.NullType {
		return
	}
	pairs, ok := l.pairs(n, path, f.accepted())
	if !ok {
		return
	}
	element := elementOf(f)
	v.Set(reflect.MakeMap(f.typ))
	for _, p := range pairs {
		one := reflect.New(f.typ.Elem()).Elem()
		l.scalar(p.value, one, &element, join(path, show(p.key)))
		v.SetMapIndex(reflect.ValueOf(p.key), one)
	}
}

// entries reads a list of sections.
func (l *loader) entries(n ast.Node, v reflect.Value, f *field, path string) {
	items, ok := n.(*ast.SequenceNode)
	if !ok {
		l.problemAt(start(n), path, "is "+nodeWords(n), f.accepted())
		return
	}
	if len(items.Values) == 0 && f.need {
		l.problemAt(place(items.GetToken()), path, "is an empty list", f.accepted())
	}
	v.Set(reflect.MakeSlice(f.typ, len(items.Values), len(items.Values)))
	for i, item := range items.Values {
		p := fmt.Sprintf("%s[%d]", path, i)
		at := start(item)
		if name := l.routeName(item, v.Index(i)); name != "" && !l.given(join(path, name)) {
			l.origins[p] = at
			p = join(path, name)
		}
		l.origins[p] = at
		l.fill(v.Index(i), p)
		if item.Type() == ast.NullType {
			l.problemAt(at, p, "is empty", f.accepted())
			continue
		}
		l.section(item, v.Index(i), p)
	}
}

// routeName looks ahead for the legal name of a route, by which its settings go in messages and in the environment.
func (l *loader) routeName(n ast.Node, v reflect.Value) string {
	m, ok := n.(*ast.MappingNode)
	if v.Type() != reflect.TypeFor[Route]() || !ok {
		return ""
	}
	for _, value := range m.Values {
		if key, _ := scalarText(value.Key); key != "name" {
			continue
		}
		if name, _ := scalarText(value.Value); isRouteName(name) {
			return name
		}
	}
	return ""
}

// scalarText is the text of a scalar as it was written, without quotes.
func scalarText(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// nodeWords says what a node is that does not belong where it stands. It does not quote it.
func nodeWords(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor, an alias or a merge key, which are not read"
	case *ast.TagNode:
		return "a tag, which is not read"
	case *ast.NullNode:
		return "empty"
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return "a single value"
	}
	return "something else"
}
