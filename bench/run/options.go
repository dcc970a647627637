package run

import (
	"fmt"
	"io"
	"os"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Options say with what a scenario is run.
type Options struct {
	// Tenure is the binary of a replica, Bench that of this program (for the floor), ControlPlane the servers'.
	Tenure, Bench, ControlPlane string
	// Hooked is Tenure built with -tags lab, for scenarios that inject work or take samples.
	Hooked string
	// Kubeconfigs are files by cluster, one of which is called home: run there instead of on control planes of our own.
	Kubeconfigs map[string]string
	// Dir keeps what was written: logs, audit logs, samples. Empty: a temporary folder.
	Dir string
	// Profile is a folder for CPU profiles of all processes, five seconds of each round. Empty: none.
	Profile string
	// Command is how the program was called, for the report.
	Command string
	// Progress gets lines for a person to read.
	Progress io.Writer
}

// Locate finds the binaries and manifests that aren't named, and says how to make what is missing.
func (o *Options) Locate() error {
	_, err := lab.Root()
	if err != nil {
		return err
	}
	if o.ControlPlane == "" && len(o.Kubeconfigs) == 0 {
		if o.ControlPlane, err = localplane.FindBinary(); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if o.Bench == "" {
		o.Bench = self
	}
	if o.Hooked == "" && o.Tenure != "" {
		o.Hooked = o.Tenure
		if _, err := os.Stat(o.Tenure + "-lab"); err == nil { // what `make lab` puts beside it
			o.Hooked += "-lab"
		}
	}
	if o.Tenure, err = lab.FindTenure(o.Tenure); err == nil && o.Hooked == "" {
		o.Hooked = o.Tenure + "-lab"
	}
	return err
}
