package sharding

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/witness"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// Under the CRD of the previous version a layout would lose the fields that make it one, and records of later
// generations would look like those of the first. So a new replica waits and doesn't join, and the old ones go on.
func TestAReplicaWaitsForTheCRDThatItNeeds(t *testing.T) {
	r := newRig(t)
	home := r.Client(lab.Home)
	crd := func() *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
			Kind: "CustomResourceDefinition"})
		must.Succeed(t, home.Get(t.Context(), client.ObjectKey{Name: "shards.tenure.dev"}, u))
		return u
	}
	replace := func(versions any) {
		t.Helper()
		u := crd()
		u.Object["spec"].(map[string]any)["versions"] = versions
		must.Succeed(t, home.Update(t.Context(), u))
	}
	current, before := crd(), crd()
	version := before.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	openAPI := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	spec := openAPI["properties"].(map[string]any)["spec"].(map[string]any)
	for _, field := range []string{"layout", "generation"} {
		delete(spec["properties"].(map[string]any), field)
	}
	for _, rules := range []map[string]any{openAPI, spec} {
		delete(rules, "x-kubernetes-validations")
	}
	restored := false
	restore := func() {
		if !restored {
			restored = true
			replace(current.Object["spec"].(map[string]any)["versions"])
		}
	}
	t.Cleanup(restore)
	replace([]any{version})
	r.eventually("the API server knows no layouts", func() error {
		probe := r.record("probe.layout")
		probe.Spec = tenurev1alpha1.ShardSpec{Cluster: "probe",
			Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}}}
		if err := home.Create(t.Context(), probe, client.DryRunAll,
			client.FieldValidation("Strict")); !apierrors.IsBadRequest(err) {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	a := r.start("outside-a")
	r.eventually("the replica says why it doesn't take part", func() error {
		n, err := a.Log.Count(func(l lab.Line) bool {
			return strings.Contains(l.Text, "not taking part yet") && strings.Contains(l.Text, "apply config/crd")
		})
		if n == 0 {
			return fmt.Errorf("no line tells (%v)", err)
		}
		return nil
	})
	if shards, err := r.holding(a.Name); err != nil || shards > 0 {
		t.Errorf("it holds %d shards (%v)", shards, err)
	}
	restore()
	r.settle()
	r.serves()
}

