package console

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// Credentials of one cluster in the Secret of another work well, and nobody means them.
func TestCredentialsOfAnotherClusterAreFoundAndReplaced(t *testing.T) {
	f := &fleet{t: t, replicas: map[string]*lab.Replica{}, tenure: labtest.Tenure(t)}
	f.Fleet = labtest.Fleet(t, lab.Options{
		Workloads: []string{"west", "east"}, Untold: true, Empty: true, Bare: true, Direct: true, Tenure: f.tenure,
		LeaseDuration: 10 * time.Second,
	})
	f.home, f.west = f.Client(lab.Home), f.Client("west")
	f.start("r0", "--cluster-removal-grace=1s")
	says := func(code int, line string, wants ...string) {
		t.Helper()
		out, got := f.ask(strings.Fields(line)...)
		flat := strings.Join(strings.Fields(out), " ") // lines are wrapped
		for _, want := range wants {
			if got != code || !strings.Contains(flat, want) {
				t.Fatalf("tenure %s: exit code %d, want %d and %q\n%s", line, got, code, want, out)
			}
		}
	}
	ofWest := " --kubeconfig " + f.Planes.Cluster("west").Kubeconfig()
	ofEast := " --kubeconfig " + f.Planes.Cluster("east").Kubeconfig()
	text, err := os.ReadFile(f.Planes.Cluster("east").Kubeconfig())
	must.Succeed(t, err)
	says(0, "cluster add west"+ofWest, "created")
	says(0, "cluster check west", "ok API of Ats")
	for _, mend := range []string{"cluster rotate west", "cluster add west"} {
		f.put(text, "")
		says(1, "cluster check west", "WRONG kubeconfig AnotherCluster: its credentials lead to a cluster whose namespace",
			"tenure cluster add west --kubeconfig FILE puts those of the right cluster there")
		says(1, "cluster list", "AnotherCluster")
		says(1, "status", "cluster west: AnotherCluster: its credentials lead to")
		says(0, mend+ofWest, "so replicas now reach the cluster at the address of --kubeconfig")
		f.await("west is well after "+mend, func() bool { _, code := f.ask("cluster", "check", "west"); return code == 0 })
	}
	says(0, "cluster add east"+ofEast, "created")
	second := &corev1.Secret{Data: map[string][]byte{kubeconfig.Key: text}}
	second.Namespace, second.Name, second.Labels = namespace, "east2", map[string]string{kubeconfig.Label: "true"}
	f.create(f.home, second)
	says(1, "status", "cluster east2: ClusterHasTwoNames: its credentials lead to the cluster that is served as east,")
	says(1, "cluster check east2", "served as east,", "tenure cluster remove takes the wrong one of the two away")
	viewer := f.account("viewer", "tenure-viewer", "leases.coordination.k8s.io")
	f.await("a viewer learns of the second name", func() bool {
		out, code := f.askAs(viewer, "status")
		flat := strings.Join(strings.Fields(out), " ")
		return code == 1 && strings.Contains(flat, "east2 is cluster east under another name")
	})
	says(0, "cluster remove east2", "Secret tenure-system/east2")
	says(0, "status", "healthy")

	for _, name := range []string{"tenure-ats-watch", "tenure-ats-run"} {
		binding := &rbacv1.ClusterRoleBinding{}
		binding.Name = name
		must.Succeed(t, f.Client("east").Delete(t.Context(), binding))
	}
	f.leave("r0")
	f.start("r0", "--cluster-removal-grace=1s")
	f.await("the replica says that it can't fill its caches of east", func() bool {
		out, code := f.ask("status")
		return code == 1 && strings.Contains(strings.Join(strings.Fields(out), " "),
			"8 shards of cluster east held by replicas that can't serve it: r0-")
	})
	says(1, "cluster list", "not served")
	says(0, "cluster add east"+ofEast, "2 created", "8 of 8 held by")
	says(0, "status", "healthy")
}
