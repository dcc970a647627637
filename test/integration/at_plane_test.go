package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// startWorkload starts a workload cluster with what config/workload installs.
func startWorkload(t *testing.T) *localplane.Plane {
	t.Helper()
	planes, err := localplane.Start(t.Context(), localplane.Config{
		Clusters: []localplane.ClusterConfig{{Name: "west", Workload: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := planes.Stop(); err != nil {
			t.Error(err)
		}
	})
	plane := planes.Cluster("west")
	if out, err := kubectl(t, plane, "", "apply", "--validate=strict", "-k", fromRoot(t, "config/workload")); err != nil {
		t.Fatalf("installing config/workload: %v\n%s", err, out)
	}
	if out, err := kubectl(t, plane, "", "wait", "--for=condition=Established", "crd/ats.cnat.programming-kubernetes.info"); err != nil {
		t.Fatalf("waiting for the CRD: %v\n%s", err, out)
	}
	return plane
}

// kubectl runs the control-plane binary's own kubectl as the plane's admin.
func kubectl(t *testing.T, plane *localplane.Plane, stdin string, args ...string) (string, error) {
	t.Helper()
	binary, err := localplane.FindBinary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, append([]string{"kubectl", "--kubeconfig", plane.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// fromRoot is a path of the repository.
func fromRoot(t *testing.T, path string) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "..", "..", path)
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, cnatv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newClient(t *testing.T, plane *localplane.Plane) client.Client {
	t.Helper()
	c, err := client.New(plane.RESTConfig(), client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
