package sharding

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

// A cluster is divided when it is first seen, into as few shards as its objects need, and stays as it is.
func TestANewClusterGetsAsManyShardsAsItsObjectsNeed(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"large", "empty"}, Bare: true, Direct: true, Lean: true,
		Flags: []string{"--objects-per-shard=10"},
	})
	const objects = 25
	fill(t, f.Client("large"), "before", objects)
	want := map[string]int{"large": 4, "empty": 1}
	divided := func() {
		t.Helper()
		labtest.Eventually(t, "the clusters are divided and served", func() error {
			shards, err := f.Shards(t.Context())
			if err != nil {
				return err
			}
			got := map[string]int{}
			for i := range shards {
				got[shards[i].Spec.Cluster]++
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("shards by cluster: %v, want %v", got, want)
			}
			return f.Unsettled(t.Context())
		})
	}
	first := labtest.Replica(t, f, "r1")
	divided()
	fill(t, f.Client("empty"), "after", objects)
	labtest.Replica(t, f, "r2")
	first.Kill() // the next coordinator doesn't count again
	divided()
}

func fill(t *testing.T, c client.Client, name string, n int) {
	t.Helper()
	for i := range n {
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: fmt.Sprint(name, "-", i)},
			Spec: cnatv1alpha1.AtSpec{Schedule: "2099-01-02T03:04:05Z", Command: "true"}}
		if err := c.Create(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
}
