package embed

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// folderPrefix starts the name of every data folder. Short: a socket's path may have about 100 characters.
	folderPrefix = "spillway-pg-"
	// sweepAfter is the least age of a folder that is swept: a younger one may not be locked yet.
	sweepAfter = time.Minute
)

// newFolder makes a data folder that belongs to the owner, and locks it for as long as this process lives.
func newFolder(parent string, owner Owner) (string, *os.File, error) {
	dir, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return "", nil, err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		err = owner.Give(dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// sweep removes the folders of processes that were killed, and ends a server that outlived its process. It does what
// it can: a folder it may not touch belongs to another user.
func sweep(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < sweepAfter {
			continue
		}
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(dir) // killed before it could lock
		}
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			endOrphan(filepath.Join(dir, "data", "postmaster.pid"), dir)
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// endOrphan ends the server whose first line of pidFile names it, if that process still is this folder's server.
func endOrphan(pidFile, dir string) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 1 || !CommandNames(pid, dir) {
		return
	}
	if syscall.Kill(pid, syscall.SIGQUIT) != nil {
		return
	}
	for end := time.Now().Add(stopTimeout); time.Now().Before(end) && CommandNames(pid, dir); {
		<-time.After(pollEvery)
	}
}
