package lab_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/rights"
	"github.com/tenure-dev/tenure/test/must"
)

var allLosses = flag.Bool("all-losses", false, "let home lose its objects in all ways")

// oneLoss is a way in which home loses what a fleet keeps there.
type oneLoss struct {
	name  string
	kinds []client.Object // all objects of them in the namespace
	// again applies the installation again a while later, as the runbook says; until then replicas have no rights.
	again bool
	dead  bool // all replicas are killed before, and started after it
}

// TestHomeThatLosesItsObjectsIsServedAgain lets home lose the fleet's objects. The service account stays: replicas
// would need other credentials.
func TestHomeThatLosesItsObjectsIsServedAgain(t *testing.T) {
	t.Setenv(rights.Variable, "") // its replicas lose all rights for a while, so what is refused says nothing
	const lease = 4 * time.Second
	leases, records := &coordinationv1.Lease{}, &tenurev1alpha1.Shard{}
	all := []client.Object{records, leases, &corev1.Secret{}, &rbacv1.RoleBinding{}, &rbacv1.Role{}, &corev1.ConfigMap{}}
	losses := []oneLoss{
		{name: "records and Leases", kinds: []client.Object{records, leases}},
		{name: "all that its namespace has", kinds: all, again: true},
		{name: "records and Leases, of replicas that are dead", kinds: []client.Object{records, leases}, dead: true},
	}
	if *allLosses {
		losses = append(losses, oneLoss{name: "Leases", kinds: []client.Object{leases}},
			oneLoss{name: "records", kinds: []client.Object{records}},
			oneLoss{name: "Leases, then records", kinds: []client.Object{leases, records}},
			oneLoss{name: "Leases, of replicas that are dead", kinds: []client.Object{leases}, dead: true},
			oneLoss{name: "records, of replicas that are dead", kinds: []client.Object{records}, dead: true},
			oneLoss{name: "all, of replicas that are dead", kinds: all, again: true, dead: true})
	}
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, LeaseDuration: lease})
	start := func() { labtest.Replicas(t, f, "r0", "r1", "r2") }
	start()
	labtest.Settle(t, f, 2*labtest.Patience)
	home, facts := f.Client(lab.Home), witness.Facts{}
	for round, loss := range losses {
		facts.Ats = append(facts.Ats, labtest.CreateAts(t, f.Client("west"), "west", fmt.Sprint("at-", round), 20,
			func(i int) time.Time { return time.Now().Add(time.Duration(i) * time.Second / 4) })...)
		if loss.dead {
			for _, r := range f.Alive() {
				r.Kill()
			}
		}
		for _, kind := range loss.kinds {
			must.Succeed(t, home.DeleteAllOf(t.Context(), kind, client.InNamespace(lab.Namespace)))
		}
		if loss.again {
			time.Sleep(3 * lease) // longer than a cluster whose Secret is gone is still served
			labtest.Kubectl(t, f.Planes.Cluster(lab.Home), "apply", "-k", "../../config/default")
			must.Succeed(t, f.AddCluster(t.Context(), "west", "west"))
		}
		began := time.Now()
		if loss.dead {
			start()
		}
		time.Sleep(lease / 2) // until then it may look settled
		labtest.Settle(t, f, 2*labtest.Patience)
		t.Logf("%s: settled after %v", loss.name, time.Since(began).Round(100*time.Millisecond))
		labtest.Done(t, f.Client("west"), len(facts.Ats), 2*labtest.Patience)
	}
	labtest.Leave(t, f.Alive()...)
	labtest.Judge(t, f, facts)
}
