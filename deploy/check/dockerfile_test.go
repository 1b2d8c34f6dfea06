package check

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

func dockerfile(t *testing.T) []instructions.Stage {
	t.Helper()
	tree, err := parser.Parse(bytes.NewReader(read(t, "deploy/Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range tree.Warnings {
		t.Errorf("warning: %s", w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) { t.Errorf("%s: %s", rule, text) }})
	stages, _, err := instructions.Parse(tree.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

func TestImageIsABinaryOnNothingAndNotRoot(t *testing.T) {
	t.Parallel()
	stages := dockerfile(t)
	if len(stages) != 2 {
		t.Fatalf("%d stages", len(stages))
	}
	build, final := stages[0], stages[1]
	if final.BaseName != "scratch" {
		t.Errorf("the image stands on %s", final.BaseName)
	}
	goMod, _, _ := strings.Cut(string(read(t, "go.mod"))[strings.Index(string(read(t, "go.mod")), "\ngo ")+4:], "\n")
	if release := strings.Join(strings.Split(goMod, ".")[:2], "."); !strings.HasPrefix(build.BaseName, "golang:"+release) {
		t.Errorf("built with %s, go.mod wants %s", build.BaseName, goMod)
	}
	var user, signal string
	var entry []string
	copied := map[string]bool{}
	labels := map[string]bool{}
	for _, c := range final.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.StopSignalCommand:
			signal = c.Signal
		case *instructions.EntrypointCommand:
			entry = c.CmdLine
			if c.PrependShell {
				t.Error("the entry point needs a shell, which the image has not")
			}
		case *instructions.CmdCommand:
			if c.PrependShell {
				t.Error("the command needs a shell, which the image has not")
			}
		case *instructions.CopyCommand:
			if c.From != "build" {
				t.Errorf("copies from %q", c.From)
			}
			copied[c.DestPath] = true
		case *instructions.LabelCommand:
			for _, l := range c.Labels {
				labels[strings.TrimPrefix(l.Key, "org.opencontainers.image.")] = true
			}
		case *instructions.HealthCheckCommand, *instructions.RunCommand:
			t.Errorf("%s needs a program, which the image has not", c.Name())
		}
	}
	if user == "" || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") || strings.Trim(user, "0123456789:") != "" {
		t.Errorf("user %q: want a number that is not root's", user)
	}
	if signal != "SIGTERM" {
		t.Errorf("stop signal %q", signal)
	}
	if !slices.Equal(entry, []string{"/usr/bin/spillway"}) || !copied[entry[0]] {
		t.Errorf("entry point %v, copied %v", entry, copied)
	}
	for _, l := range []string{"title", "description", "licenses", "version", "revision"} {
		if !labels[l] {
			t.Errorf("no label %s", l)
		}
	}
}

// What binary builds, but for -trimpath.
func TestBuildStageBuildsWhatTheTestsBuild(t *testing.T) {
	t.Parallel()
	var run []string
	for _, c := range dockerfile(t)[0].Commands {
		if r, ok := c.(*instructions.RunCommand); ok {
			run = append(run, strings.Join(r.CmdLine, " "))
		}
	}
	last := strings.Join(strings.Fields(strings.ReplaceAll(run[len(run)-1], "\\\n", " ")), " ")
	want := `CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=auto -ldflags="-s -w" -o /out/spillway ./cmd/spillway`
	if last != want {
		t.Errorf("builds with\n%s\nwant\n%s", last, want)
	}
}

func TestContextHoldsWhatTheBuildNeedsAndNothingThatGitIgnores(t *testing.T) {
	t.Parallel()
	patterns, err := ignorefile.ReadAll(bytes.NewReader(read(t, "deploy/Dockerfile.dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	left := func(p string) bool {
		out, err := ignored.MatchesOrParentMatches(p)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, p := range []string{".services/kafka/log", "bin/spillway", "bench/out/pipeline.json", "order/order.test", "cpu.prof", "coverage.txt"} {
		if !left(p) {
			t.Errorf("%s is sent to the builder", p)
		}
	}
	err = filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // somebody's file for a moment
		}
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(p, filepath.Clean(root)), "/"))
		if d.IsDir() && slices.Contains([]string{".git", ".services", "bin", "bench/out"}, rel) {
			return filepath.SkipDir
		}
		if slices.Contains([]string{".go", ".mod", ".sum", ".sql", ".lua", ".yaml"}, path.Ext(rel)) && left(rel) {
			t.Errorf("%s is not sent to the builder", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left(".git/HEAD") {
		t.Error(".git is left out: the binary would not know its version")
	}
}
