package sharding

import (
	"fmt"
	"testing"
	"time"

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
	tomorrow := func(int) time.Time { return time.Now().Add(24 * time.Hour) }
	labtest.CreateAts(t, f.Client("large"), "large", "before", objects, tomorrow)
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
	labtest.CreateAts(t, f.Client("empty"), "empty", "after", objects, tomorrow)
	labtest.Replica(t, f, "r2")
	first.Kill() // the next coordinator doesn't count again
	divided()
}
