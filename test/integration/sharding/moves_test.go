package sharding

import (
	"fmt"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/protocol"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/must"
)

// moved lists the shards that changed hands between two looks, by their holder before.
func moved(before, after map[string]tenure) map[string][]string {
	m := map[string][]string{}
	for shard, was := range before {
		if after[shard] != was {
			m[was.replica] = append(m[was.replica], shard)
		}
	}
	return m
}

// seasoned waits until no Lease of these replicas says that it has just begun.
func (r *rig) seasoned(names ...string) {
	r.eventually("nobody has just begun", func() error {
		leases := &coordinationv1.LeaseList{}
		if err := r.Client(lab.Home).List(r.t.Context(), leases, client.InNamespace(lab.Namespace)); err != nil {
			return err
		}
		for _, l := range leases.Items {
			if slices.Contains(names, l.Labels[tenurev1alpha1.ReplicaLabel]) &&
				l.Annotations[tenurev1alpha1.FreshAnnotation] != "" {
				return fmt.Errorf("%s has", l.Name)
			}
		}
		return nil
	})
}

func TestAJoinMovesWhatBalanceNeedsAndACrashWhatTheDeadHeld(t *testing.T) {
	r := newRig(t)
	const flag = "--lease-duration=10s" // a busy machine alone makes nobody lapse
	r.start("b1", flag)
	r.start("b2", flag)
	r.settle()
	two := r.holders()
	r.serves()
	third := r.start("b3", flag)
	r.settle()
	three := r.holders()
	n := 0
	for from, shards := range moved(two, three) {
		n += len(shards)
		for _, s := range shards {
			if three[s] != (tenure{"b3", two[s].epoch + 1}) {
				t.Errorf("%s moved from %s to %v", s, from, three[s])
			}
		}
	}
	if want := 2 * shardsOfCluster / 3; n != want {
		t.Errorf("a third replica made %d of %d shards move, want %d", n, 2*shardsOfCluster, want)
	}
	r.seasoned("b1", "b2") // what others held isn't left to a replica that has just begun
	third.Kill()
	r.settle()
	r.serves()
	for from, shards := range moved(three, r.holders()) {
		if from != "b3" {
			t.Errorf("b3 was killed, and %v of %s moved", shards, from)
		}
	}
	moves := map[string]int{}
	shards, err := r.Shards(t.Context())
	must.Succeed(t, err)
	for _, s := range shards {
		moves[s.Status.LastMove.Kind]++
	}
	if want := len(moved(three, r.holders())); want != 1 || moves[string(protocol.Crash)] != n {
		t.Errorf("last moves are %v, want %d for a crash, all from b3", moves, n)
	}
}

func TestACleanExitOfAllLeavesNothingHeldAndTheNextFleetClaimsIt(t *testing.T) {
	r := newRig(t)
	const flag = "--lease-duration=10s" // a busy machine alone makes nobody lapse
	replicas := []*lab.Replica{r.start("h1", flag), r.start("h2", flag), r.start("h3", flag)}
	r.settle()
	r.serves()
	for _, replica := range replicas {
		replica.Terminate()
	}
	for _, replica := range replicas {
		if err := replica.Wait(patience); err != nil {
			t.Error(err)
		}
	}
	free := r.holders()
	for name, now := range free {
		if now.replica != "" {
			t.Errorf("all have left, and %s holds %s", now.replica, name)
		}
	}
	members, err := r.Members(t.Context())
	if err != nil || len(members) != 0 {
		t.Errorf("all have left, and there are Leases of %v (%v)", members, err)
	}
	r.start("i2", flag)
	r.settle()
	r.serves()
	for name, now := range r.holders() {
		if now.replica != "i2" || now.epoch <= free[name].epoch {
			t.Errorf("%s: %v after %v", name, now, free[name])
		}
	}
	if got, err := r.Coordinator(t.Context()); err != nil || got != "i2" {
		t.Errorf("%q coordinates, want the only one there is: %v", got, err)
	}
}
