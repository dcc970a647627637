//go:build !linux

package localplane

import "syscall"

// childAttributes gives a child a process group of its own. Only Linux can also tie its life to ours: elsewhere the
// components outlive a parent that was killed outright.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
