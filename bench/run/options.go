package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
	// Config is the folder of the manifests.
	Config string
	// Dir keeps what was written: logs, audit logs, samples. Empty: a temporary folder.
	Dir string
	// Profile is a folder for CPU profiles of the replicas, taken in the first round. Empty: none.
	Profile string
	// Command is how the program was called, for the report.
	Command string
	// Progress gets lines for a person to read.
	Progress io.Writer
}

// Locate finds the binaries and manifests that aren't named, and says how to make what is missing.
func (o *Options) Locate() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if o.Config == "" {
		o.Config = filepath.Join(root, "config")
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
	if o.Hooked == "" {
		o.Hooked = o.Tenure
	}
	if o.Tenure == "" {
		o.Tenure = filepath.Join(root, "bin", "tenure")
		if beside := filepath.Join(filepath.Dir(self), "tenure"); isFile(beside) {
			o.Tenure = beside
		}
		o.Hooked = o.Tenure + "-lab"
	}
	if !isFile(o.Tenure) {
		return fmt.Errorf("no replica binary at %s: run `make build`, or name one with --tenure", o.Tenure)
	}
	if o.Tenure, err = filepath.Abs(o.Tenure); err == nil {
		o.Hooked, err = filepath.Abs(o.Hooked)
	}
	return err
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// moduleRoot is the folder of the checkout that the working directory is in.
func moduleRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the manifests in config/: %w", err)
	}
	for {
		if isFile(filepath.Join(folder, "config", "crd", "kustomization.yaml")) {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no config/crd here or above: run the bench from a checkout of tenure")
		}
		folder = filepath.Dir(folder)
	}
}
