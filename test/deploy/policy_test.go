package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/onboard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// everyVerb is what Kubernetes' own roles are made of. Only cluster admins have "*".
var everyVerb = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// attempt is a write that only replicas may make.
type attempt struct {
	name string
	// refusal is part of the message.
	refusal string
	try     func(ctx context.Context, c client.Client) error
}

const (
	notYourShard  = "Shards are written by the replicas of Tenure only (" + lab.AccountUser + "), not by mallory"
	notYourLease  = "are written by the replicas of Tenure only (" + lab.AccountUser + "), not by mallory"
	notYourStatus = "the status of Ats is written by the replicas of Tenure only (" + lab.AccountUser + "), not by mallory"
	notYourSlot   = "the label tenure.dev/slot is set, changed and removed by the replicas of Tenure only"
)

// TestOnlyReplicasWriteRecords makes a user whom RBAC allows everything try what the policies forbid. Each attempt
// is made with the policies and again without them: it must then succeed, which shows that nothing else forbade it.
func TestOnlyReplicasWriteRecords(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"west"}, Bare: true, Untold: true, Direct: true, Tenure: "none is started",
	})
	home, west := userOf(t, f, lab.Home, "mallory"), userOf(t, f, "west", "mallory")
	for _, plane := range []string{lab.Home, "west"} {
		mayDoEverything(t, f.Client(plane))
	}
	t.Run("home", func(t *testing.T) {
		fleet := userOf(t, f, lab.Home, lab.AccountUser)
		labtest.Eventually(t, "mallory's role is in force", func() error {
			return creating(leaseNamed("own", ""))(t.Context(), home)
		})
		schemas(t, fleet)
		create(t, fleet, shardNamed("held"), layoutNamed("held.layout"), leaseNamed("r1-abcde", tenurev1alpha1.RoleMember),
			leaseNamed("tenure-coordinator", tenurev1alpha1.RoleCoordinator))
		create(t, f.Client(lab.Home), clusterSecret("added", "0"), clusterSecret("by-hand", ""))
		forbidden(t, f.Client(lab.Home), home, append(shardAttempts(), leaseAttempts()...), func(t *testing.T) {
			allowed(t, home, homeAllowed())
			repairs(t, f, fleet)
			tokens(t, fleet)
			elsewhere(t, f)
		})
		for _, a := range secretAttempts() { // the policies are gone
			labtest.Eventually(t, a.name+" without policy", func() error { return a.try(t.Context(), fleet) })
		}
	})
	t.Run("west", func(t *testing.T) {
		fleet := userOf(t, f, "west", lab.AccountUser)
		create(t, f.Client("west"), serviceAccount(), atNamed("job"), podNamed("stranger", ""))
		create(t, fleet, podNamed("ours", "0a"))
		forbidden(t, f.Client("west"), west, workloadAttempts(), func(t *testing.T) {
			allowed(t, west, workloadAllowed())
			if err := writeEpoch(t.Context(), fleet, 3); err != nil {
				t.Errorf("a replica writes a status: %v", err)
			}
		})
	})
}

// forbidden makes attempts with and without policies; between does more while they hold.
func forbidden(t *testing.T, admin, c client.Client, attempts []attempt, between func(t *testing.T)) {
	for _, a := range attempts {
		// A policy takes effect a moment after it was made.
		labtest.Eventually(t, a.name+" is refused", func() error {
			err := a.try(t.Context(), client.NewDryRunClient(c))
			if err == nil || !strings.Contains(err.Error(), a.refusal) {
				return fmt.Errorf("%s: %w, want %q", a.name, orNone(err), a.refusal)
			}
			return nil
		})
		if err := a.try(t.Context(), c); err == nil || !strings.Contains(err.Error(), a.refusal) {
			t.Errorf("%s: %v, want %q", a.name, err, a.refusal)
		}
	}
	between(t)
	must.Succeed(t, admin.DeleteAllOf(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{}))
	for _, a := range attempts {
		labtest.Eventually(t, a.name+" without policy", func() error { return a.try(t.Context(), c) })
	}
}

func orNone(err error) error {
	if err == nil {
		return fmt.Errorf("no error")
	}
	return err
}

