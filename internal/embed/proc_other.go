//go:build !linux

package embed

import "syscall"

// Attr returns the process attributes for a server. Only Linux can tie a process to its parent and is worth dropping
// root on; elsewhere the defaults stand, and what a killed parent leaves behind is swept at the next start.
func (o Owner) Attr(bool, syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
