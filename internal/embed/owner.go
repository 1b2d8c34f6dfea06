package embed

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// Owner is the account a server process runs under. The zero value is the account of this process.
type Owner struct {
	UID, GID uint32
	// Drop says that the process must change to UID and GID before it executes the server.
	Drop bool
}

// ServerOwner returns the account for a PostgreSQL server that this process starts.
//
// PostgreSQL refuses to run as the superuser, so root gets the account postgres, else nobody; everybody else keeps
// their own. An account without an entry in the user database is refused: initdb cannot work for it.
func ServerOwner() (Owner, error) {
	if os.Geteuid() != 0 {
		if _, err := user.LookupId(strconv.Itoa(os.Geteuid())); err != nil {
			return Owner{}, fmt.Errorf("user id %d has no entry in the user database, and initdb needs one: run as a named user", os.Geteuid())
		}
		return Owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			continue
		}
		return Owner{UID: uint32(uid), GID: uint32(gid), Drop: true}, nil
	}
	return Owner{}, fmt.Errorf("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody to run it as")
}

// Give makes the owner own path. It does nothing when the owner is the account of this process.
func (o Owner) Give(path string) error {
	if !o.Drop {
		return nil
	}
	return os.Chown(path, int(o.UID), int(o.GID))
}

// canReach reports whether an account that owns nothing on the way may enter dir.
func canReach(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}