// allowed makes writes that the policies leave to everybody.
func allowed(t *testing.T, c client.Client, writes []attempt) {
	t.Helper()
	for _, w := range writes {
		if err := w.try(t.Context(), c); err != nil {
			t.Errorf("%s: %v, want it to pass", w.name, err)
		}
	}
}

// repairs makes the writes that the runbook tells a cluster admin to make, and those of Kubernetes itself to a
// namespace on its way out.
func repairs(t *testing.T, f *lab.Fleet, fleet client.Client) {
	t.Helper()
	create(t, fleet, shardNamed("to-repair"), shardNamed("to-empty"), leaseNamed("r9-abcde", tenurev1alpha1.RoleMember))
	floor := `{"metadata":{"annotations":{"tenure.dev/epoch-floor":"4811"}}}`
	if err := f.Client(lab.Home).Patch(t.Context(), leaseNamed("tenure-coordinator", ""), merge(floor)); err != nil {
		t.Errorf("a cluster admin raises the floor: %v", err)
	}
	for _, obj := range []client.Object{shardNamed("to-repair"), leaseNamed("r9-abcde", "")} {
		if err := f.Client(lab.Home).Delete(t.Context(), obj); err != nil {
			t.Errorf("a cluster admin deletes: %v", err)
		}
	}
	emptier := userOf(t, f, lab.Home, "system:serviceaccount:kube-system:namespace-controller")
	if err := emptier.Delete(t.Context(), shardNamed("to-empty")); err != nil {
		t.Errorf("the namespace is emptied: %v", err)
	}
	collected(t, f, fleet)
}

// collected deletes records in the foreground. The garbage collector may remove its finalizer from them, and do no
// more.
func collected(t *testing.T, f *lab.Fleet, fleet client.Client) {
	t.Helper()
	create(t, fleet, shardNamed("to-collect"), leaseNamed("r8-abcde", tenurev1alpha1.RoleMember))
	admin, mallory := f.Client(lab.Home), userOf(t, f, lab.Home, "mallory")
	collector := userOf(t, f, lab.Home, "system:serviceaccount:kube-system:generic-garbage-collector")
	create(t, admin, everythingTo("system:serviceaccount:kube-system:generic-garbage-collector"))
	const off = `{"metadata":{"finalizers":null}}`
	for _, obj := range []client.Object{shardNamed("to-collect"), leaseNamed("r8-abcde", "")} {
		key := client.ObjectKeyFromObject(obj)
		err := admin.Delete(t.Context(), obj.DeepCopyObject().(client.Object),
			client.PropagationPolicy(metav1.DeletePropagationForeground))
		must.Succeed(t, err)
		if err := patching(obj, off)(t.Context(), mallory); err == nil || !strings.Contains(err.Error(), "mallory") {
			t.Errorf("somebody ends the deletion of %s: %v", key.Name, err)
		}
		more := `{"metadata":{"finalizers":null,"labels":{"tenure.dev/fleet":"blue"}}}`
		if err := patching(obj, more)(t.Context(), collector); err == nil || !strings.Contains(err.Error(), "collector") {
			t.Errorf("the garbage collector changes %s: %v", key.Name, err)
		}
		if err := patching(obj, off)(t.Context(), collector); err != nil {
			t.Errorf("the garbage collector ends the deletion of %s: %v", key.Name, err)
		}
		if err := admin.Get(t.Context(), key, obj); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", key.Name, orNone(err))
		}
	}
}

// tokens are what replicas may write of Secrets: a renewed token in one that tenure cluster add wrote.
func tokens(t *testing.T, fleet client.Client) {
	t.Helper()
	for _, a := range secretAttempts() {
		if err := a.try(t.Context(), fleet); err == nil || !strings.Contains(err.Error(), a.refusal) {
			t.Errorf("a replica writes %s: %v, want %q", a.name, err, a.refusal)
		}
	}
	allowed(t, fleet, []attempt{{name: "a renewed token", try: patching(clusterSecret("added", ""),
		`{"metadata":{"annotations":{"tenure.dev/kubeconfig-sha256":"1"}},"data":{"kubeconfig":"Yg=="}}`)}})
}

