package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localjaeger"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// Canaries: secrets that are planted where a replica meets them, and must never come out of it.
const (
	canaryToken   = "canary-token-7f3a9c"
	canaryCommand = "canary-command-51be20"
	canaryHeader  = "canary-header-c40d11"
	canaryCA      = "canary-ca-9e6612"
)

// tracedFleet is planes, a Jaeger and replicas that send their traces to it.
type tracedFleet struct {
	home, west *localplane.Plane
	jaeger     *localjaeger.Jaeger
	binary     string
	logs       []string // files
}

func startTracedFleet(t *testing.T) *tracedFleet {
	t.Helper()
	f := &tracedFleet{}
	var err error
	if f.jaeger, err = localjaeger.Start(t.Context(), localjaeger.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.jaeger.Stop(); err != nil {
			t.Error(err)
		}
	})
	planes := labtest.Planes(t, localplane.ClusterConfig{Name: "home"},
		localplane.ClusterConfig{Name: "west", Workload: true, ExtraAPIServerArgs: f.jaeger.APIServerArgs()})
	f.home, f.west = planes.Cluster("home"), planes.Cluster("west")
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	labtest.Kubectl(t, f.home, "apply", "-k", filepath.Join(root, "config/crd"))
	labtest.Kubectl(t, f.home, "wait", "--for=condition=Established", "crd/shards.tenure.dev")
	if err := lab.InstallWorkload(t.Context(), f.west); err != nil {
		t.Fatal(err)
	}
	if f.binary, err = lab.Build(t.Context(), t.TempDir(), "tenure", lab.RaceDetector); err != nil {
		t.Fatal(err)
	}
	f.addClusters(t)
	return f
}

// addClusters makes west known, and a cluster that can't be reached, whose kubeconfig holds a canary.
func (f *tracedFleet) addClusters(t *testing.T) {
	t.Helper()
	c := labtest.Client(t, f.home)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenure-system"}}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(f.west.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	broken := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"x","cluster":{"server":"https://127.0.0.1:9","insecure-skip-tls-verify":true}}],
		"users":[{"name":"x","user":{"token":%q,"username":""}}],
		"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}]}`, canaryToken)
	bad := strings.Replace(broken, `"insecure-skip-tls-verify":true`, `"certificate-authority-data":"`+canaryCA+`!"`, 1)
	for name, content := range map[string][]byte{"west": kubeconfig, "away": []byte(broken), "unreadable": []byte(bad)} {
		err := lab.AddKubeconfig(t.Context(), c, lab.Namespace, name, content)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// start runs a replica; environment is added to that which sends traces to Jaeger.
func (f *tracedFleet) start(t *testing.T, name string, environment ...string) *lab.Replica {
	t.Helper()
	r, err := lab.StartProgram(lab.Program{
		Name: name, Binary: f.binary, LogPath: filepath.Join(t.TempDir(), name+".log"), Addresses: 1,
		Args: func(addresses []string) []string {
			return []string{"--home-kubeconfig=" + f.home.Kubeconfig(), "--replica=" + name, "--lease-duration=5s",
				"--metrics-bind-address=" + addresses[0], "--health-probe-bind-address=0", "--log-level=debug", "--shards-per-cluster=4"}
		},
		Environment: slices.Concat(f.jaeger.Environment(), []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + canaryHeader}, environment),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.logs = append(f.logs, r.LogPath)
	t.Cleanup(func() { labtest.Leave(t, r) })
	return r
}

// leave asks a replica to leave, and waits for it.
func leave(t *testing.T, r *lab.Replica) {
	t.Helper()
	if err := r.Leave(t.Context(), labtest.Patience); err != nil {
		t.Error(err)
	}
}

// createAts makes Ats of one spec.
func createAts(t *testing.T, c client.Client, namespace, name string, n int, spec cnatv1alpha1.AtSpec) {
	t.Helper()
	for i := range n {
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%03d", name, i)}, Spec: spec}
		if err := c.Create(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitDone waits until all Ats of a namespace are DONE.
func awaitDone(t *testing.T, c client.Client, namespace string, n int) {
	t.Helper()
	labtest.Until(t, fmt.Sprintf("%d Ats are DONE", n), func() bool {
		var list cnatv1alpha1.AtList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		done := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == cnatv1alpha1.AtDone {
				done++
			}
		}
		return done == n
	})
}
