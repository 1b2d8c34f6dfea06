package embed

import "syscall"

// Attr returns the process attributes for a server that runs as o in a process group of its own, so that a Ctrl-C in
// the terminal reaches us alone and we decide the order in which things end.
//
// When tied is set, the kernel sends last to the server when the thread that started it ends: start it from a
// goroutine that is locked to its thread and lives as long as the server should.
func (o Owner) Attr(tied bool, last syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if tied {
		attr.Pdeathsig = last
	}
	if o.Drop {
		attr.Credential = &syscall.Credential{Uid: o.UID, Gid: o.GID}
	}
	return attr
}
