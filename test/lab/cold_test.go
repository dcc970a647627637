package lab_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	coldClusters = flag.Int("cold-clusters", 2, "how many virtual `clusters` a fleet starts with that has served them "+
		"before")
	coldShards = flag.Int("cold-shards", 16, "`shards` of each: a power of two, 256 at most")
	coldLease  = flag.Duration("cold-lease", 5*time.Second, "the replicas' lease `duration`")
	coldWithin = flag.Duration("cold-within", 2*labtest.Patience,
		"how long three replicas may take until they serve all: 20s for 1,000 records, 120s for 8,000")
)

// TestThreeReplicasThatStartTogetherServeAllRecords starts three replicas where there are no records, and, when they
// have left, three others where there are.
func TestThreeReplicasThatStartTogetherServeAllRecords(t *testing.T) {
	f := labtest.Fleet(t, lab.Options{
		Workloads: []string{"host"}, Untold: true, Bare: true, Direct: true, ShardsPerCluster: *coldShards,
		LeaseDuration: *coldLease, Tenure: labtest.Tenure(t),
	})
	for i := range *coldClusters {
		_, err := f.AddVirtual(t.Context(), "host", fmt.Sprintf("c%02d", i))
		must.Succeed(t, err)
	}
	for _, when := range []string{"first", "again"} {
		began := time.Now()
		var replicas []*lab.Replica
		for i := range 3 {
			replicas = append(replicas, labtest.Replica(t, f, fmt.Sprint(when, i)))
		}
		labtest.Within(t, *coldWithin, when, func() error { return f.Inactive(t.Context()) })
		t.Logf("%s: %d records are served %v after three replicas were started", when, *coldClusters**coldShards,
			time.Since(began).Round(100*time.Millisecond))
		for _, r := range replicas {
			r.Terminate()
		}
		for _, r := range replicas {
			if err := r.Wait(labtest.Patience); err != nil {
				t.Error(err)
			}
		}
	}
}
