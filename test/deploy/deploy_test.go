// Package deploy tests that what config/ holds renders, and that a real API server takes it as it is.
package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

func TestConfigIsTakenByARealAPIServer(t *testing.T) {
	home := labtest.Planes(t, localplane.ClusterConfig{Name: "home"}).Cluster("home")
	// A server-side dry run validates against what is there: namespace and CRDs have to be.
	for _, c := range []struct {
		folder string
		dry    []bool
	}{
		{"crd", []bool{false, true}}, {"default", []bool{false, true}}, {"workload", []bool{false, true}},
		{"samples", []bool{true}},
		{"development", []bool{true}}, {"remote", []bool{true}}, {"../test/deploy/testdata/components", []bool{true}},
		{"replication/home", []bool{false, true}}, {"replication/target", []bool{false, true}},
	} {
		rendered := labtest.Kubectl(t, home, "kustomize", "../../config/"+c.folder)
		for _, dry := range c.dry {
			args := []string{"apply", "--validate=strict", "-f", "-"}
			if dry {
				args = append(args, "--dry-run=server")
			}
			if _, err := home.Kubectl(t.Context(), rendered, args...); err != nil {
				t.Errorf("config/%s, dry %v: %v", c.folder, dry, err)
			}
		}
	}
	classified(t, home)
}

// The Dockerfile can't be built where there is no engine; what it names must at least be there.
func TestTheDockerfileCopiesWhatExists(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	must.Succeed(t, err)
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
