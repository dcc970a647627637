package integration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/lab/localplane"
)

// A real API server holds each change of a shard's record against the one before.
func TestShardAPI(t *testing.T) {
	plane := labtest.Planes(t, localplane.ClusterConfig{Name: "home"}).Cluster("home")
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	out, err := plane.Kubectl(t.Context(), "", "apply", "--validate=strict", "-k", filepath.Join(root, "config", "crd"))
	if err != nil {
		t.Fatalf("installing the kinds: %v\n%s", err, out)
	}
	c := labtest.Client(t, plane)
	shard := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "west.p0"},
		Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: "0"}}
	err = lab.Eventually(t.Context(), 30*time.Second, func() error { return c.Create(t.Context(), shard.DeepCopy()) })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, patch string
		spec        bool
		// refused is part of the message; empty: the step succeeds.
		refused string
	}{
		{name: "a claim", patch: `{"status":{"holder":"r1","epoch":5,"phase":"Held"}}`},
		{name: "the epoch doesn't fall", patch: `{"status":{"epoch":4}}`, refused: "epoch never falls"},
		{name: "nor is it removed", patch: `{"status":{"epoch":null}}`, refused: "epoch never falls"},
		{name: "an epoch that leaves none to come", patch: `{"status":{"epoch":9223372036854775807}}`,
			refused: "status.epoch"},
		{name: "the next claim", patch: `{"status":{"holder":"r2","epoch":6}}`},
		{name: "another part of the cluster", spec: true, patch: `{"spec":{"prefix":"1"}}`, refused: "prefix is immutable"},
		{name: "a layout", spec: true, patch: `{"spec":{"layout":{"generation":1,"prefixes":[""]}}}`,
			refused: "a shard can't become a layout"},
		{name: "it is retired", patch: `{"status":{"holder":"","phase":"Retired"}}`},
		{name: "and stays so", patch: `{"status":{"holder":"r1","epoch":7,"phase":"Held"}}`,
			refused: "a retired record is never held again"},
	} {
		current, patch := shard.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(step.patch))
		if step.spec {
			err = c.Patch(t.Context(), current, patch)
		} else {
			err = c.Status().Patch(t.Context(), current, patch)
		}
		switch {
		case step.refused == "" && err != nil:
			t.Fatalf("%s: %v", step.name, err)
		case step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)):
			t.Fatalf("%s: %v, want a refusal that says %q", step.name, err, step.refused)
		}
	}
}
