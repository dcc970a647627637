package sharding

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

// Replicas of version 1 know nothing of retirement: it is the API server that keeps them from claiming such a record.
func TestARetiredRecordIsRefusedToReplicasThatKnowNoLayouts(t *testing.T) {
	r := newRig(t)
	home, record := r.Client(lab.Home), r.record("retired.p0")
	record.Spec = tenurev1alpha1.ShardSpec{Cluster: "retired", Prefix: "0"}
	if err := home.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = home.Delete(t.Context(), r.record("retired.p0")) })
	claim := client.RawPatch(types.MergePatchType, []byte(`{"status": {"holder": "old-1", "epoch": 7, "warm": "", "phase": "Held"}}`))
	patch := func(p client.Patch) error { return home.Status().Patch(t.Context(), record, p) }
	if err := patch(client.RawPatch(types.MergePatchType, []byte(`{"status": {"holder": "", "epoch": 6, "phase": "Retired"}}`))); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]client.Patch{
		"claim":   claim,
		"warm":    client.RawPatch(types.MergePatchType, []byte(`{"status": {"holder": "", "epoch": 6, "warm": "old-1", "phase": "Pending"}}`)),
		"silence": client.RawPatch(types.MergePatchType, []byte(`{"status": {"holder": "old-1", "phase": null}}`)),
	} {
		if err := patch(p); !apierrors.IsInvalid(err) {
			t.Errorf("%s: the API server says %v, want a refusal", name, err)
		}
	}
}

// Under the CRD of the version before, a layout would lose what makes it one, and records of later generations couldn't be
// told from the first. A new replica waits outside, and the old ones go on.
func TestAReplicaWaitsForTheCRDThatItNeeds(t *testing.T) {
	r := newRig(t)
	home := r.Client(lab.Home)
	crd := func() *unstructured.Unstructured {
		t.Helper()
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := home.Get(t.Context(), client.ObjectKey{Name: "shards.tenure.dev"}, u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	replace := func(versions any) {
		t.Helper()
		u := crd()
		u.Object["spec"].(map[string]any)["versions"] = versions
		if err := home.Update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
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
		probe.Spec = tenurev1alpha1.ShardSpec{Cluster: "probe", Layout: &tenurev1alpha1.ShardLayout{Generation: 1, Prefixes: []string{""}}}
		if err := home.Create(t.Context(), probe, client.DryRunAll, client.FieldValidation("Strict")); !apierrors.IsBadRequest(err) {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	a := r.start("outside-a")
	r.eventually("the replica says why it doesn't take part", func() error {
		lines, err := a.Log.Lines()
		for _, line := range lines {
			if strings.Contains(line.Text, "not taking part yet") && strings.Contains(line.Text, "apply config/crd") {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("none of %d lines tells", len(lines)))
	})
	if shards, err := r.holding(a.Name); err != nil || shards > 0 {
		t.Errorf("it holds %d shards (%v)", shards, err)
	}
	restore()
	r.settle()
	r.serves()
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
