package localplane

import "os/exec"

// StartChild starts a command that ends when this process does, SIGKILL included (on Linux), as the components do. It
// is for programs that run beside the planes. The child gets a process group of its own and so doesn't see the
// terminal's Ctrl-C: whoever starts it also stops it and waits for it.
func StartChild(command *exec.Cmd) error {
	command.SysProcAttr = childAttributes()
	var err error
	onNursery(func() { err = command.Start() })
	return err
}
