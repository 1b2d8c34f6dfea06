package embed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// CommandNames reports whether a process with this id runs and its command line holds word. It tells a server that we
// started from a stranger who got its id later. A process that has ended and was not waited for does not run.
func CommandNames(pid int, word string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		if _, err := os.Stat("/proc/self"); err == nil {
			return false
		}
		// A system without /proc.
		text, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			return false
		}
	}
	return strings.Contains(string(text), word)
}
