package localplane

import "syscall"

// childAttributes makes a child die with this process, even when this process is killed outright, and gives it a
// process group of its own: Ctrl-C in a terminal then reaches the parent only, which stops its children in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
