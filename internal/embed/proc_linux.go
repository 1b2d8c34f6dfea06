package embed

import "syscall"

// attr returns the attributes of a program's process.
func attr(owner Owner, life Life, last syscall.Signal) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if life == Tied {
		attributes.Pdeathsig = last
	}
	if owner.Drop {
		attributes.Credential = &syscall.Credential{Uid: owner.UID, Gid: owner.GID}
	}
	return attributes
}
