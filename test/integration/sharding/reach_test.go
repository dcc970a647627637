package sharding

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/faultproxy"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// TestWhoCannotReachAClusterGivesItsShardsToThoseWhoCan first cuts all replicas off one of two clusters: then
// nothing may move. Then it cuts off one of them: then its shards of that cluster must be served elsewhere.
func TestWhoCannotReachAClusterGivesItsShardsToThoseWhoCan(t *testing.T) {
	r := newRig(t)
	const long = 15 * time.Second // a busy machine alone makes nobody lapse
	names := []string{"w1", "w2", "w3"}
	var pids []int
	for _, name := range names {
		pids = append(pids, r.start(name, "--lease-duration="+long.String()).PID())
	}
	r.settle()
	before := r.holders()

	// The API server is away for all, and each finds that out in its own time. What is before it may say so, or answer
	// everything with a page to log in at.
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusOK} {
		away := r.Proxy("west").Inject(faultproxy.Rule{Match: faultproxy.Match{Processes: pids}, Fault: faultproxy.Answer,
			Status: status})
		r.eventually("all say that they can't serve west", func() error { return r.unfit("west", 3) })
		time.Sleep(6 * time.Second) // replicas' views must be unchanged for 4.5 s before anything moves
		away.End()
		r.eventually("all can serve west again", func() error { return r.unfit("west", 0) })
		if now := r.holders(); !maps.Equal(before, now) {
			t.Errorf("an API server that was away for all made shards move:\n%v\n%v", before, now)
		}
	}

	// Now only one is cut off, and gets no answers at all. It must be one that holds shards of west; a replica may
	// have none.
	victim, held := "", map[string]int{}
	for name, now := range before {
		if strings.HasPrefix(name, "west/") {
			victim = now.replica
			held[victim]++
		}
	}
	cut := r.Proxy("west").Inject(faultproxy.Rule{Fault: faultproxy.Blackhole,
		Match: faultproxy.Match{Processes: []int{pids[slices.Index(names, victim)]}}})
	defer cut.End()
	began := time.Now()
	r.eventually("west is served by the others", func() error {
		for name, now := range r.holders() {
			if strings.HasPrefix(name, "west/") && now.replica == victim {
				return fmt.Errorf("%s is held by %s", name, victim)
			}
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("served elsewhere after %v", took)
	// chaos allows a lease duration and 5 s on a machine that does nothing else
	if most := long + 15*time.Second; took > most {
		t.Errorf("west is served elsewhere after %v, want at most %v", took, most)
	}
	r.serves()
	moved := 0
	for name, now := range r.holders() {
		if n := now.epoch - before[name].epoch; n > 1 {
			t.Errorf("%s moved %d times", name, n)
		} else if n == 1 && strings.HasPrefix(name, "west/") {
			moved++
		}
	}
	if moved < held[victim] {
		t.Errorf("%d shards of west moved, want at least the %d that %s held", moved, held[victim], victim)
	}
}

// TestAClusterThatTheCoordinatorNeverReachedIsServedByWhoReachesIt adds a cluster that the coordinator can't reach.
// The coordinator can't divide a cluster that it doesn't know, so its role goes to the other replica.
func TestAClusterThatTheCoordinatorNeverReachedIsServedByWhoReachesIt(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west", "east"}, Untold: true, Bare: true, LeaseDuration: 2 * lease, ShardsPerCluster: 2,
	})
	must.Succeed(t, f.AddCluster(t.Context(), "west", "west"))
	coordinator := labtest.Replica(t, f, "v1")
	awaitServed(t, f, "west", patience)
	other := labtest.Replica(t, f, "v2")
	leads := func(want string) {
		t.Helper()
		if got, err := f.Coordinator(t.Context()); err != nil || got != want {
			t.Errorf("the coordinator is %q, want %s: %v", got, want, err)
		}
	}
	leads("v1")
	_, err := f.ClusterKubeconfig(t.Context(), "east") // which starts the proxy
	must.Succeed(t, err)
	cut := f.Proxy("east").Inject(faultproxy.Rule{Fault: faultproxy.Blackhole,
		Match: faultproxy.Match{Processes: []int{coordinator.PID()}}})
	defer cut.End()
	must.Succeed(t, f.AddCluster(t.Context(), "east", "east"))
	began := time.Now()
	awaitServed(t, f, "east", patience)
	t.Logf("served after %v", time.Since(began).Round(100*time.Millisecond))
	leads("v2")
	cut.End()
	labtest.Leave(t, other, coordinator)
}

// unfit fails unless that many replicas say that they can't serve a cluster.
func (r *rig) unfit(cluster string, want int) error {
	leases, n := &coordinationv1.LeaseList{}, 0
	if err := r.Client(lab.Home).List(r.t.Context(), leases, client.InNamespace(lab.Namespace)); err != nil {
		return err
	}
	for _, l := range leases.Items {
		if plan.UnfitFor(l.Annotations[tenurev1alpha1.UnfitAnnotation]).Of(keyspace.ClusterName(cluster)) == plan.Unfit {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%d say so, want %d", n, want)
	}
	return nil
}
