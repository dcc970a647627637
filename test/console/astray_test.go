package console

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// Credentials of one cluster in the Secret of another work well, and nobody means them.
func TestCredentialsOfAnotherClusterAreFoundAndReplaced(t *testing.T) {
	f := newBareFleet(t, "west", "east")
	f.start("r0", "--cluster-removal-grace=1s")
	ofWest := " --kubeconfig " + f.Planes.Cluster("west").Kubeconfig()
	ofEast := " --kubeconfig " + f.Planes.Cluster("east").Kubeconfig()
	text, err := os.ReadFile(f.Planes.Cluster("east").Kubeconfig())
	must.Succeed(t, err)
	f.says(0, "cluster add west"+ofWest, "created")
	f.says(0, "cluster check west", "ok API of Ats")
	for _, mend := range []string{"cluster rotate west", "cluster add west"} {
		f.put(text, "")
		f.says(1, "cluster check west", "WRONG kubeconfig AnotherCluster: its credentials lead to a cluster whose namespace",
			"tenure cluster add west --kubeconfig FILE puts those of the right cluster there")
		f.says(1, "cluster list", "AnotherCluster")
		f.says(1, "status", "cluster west: AnotherCluster: its credentials lead to")
		f.says(0, mend+ofWest, "so replicas now reach the cluster at the address of --kubeconfig")
		f.await("west is well after "+mend, func() bool { _, code := f.ask("cluster", "check", "west"); return code == 0 })
	}
	f.says(0, "cluster add east"+ofEast, "created")
	second := &corev1.Secret{Data: map[string][]byte{kubeconfig.Key: text}}
	second.Namespace, second.Name, second.Labels = namespace, "east2", map[string]string{kubeconfig.Label: "true"}
	f.create(f.home, second)
	f.says(1, "status", "cluster east2: ClusterHasTwoNames: its credentials lead to the cluster that is served as east,")
	f.says(1, "cluster check east2", "served as east,", "tenure cluster remove takes the wrong one of the two away")
	viewer := f.account("viewer", "tenure-viewer", "leases.coordination.k8s.io")
	f.await("a viewer learns of the second name", func() bool {
		out, code := f.askAs(viewer, "status")
		return code == 1 && strings.Contains(flatten(out), "east2 is cluster east under another name")
	})
	f.says(0, "cluster remove east2", "Secret tenure-system/east2")
	f.says(0, "status", "healthy")

	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("ats." + cnatv1alpha1.GroupVersion.Group)
	must.Succeed(t, f.Client("east").Delete(t.Context(), crd))
	cant := func() bool {
		out, code := f.ask("status")
		return code == 1 && strings.Contains(flatten(out),
			"8 shards of cluster east held by replicas that can't serve or watch it: r0-")
	}
	f.await("the replica says that it can't keep its caches of east up to date", cant)
	f.says(0, "cluster add east"+ofEast, "1 created", "8 of 8 held by")
	f.says(0, "status", "healthy")
	lines, err := f.replicas["r0"].Log.Lines()
	must.Succeed(t, err)
	const line = "shard can't see what changes; will try again"
	if !slices.ContainsFunc(lines, func(l lab.Line) bool { return l.Msg == line }) {
		t.Errorf("the log doesn't say: %s", line)
	}

	for _, name := range []string{"tenure-ats-watch", "tenure-ats-run"} {
		binding := &rbacv1.ClusterRoleBinding{}
		binding.Name = name
		must.Succeed(t, f.Client("east").Delete(t.Context(), binding))
	}
	f.leave("r0")
	f.start("r0", "--cluster-removal-grace=1s")
	f.await("the replica says that it can't fill its caches of east", cant)
	f.says(1, "cluster list", "not served")
	f.says(0, "cluster add east"+ofEast, "2 created", "8 of 8 held by")
	f.says(0, "status", "healthy")
}
