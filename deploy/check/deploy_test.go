// Package check holds the tests of what is in deploy/: each file is read the way its reader reads it, strictly and
// without a network. It is a module of its own, so that the readers' modules do not reach Spillway's users.
package check

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir) // in the system's folder for such things
	}
	os.Exit(code)
}

// root is the repository's.
const root = "../.."

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares with a file of the repository, or rewrites it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(root, path), got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, path); !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: cd deploy/check && go test -update ./...", path)
	}
}

// buildDir holds the binary, once a test asked for it.
var buildDir string

// binary builds Spillway once, as the Dockerfile does but for -trimpath: without it the build shares what other builds
// of this machine left in the cache.
var binary = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "spillway-deploy-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "spillway")
	command := exec.Command("go", "build", "-buildvcs=auto", "-ldflags=-s -w", "-o", path, "./cmd/spillway")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func spillway(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// output runs a program and returns what it printed and whether it was content.
func output(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	return string(out), err
}