func secretAttempts() []attempt {
	const refusal = "change nothing but the kubeconfig in those that tenure cluster add wrote"
	added, byHand := clusterSecret("added", ""), clusterSecret("by-hand", "")
	return []attempt{
		{"somebody's kubeconfig", refusal, patching(byHand, `{"data":{"kubeconfig":"Yg=="}}`)},
		{"somebody's kubeconfig, and that it is its own", refusal, annotating(byHand, onboard.SumAnnotation, "1")},
		{"another key", refusal, patching(added, `{"data":{"kubeconfig":"Yw==","x":"Yg=="}}`)},
		{"another annotation", refusal, annotating(added, kubeconfig.UIDAnnotation, "other")},
		{"a new annotation", refusal, annotating(added, "x", "y")},
		{"an empty annotation for another", refusal, patching(added,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:null,"x":""}}}`, kubeconfig.UIDAnnotation))},
		{"another label", refusal, labelling(added, "x", "y")},
		{"a finalizer", refusal, patching(added, `{"metadata":{"finalizers":["x.example/stay"]}}`)},
		{"that it stays as it is", refusal, patching(added, `{"immutable":true}`)},
	}
}

// clusterSecret is that of a cluster. With a sum it is like one that tenure cluster add wrote.
func clusterSecret(name, sum string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name,
			Labels: map[string]string{lab.ClusterLabel: "true"}},
		Data: map[string][]byte{"kubeconfig": []byte("a")},
	}
	if sum != "" {
		s.Annotations = map[string]string{onboard.SumAnnotation: sum, kubeconfig.UIDAnnotation: "u"}
	}
	return s
}

// elsewhere makes replicas run under a second name, as config/policy says.
func elsewhere(t *testing.T, f *lab.Fleet) {
	t.Helper()
	create(t, f.Client(lab.Home), everythingTo("replica@elsewhere"))
	c := userOf(t, f, lab.Home, "replica@elsewhere")
	remote := leaseNamed("r7-abcde", tenurev1alpha1.RoleMember)
	if err := creating(remote)(t.Context(), c); err == nil {
		t.Error("somebody whom the policies don't name wrote a Lease")
	}
	labtest.Kubectl(t, f.Planes.Cluster(lab.Home), "apply", "-k", "testdata/identity")
	labtest.Eventually(t, "a replica of another name writes", func() error { return creating(remote)(t.Context(), c) })
}

func shardAttempts() []attempt {
	held, layout := shardNamed("held"), shardNamed("held.layout")
	return []attempt{
		{"a Shard made by hand", notYourShard, creating(shardNamed("forged"))},
		{"a layout made by hand", notYourShard, creating(layoutNamed("forged.layout"))},
		{"another layout", notYourShard, patching(layout, `{"spec":{"layout":{"generation":2,"prefixes":[""]}}}`)},
		{"another assignee", notYourShard, patching(held, `{"spec":{"assignee":"mallory"}}`)},
		{"another holder", notYourShard, patchingStatus(held, `{"status":{"holder":"mallory","epoch":9}}`)},
		{"other figures", notYourShard, patchingStatus(held, `{"status":{"objects":9}}`)},
		{"the floor of a Shard", notYourShard, annotating(held, "tenure.dev/epoch-floor", "9999999")},
		{"another fleet", notYourShard, labelling(held, tenurev1alpha1.FleetLabel, "blue")},
		{"any annotation", notYourShard, annotating(held, "mallory.example/a", strings.Repeat("a", 200_000))},
		{"any label", notYourShard, labelling(held, "mallory.example/a", "b")},
		{"a pin that no replica's name is", notYourShard, annotating(held, "tenure.dev/pin", strings.Repeat("a", 254))},
		{"a finalizer that stays", notYourShard, patching(held, `{"metadata":{"finalizers":["mallory.example/stay"]}}`)},
		{"an owner that is gone", notYourShard, patching(held,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`)},
		{"all Shards away", notYourShard, func(ctx context.Context, c client.Client) error {
			return c.DeleteAllOf(ctx, &tenurev1alpha1.Shard{}, client.InNamespace(lab.Namespace))
		}},
	}
}

