//go:build unix && !linux

package embed

import "syscall"

// attr returns the attributes of a program's process. Only Linux can tie it to its parent.
func attr(owner Owner, _ Life, _ syscall.Signal) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if owner.Drop {
		attributes.Credential = &syscall.Credential{Uid: owner.UID, Gid: owner.GID}
	}
	return attributes
}
