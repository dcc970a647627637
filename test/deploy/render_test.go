package deploy

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

// What is built into the binary is what kubectl installs.
func TestTheBinaryRendersConfigAsKubectlDoes(t *testing.T) {
	for _, folder := range []string{config.Workload, config.ReplicationTarget, config.ReplicationSource} {
		want, got := kustomize(t, "../../config/"+folder), map[string]map[string]any{}
		rendered, err := config.Render(folder)
		must.Succeed(t, err)
		for _, o := range rendered {
			got[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) != len(rendered) || len(got) < 4 {
			t.Errorf("config/%s, %d objects (- kubectl, + the binary):\n%s", folder, len(rendered), diff)
		}
	}
}

// kustomize renders a folder as kubectl does: its objects by KIND NAMESPACE/NAME.
func kustomize(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	binary, err := localplane.FindBinary()
	must.Succeed(t, err)
	out, err := exec.CommandContext(t.Context(), binary, "kubectl", "kustomize", folder).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", folder, err)
	}
	all := map[string]map[string]any{}
	for documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(string(out)), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(o); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
	}
}