func leaseAttempts() []attempt {
	member, lead, own := leaseNamed("r1-abcde", ""), leaseNamed("tenure-coordinator", ""), leaseNamed("own", "")
	return []attempt{
		{"a member made by hand", notYourLease, creating(leaseNamed("mallory-abcde", tenurev1alpha1.RoleMember))},
		{"a second coordinator", notYourLease, creating(leaseNamed("any", tenurev1alpha1.RoleCoordinator))},
		{"a member of another fleet", notYourLease, func(ctx context.Context, c client.Client) error {
			lease := leaseNamed("blue-abcde", "")
			lease.Labels = map[string]string{tenurev1alpha1.FleetLabel: "blue"}
			return c.Create(ctx, lease)
		}},
		{"the coordinator of another fleet", notYourLease, creating(leaseNamed("tenure-coordinator.blue", ""))},
		{"the seat of the leader", notYourLease, creating(leaseNamed("tenure-leader", ""))},
		{"a dead member kept alive", notYourLease, annotating(member, "tenure.dev/renewal", "999")},
		{"a dead member kept alive by another field manager", notYourLease, applying(member, "mallory")},
		{"a dead member kept alive by the prefix of its name", notYourLease, patching(member, `{"metadata":{"generateName":"m"}}`)},
		{"a live member sealed", notYourLease, annotating(member, "tenure.dev/sealed-by", "mallory")},
		{"the floor", notYourLease, annotating(lead, "tenure.dev/epoch-floor", "9223372036854775807")},
		{"the coordinator's label off", notYourLease, patching(lead, `{"metadata":{"labels":{"tenure.dev/role":null}}}`)},
		{"an own Lease among the members", notYourLease, labelling(own, "tenure.dev/role", "member")},
		{"the coordinator's Lease away", notYourLease, deleting(leaseNamed("tenure-coordinator", ""))},
		{"all Leases away", notYourLease, func(ctx context.Context, c client.Client) error {
			ours := client.HasLabels{tenurev1alpha1.RoleLabel}
			return c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(lab.Namespace), ours)
		}},
	}
}

func homeAllowed() []attempt {
	held, other := shardNamed("held"), leaseNamed("mine", "")
	return []attempt{
		{name: "a pin", try: annotating(held, "tenure.dev/pin", "r2")},
		{name: "no pin", try: patching(held, `{"metadata":{"annotations":{"tenure.dev/pin":null}}}`)},
		{name: "a Lease of another program", try: creating(other)},
		{name: "its renewal", try: patching(leaseNamed("mine", ""), `{"spec":{"holderIdentity":"mallory"}}`)},
		{name: "its end", try: deleting(leaseNamed("mine", ""))},
		{name: "a member's Lease as it is", try: func(ctx context.Context, c client.Client) error {
			lease := leaseNamed("r1-abcde", "")
			if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
				return err
			}
			return c.Update(ctx, lease)
		}},
	}
}

func workloadAttempts() []attempt {
	ours, stranger := podNamed("ours", ""), podNamed("stranger", "")
	return []attempt{
		{"an At's status", notYourStatus, func(ctx context.Context, c client.Client) error { return writeEpoch(ctx, c, 4) }},
		{"a Pod in a slot", notYourSlot, creating(podNamed("forged", "00"))},
		{"a slot for a Pod", notYourSlot, labelling(stranger, "tenure.dev/slot", "00")},
		{"another slot", notYourSlot, labelling(ours, "tenure.dev/slot", "ff")},
		{"another slot by way of the status", notYourSlot, patchingStatus(ours,
			`{"metadata":{"labels":{"tenure.dev/slot":"fe"}}}`)},
		{"no slot", notYourSlot, patching(ours, `{"metadata":{"labels":{"tenure.dev/slot":null}}}`)},
		{"a Deployment in a slot", notYourSlot, func(ctx context.Context, c client.Client) error {
			labels := map[string]string{"app": "x"}
			slot := map[string]string{"tenure.dev/slot": "00"}
			return c.Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forged", Labels: slot},
				Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podNamed("x", "").Spec,
				}},
			})
		}},
		{"a slot by way of a binding", notYourSlot, func(ctx context.Context, c client.Client) error {
			to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
			to.Labels = map[string]string{"tenure.dev/slot": "fd"}
			return c.SubResource("binding").Create(ctx, podNamed("stranger", ""), to)
		}},
	}
}

