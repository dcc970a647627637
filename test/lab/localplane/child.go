package localplane

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// StartChild starts a command that ends when this process does, SIGKILL included (on Linux), as the components do. It
// is for programs that run beside the planes. The child gets a process group of its own and so doesn't see the
// terminal's Ctrl-C: whoever starts it also stops it and waits for it.
func StartChild(command *exec.Cmd) error {
	command.SysProcAttr = childAttributes()
	var err error
	onNursery(func() { err = command.Start() })
	return err
}

// Kubectl runs the kubectl that is built into the control-plane binary as the cluster's admin, and returns what it
// says. It ends with us, and with the context.
func (p *Plane) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	flags := []string{"kubectl", "--kubeconfig", p.Kubeconfig(), "--cache-dir", filepath.Join(p.dir, "kubectl-cache")}
	command := exec.CommandContext(ctx, p.binary, append(flags, args...)...)
	var output strings.Builder
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &output, &output
	err := StartChild(command)
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(output.String()))
	}
	return output.String(), nil
}