// TestAFleetIsUpgradedAndRolledBackUnderLoad replaces replicas that speak the protocol's previous version by those
// of this one, and then goes back. It does so one at a time, and as a Deployment does, which starts a new one
// first. The planes are its own, so that the older version makes the cluster's first records.
func TestAFleetIsUpgradedAndRolledBackUnderLoad(t *testing.T) {
	const every, ahead = 100 * time.Millisecond, time.Second // which a slow machine serves, too
	before, err := lab.Build(t.Context(), t.TempDir(), lab.Before, false)
	must.Succeed(t, err)
	if _, err := os.Stat(before); err != nil {
		t.Skip("make before built no replica of the version before: it takes git and a whole clone (git fetch --unshallow)")
	}
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west", "east"}, Lean: true,
		LeaseDuration: 10 * time.Second, ShardsPerCluster: shardsOfCluster, // a busy machine alone makes nobody lapse
		Flags: []string{fmt.Sprint("--shards-per-cluster=", shardsOfCluster)},
	})
	var made []witness.At
	r := newRigOn(t, f, &made)
	older := func(name string) *lab.Replica {
		t.Helper()
		replica, err := f.StartReplicaOf(before, name)
		must.Succeed(t, err)
		return replica
	}
	newer := func(name string) *lab.Replica { t.Helper(); return r.start(name, "--objects-per-shard=0") }

	fleet := []*lab.Replica{older("before-1"), older("before-2"), older("before-3")}
	r.settle()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { // only this goroutine uses r.made until it has stopped
		for pause := every; ; {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(pause):
			}
			asked := time.Now()
			if _, err := r.createAt(f.Workloads()[len(made)%2], ahead); err != nil {
				stopped <- err
				return
			}
			took := time.Since(asked)
			pause = max(every-took, 4*took) // a machine that can't keep up isn't given more and more to do
		}
	}()
	replace := func(start func(string) *lab.Replica, name, protocol string) {
		t.Helper()
		for i, leaves := range fleet {
			fleet[i] = start(fmt.Sprint(name, "-", i+1))
			r.serving(append(fleet, leaves)...)
			must.Succeed(t, leaves.Leave(t.Context(), patience))
			r.serving(fleet...)
		}
		r.speaks(protocol)
	}
	r.serving(fleet...)
	r.speaks("2")
	replace(newer, "this", "3")
	r.eventually("the clusters have layouts", func() error {
		for _, cluster := range f.Workloads() {
			if err := f.Client(lab.Home).Get(t.Context(), client.ObjectKeyFromObject(r.record(cluster+".layout")),
				r.record("")); err != nil {
				return err
			}
		}
		return nil
	})
	replace(older, "again", "2")
	close(stop)
	must.Succeed(t, <-stopped)
	r.eventually("all Ats are done", func() error { return r.unfinished() })
	labtest.Leave(t, fleet...)

	report, err := judge(f, witness.Facts{Ats: made})
	must.Succeed(t, err)
	t.Logf("%d Ats, the latest %v ms late; moves %+v", len(made), report.Ats.Lateness.Max, report.Moves.Kinds)
	// What was cut short, by a lapse or by a cluster that was silent for seconds, may have made a Pod: no log tells.
	if s := report.Ats; s.Done != len(made) || s.Pods > len(made) || s.Pods+report.Writes.Unknown < len(made) ||
		s.PodsRemade > 0 {
		t.Errorf("of %d Ats %d are done, with %d Pods, %d of them made again", len(made), s.Done, s.Pods, s.PodsRemade)
	}
}

// serving waits until the shards have come to rest, and each of the replicas has reconciled an At after that.
func (r *rig) serving(replicas ...*lab.Replica) {
	r.t.Helper()
	labtest.Settle(r.t, r.Fleet, 2*patience)
	reconciled := func(replica *lab.Replica) float64 {
		m, err := replica.Metrics(r.t.Context())
		must.Succeed(r.t, err)
		_, n := m.Count("controller_runtime_reconcile_total", map[string]string{"controller": "at"})
		return n
	}
	before := map[*lab.Replica]float64{}
	for _, replica := range replicas {
		before[replica] = reconciled(replica)
	}
	r.eventually("each replica reconciles an At", func() error {
		for _, replica := range replicas {
			if n := reconciled(replica); n == before[replica] {
				return fmt.Errorf("%s hasn't since it had reconciled %v times", replica.Name, n)
			}
		}
		return nil
	})
}

// speaks waits until there are three members, whose Leases all have this version of the protocol. There may be another
// one for a moment: that of a replica that has lapsed, or has just left.
func (r *rig) speaks(protocol string) {
	r.t.Helper()
	r.eventually("three members speak version "+protocol+" of the protocol", func() error {
		leases := &coordinationv1.LeaseList{}
		if err := r.Client(lab.Home).List(r.t.Context(), leases, client.InNamespace(lab.Namespace),
			client.MatchingLabels{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember}); err != nil {
			return err
		}
		right, members := 0, map[string]string{}
		for _, l := range leases.Items {
			if l.Annotations[tenurev1alpha1.SealedAnnotation] != "" {
				continue
			}
			if members[l.Name] = l.Annotations[tenurev1alpha1.ProtocolAnnotation]; members[l.Name] == protocol {
				right++
			}
		}
		if right != 3 || len(members) != 3 {
			return fmt.Errorf("they are %v", members)
		}
		return nil
	})
}

// holding is how many shards a replica holds.
func (r *rig) holding(replica string) (n int, err error) {
	shards, err := r.Shards(r.t.Context())
	for i := range shards {
		if lab.ReplicaOf(shards[i].Status.Holder) == replica {
			n++
		}
	}
	return n, err
}