func workloadAllowed() []attempt {
	ours := podNamed("ours", "")
	return []attempt{
		{name: "another label of a Pod of ours", try: labelling(ours, "team", "x")},
		{name: "a status as a kubelet writes it", try: patchingStatus(ours, `{"status":{"phase":"Running"}}`)},
		{name: "an At", try: creating(atNamed("own"))},
		{name: "the end of a Pod of ours", try: func(ctx context.Context, c client.Client) error {
			return client.NewDryRunClient(c).Delete(ctx, podNamed("ours", ""))
		}},
	}
}

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

func creating(obj client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, obj.DeepCopyObject().(client.Object))
	}
}

func deleting(obj client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, obj) }
}

func patching(obj client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, obj.DeepCopyObject().(client.Object), merge(patch))
	}
}

func annotating(obj client.Object, key, value string) func(context.Context, client.Client) error {
	return patching(obj, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// applying applies a Lease as it is, by server-side apply as another field manager.
func applying(of *coordinationv1.Lease, manager string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		lease := &unstructured.Unstructured{}
		lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
		if err := c.Get(ctx, client.ObjectKeyFromObject(of), lease); err != nil {
			return err
		}
		lease.SetManagedFields(nil)
		lease.SetResourceVersion("")
		as := []client.ApplyOption{client.FieldOwner(manager), client.ForceOwnership}
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(lease), as...)
	}
}

func labelling(obj client.Object, key, value string) func(context.Context, client.Client) error {
	return patching(obj, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value))
}

func patchingStatus(obj client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Status().Patch(ctx, obj.DeepCopyObject().(client.Object), merge(patch))
	}
}

// writeEpoch updates the At's status, as replicas do: they may not patch it.
func writeEpoch(ctx context.Context, c client.Client, epoch int64) error {
	at := atNamed("job")
	if err := c.Get(ctx, client.ObjectKeyFromObject(at), at); err != nil {
		return err
	}
	at.Status.Epoch = epoch
	return c.Status().Update(ctx, at)
}

func shardNamed(name string) *tenurev1alpha1.Shard {
	return &tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name}, Spec: tenurev1alpha1.ShardSpec{Cluster: "west"},
	}
}

// layoutNamed divides a cluster in three, unevenly.
func layoutNamed(name string) *tenurev1alpha1.Shard {
	s := shardNamed(name)
	s.Spec.Layout = &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{"0", "10", "11"}}
	return s
}

