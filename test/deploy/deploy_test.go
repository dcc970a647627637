// Package deploy tests that what config/ holds renders, and that a real API server takes it as it is.
package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// kubectl runs the kubectl that is built into the local control plane.
func kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	binary, err := localplane.FindBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"kubectl"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out) + stderr.String(), err
	}
	return string(out), nil
}

func TestConfigIsTakenByARealAPIServer(t *testing.T) {
	planes, err := localplane.Start(t.Context(), localplane.Config{Clusters: []localplane.ClusterConfig{{Name: "home"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := "--kubeconfig=" + planes.Cluster("home").Kubeconfig()

	// A server-side dry run validates against what is there: namespace and CRDs have to be.
	for _, folder := range []string{"config/crd", "config/default", "config/workload"} {
		rendered, err := kubectl(t, "", "kustomize", folder)
		if err != nil {
			t.Fatalf("kustomize %s: %v\n%s", folder, err, rendered)
		}
		if out, err := kubectl(t, rendered, kubeconfig, "apply", "--validate=strict", "-f", "-"); err != nil {
			t.Fatalf("apply %s: %v\n%s", folder, err, out)
		}
		if out, err := kubectl(t, rendered, kubeconfig, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			t.Errorf("apply %s again, dry: %v\n%s", folder, err, out)
		}
	}
	rendered, err := kubectl(t, "", "kustomize", "config/samples")
	if err != nil {
		t.Fatalf("kustomize config/samples: %v\n%s", err, rendered)
	}
	if out, err := kubectl(t, rendered, kubeconfig, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
		t.Errorf("apply config/samples, dry: %v\n%s", err, out)
	}
}

// The Dockerfile can't be built where there is no engine; what it names must at least be there.
func TestTheDockerfileCopiesWhatExists(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "COPY" || strings.HasPrefix(fields[1], "--") {
			continue
		}
		for _, source := range fields[1 : len(fields)-1] {
			copies++
			if _, err := os.Stat("../../" + source); err != nil {
				t.Errorf("Dockerfile copies %s: %v", source, err)
			}
		}
	}
	if copies == 0 {
		t.Error("no COPY found in the Dockerfile")
	}
}
