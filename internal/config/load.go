package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
)

// maxFile bounds the settings file and each file it names, in bytes.
const maxFile = 1 << 20

// Load reads the settings file at path, then the overrides in env (as os.Environ gives it), then the files that the
// settings name: certificates, keys, secrets. The error is an *[Error] with everything that is wrong; there is no config
// then.
func Load(path string, env []string) (*Config, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return LoadFrom(path, data, env)
}

// Read returns the content of a settings file, at most 1 MiB. The error is an *[Error].
func Read(path string) ([]byte, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, &Error{Problems{{File: path, Why: reading(err), Accepted: "a settings file; `spillway config init` writes one"}}}
	}
	return data, nil
}

// LoadFrom is [Load] with the settings file's content as [Read] returned it, so that who compared it loads the same.
func LoadFrom(path string, data []byte, env []string) (*Config, error) {
	l := newLoader(path, env)
	l.read = readFile
	return l.load(data)
}

// Parse is [Load] without touching any file: data is the settings file's content and name stands for it in messages.
// Files that the settings name are not read, so the secrets and certificates in them are missing.
func Parse(name string, data []byte, env []string) (*Config, error) {
	return newLoader(name, env).load(data)
}

// loader turns one file and an environment into a Config, collecting what is wrong.
type loader struct {
	name string
	env  []string
	read func(path string) ([]byte, error) // nil: files that the settings name are left alone

	cfg      Config
	problems Problems
	origins  map[string]origin // where each path that was given came from, sections included
	defaults map[string]string // what each path that was not given stands at
	bad      map[string]bool   // paths with a problem of their own
}

// origin is where a value came from, and what it was.
type origin struct {
	line, column int
	variable     string
	text         string // fit to be shown
}

func newLoader(name string, env []string) *loader {
	return &loader{
		name: name, env: env,
		origins: map[string]origin{}, defaults: map[string]string{}, bad: map[string]bool{},
	}
}

func (l *loader) load(data []byte) (*Config, error) {
	if l.parse(data) {
		l.overrides()
		l.needs(reflect.ValueOf(&l.cfg).Elem(), "")
		l.derive()
		l.check()
	}
	if len(l.problems) > 0 {
		l.problems.sort()
		return nil, &Error{l.problems}
	}
	cfg := l.cfg
	return &cfg, nil
}

// problem reports a mistake in the value of a path, at the place where that was given.
func (l *loader) problem(path, why, accepted string) {
	l.problemAt(l.origin(path), path, why, accepted)
}

func (l *loader) problemAt(at origin, path, why, accepted string) {
	l.bad[path] = true
	p := Problem{Path: path, Value: at.text, Variable: at.variable, Why: why, Accepted: accepted}
	if at.variable == "" {
		p.File, p.Line, p.Column = l.name, at.line, at.column
	}
	l.problems = append(l.problems, p)
}

// origin is where a path was given; for one that was not, where the innermost section around it begins, with the default
// as the text.
func (l *loader) origin(path string) origin {
	if at, ok := l.origins[path]; ok {
		return at
	}
	at := origin{line: 1, column: 1}
	for around := path; around != ""; {
		around = parent(around)
		if o, ok := l.origins[around]; ok {
			at.line, at.column = max(o.line, 1), max(o.column, 1)
			break
		}
	}
	if text, ok := l.defaults[path]; ok {
		at.text = text + " (the default)"
	}
	return at
}

// given reports whether the path was set by the file or the environment.
func (l *loader) given(path string) bool {
	_, ok := l.origins[path]
	return ok
}

// broken reports whether the path or a section around it has a problem of its own, so that what follows from its value
// says nothing.
func (l *loader) broken(path string) bool {
	for ; path != ""; path = parent(path) {
		if l.bad[path] {
			return true
		}
	}
	return false
}

// parent is the path of the section around a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i >= 0 {
		return path[:i]
	}
	return ""
}

// join is the path of a key in a section.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// fill sets the defaults of a section.
func (l *loader) fill(v reflect.Value, path string) {
	for _, f := range fieldsOf(v.Type()) {
		p := join(path, f.name)
		switch f.shape() {
		case section:
			l.fill(v.Field(f.index), p)
		case scalar:
			if f.def == "" {
				continue
			}
			if why := f.set(v.Field(f.index), f.def); why != "" {
				panic(fmt.Sprintf("config: the default of %s, %s, %s", p, f.def, why))
			}
			l.defaults[p] = f.def
		case entries, list, texts:
		}
	}
}

// needs reports what must be given and was not.
func (l *loader) needs(v reflect.Value, path string) {
	for _, f := range fieldsOf(v.Type()) {
		p := join(path, f.name)
		if f.need && !l.given(p) && !l.broken(p) {
			l.problem(p, "is not given", f.accepted())
		}
		switch f.shape() {
		case section:
			l.needs(v.Field(f.index), p)
		case entries:
			for i := range v.Field(f.index).Len() {
				l.needs(v.Field(f.index).Index(i), l.entryPath(p, v.Field(f.index), i))
			}
		case scalar, list, texts:
		}
	}
}

// entryPath is the path of one entry of a list of sections: a route goes by its name where that is a legal one of its own.
func (l *loader) entryPath(path string, entries reflect.Value, i int) string {
	if r, ok := reflect.TypeAssert[Route](entries.Index(i)); ok && isRouteName(r.Name) {
		named := join(path, r.Name)
		if l.origins[named] == l.origins[fmt.Sprintf("%s[%d]", path, i)] {
			return named
		}
	}
	return fmt.Sprintf("%s[%d]", path, i)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // naming the file is the operator's right
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, errTooLarge
	}
	return data, nil
}

var errTooLarge = errors.New("is larger than 1MiB")

// reading says why a file could not be read, without repeating its path.
func reading(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	if errors.Is(err, errTooLarge) {
		return err.Error()
	}
	return "cannot be read: " + err.Error()
}