// schemas has a replica write what the schema of the records refuses even to replicas: each change of a record is
// held against the one before. Replicas of version 1 know nothing of retirement, so it is the API server that keeps
// them from claiming a retired record.
func schemas(t *testing.T, fleet client.Client) {
	t.Helper()
	for _, prefixes := range [][]string{{}, {"0"}, {"0", "00", "1"}, {"0", "1", "1"}, {"0", "10", "10"},
		{"2"}, {"000000000"}} {
		layout := layoutNamed("bad.layout")
		layout.Spec.Layout.Prefixes = prefixes
		if err := fleet.Create(t.Context(), layout); err == nil || !strings.Contains(err.Error(), "spec.layout.prefixes") &&
			!strings.Contains(err.Error(), "prefixes must cover the hash space") {
			t.Errorf("a layout of %q: %v", prefixes, err)
		}
	}
	layout, shard := layoutNamed("odd.layout"), shardNamed("odd.p")
	many := layoutNamed("many.layout")
	many.Spec.Layout.Prefixes = nil
	for _, p := range keyspace.Partition(keyspace.MaxBits) {
		many.Spec.Layout.Prefixes = append(many.Spec.Layout.Prefixes, p.String())
	}
	create(t, fleet, layout, many, shard)
	for _, w := range []struct {
		name, refusal string
		try           func(context.Context, client.Client) error
	}{
		{"an edited layout", "a layout is immutable", patching(layout, `{"spec":{"layout":{"prefixes":[""]}}}`)},
		{"the cluster's UID", "", patching(layout, `{"spec":{"layout":{"clusterUID":"u1"}}}`)},
		{"another UID", "a layout is immutable", patching(layout, `{"spec":{"layout":{"clusterUID":"u2"}}}`)},
		{"a new layout", "", patching(layout, `{"spec":{"layout":{"generation":2,"prefixes":[""],"clusterUID":"u2"}}}`)},
		{"the old one", "a layout is immutable", patching(layout, `{"spec":{"layout":{"generation":1}}}`)},
		{"no layout", "a shard can't become a layout", patching(layout, `{"spec":{"layout":null}}`)},
		{"a shard as a layout", "a shard can't become a layout",
			patching(shard, `{"spec":{"layout":{"generation":1,"prefixes":[""]}}}`)},
		{"another generation of a shard", "generation is immutable", patching(shard, `{"spec":{"generation":2}}`)},
		{"another part of the cluster", "prefix is immutable", patching(shard, `{"spec":{"prefix":"1"}}`)},
		{"a holder", "", patchingStatus(shard, `{"status":{"holder":"a","phase":"Held","epoch":5}}`)},
		{"an epoch before", "epoch never falls", patchingStatus(shard, `{"status":{"epoch":4}}`)},
		{"no epoch", "epoch never falls", patchingStatus(shard, `{"status":{"epoch":null}}`)},
		{"an epoch that leaves none to come", "status.epoch",
			patchingStatus(shard, `{"status":{"epoch":9223372036854775807}}`)},
		{"the next holder", "", patchingStatus(shard, `{"status":{"holder":"b","epoch":6}}`)},
		{"retiring", "", patchingStatus(shard, `{"status":{"holder":"","phase":"Retired"}}`)},
		{"a holder again", "never held again",
			patchingStatus(shard, `{"status":{"holder":"a","phase":"Held","epoch":7,"warm":""}}`)},
		{"a holder beside", "never held again", patchingStatus(shard, `{"status":{"holder":"a"}}`)},
		{"a holder without phase", "never held again", patchingStatus(shard, `{"status":{"holder":"a","phase":null}}`)},
		{"one that is warm", "never held again", patchingStatus(shard, `{"status":{"warm":"a","phase":"Pending"}}`)},
		{"life again", "never held again", patchingStatus(shard, `{"status":null}`)},
	} {
		err := w.try(t.Context(), fleet)
		if w.refusal == "" && err != nil || w.refusal != "" && (err == nil || !strings.Contains(err.Error(), w.refusal)) {
			t.Errorf("%s: %v, want %q", w.name, err, w.refusal)
		}
	}
}

func leaseNamed(name, role string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name}}
	lease.Spec.HolderIdentity = new(name)
	if role != "" {
		lease.Labels = map[string]string{tenurev1alpha1.RoleLabel: role}
	}
	return lease
}

func podNamed(name, slot string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "busybox"}}
	if slot != "" {
		pod.Labels = map[string]string{"tenure.dev/slot": slot}
	}
	return pod
}

func atNamed(name string) *cnatv1alpha1.At {
	return &cnatv1alpha1.At{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       cnatv1alpha1.AtSpec{Schedule: "2030-01-01T00:00:00Z", Command: "ls"},
	}
}

func serviceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatalf("%T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// userOf is a client of a user without groups; service accounts are users, too.
func userOf(t *testing.T, f *lab.Fleet, plane, user string) client.Client {
	t.Helper()
	path, err := f.Planes.Cluster(plane).UserKubeconfig(user)
	must.Succeed(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must.Succeed(t, err)
	c, err := client.New(config, client.Options{Scheme: lab.Scheme()})
	must.Succeed(t, err)
	return c
}

func mayDoEverything(t *testing.T, admin client.Client) {
	t.Helper()
	create(t, admin,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everything"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: everyVerb},
		}},
		everythingTo("mallory"))
}

func everythingTo(user string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "everything-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everything"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}
