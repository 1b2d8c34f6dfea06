package embed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that points at a folder with initdb and postgres.
const BinEnv = "SPILLWAY_POSTGRES_BIN"

// ErrNoPostgres says that this machine has no PostgreSQL server programs in any of the places that were looked at.
var ErrNoPostgres = errors.New("no PostgreSQL server found")

// Find returns the folder that holds initdb and postgres.
//
// It looks at dir when that is not empty (and nowhere else), then at the folder named by SPILLWAY_POSTGRES_BIN (and
// nowhere else), then along PATH with links resolved, then where Debian and Homebrew put the server, newest version
// first. It never downloads anything. The error wraps ErrNoPostgres when nothing was found.
func Find(dir string) (string, error) {
	for _, named := range []struct{ dir, by string }{{dir, "the configured folder"}, {os.Getenv(BinEnv), BinEnv}} {
		if named.dir == "" {
			continue
		}
		found, err := filepath.Abs(named.dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", named.by, err)
		}
		if !isInstall(found) {
			return "", fmt.Errorf("%w: %s names %s, which lacks initdb or postgres", ErrNoPostgres, named.by, found)
		}
		return found, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		// Distributions link initdb into PATH alone; its neighbours stand where the link leads.
		if program, err := filepath.EvalSymlinks(path); err == nil && isInstall(filepath.Dir(program)) {
			return filepath.Dir(program), nil
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
		if i := slices.IndexFunc(dirs, isInstall); i >= 0 {
			return dirs[i], nil
		}
	}
	return "", ErrNoPostgres
}

// isInstall reports whether dir holds both programs that a new cluster needs.
func isInstall(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version reads the number out of a folder such as /usr/lib/postgresql/15/bin; 0 when there is none.
func version(bin string) int {
	name := strings.TrimLeft(filepath.Base(filepath.Dir(bin)), "abcdefghijklmnopqrstuvwxyz-@")
	n, err := strconv.Atoi(name)
	if err != nil {
		return 0
	}
	return n
}

// installHint is the one line that tells a person how to get PostgreSQL on this system.
func installHint() string {
	switch runtime.GOOS {
	case "darwin":
		return "brew install postgresql@15"
	case "linux":
		for tool, line := range map[string]string{
			"apt-get": "sudo apt-get install postgresql",
			"dnf":     "sudo dnf install postgresql-server",
			"apk":     "sudo apk add postgresql",
			"pacman":  "sudo pacman -S postgresql",
		} {
			if _, err := exec.LookPath(tool); err == nil {
				return line
			}
		}
	}
	return "install PostgreSQL 15 or newer"
}
