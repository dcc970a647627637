package lab_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/witness"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// oneRestore is a way to restore home.
type oneRestore struct {
	name   string
	bump   uint64
	layout bool // the cluster's layout changes between the snapshot and the restore
}

const manyRevisions = 1_000_000_000

func TestHomeThatIsRestoredUnderLiveReplicasIsServedAgain(t *testing.T) {
	const lease = 4 * time.Second
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, LeaseDuration: lease})
	labtest.Replicas(t, f, "r0", "r1", "r2")
	labtest.Settle(t, f, labtest.Patience)
	home := f.Planes.Cluster(lab.Home)
	var facts witness.Facts
	for round, way := range []oneRestore{{name: "as it was"}, {name: "with its revision bumped", bump: manyRevisions},
		{name: "with an older layout", layout: true}} {
		snapshot := filepath.Join(t.TempDir(), "home.db")
		must.Succeed(t, home.Snapshot(t.Context(), snapshot))
		late := labtest.Replica(t, f, fmt.Sprint("late", round)) // the restore forgets what has moved to it
		labtest.Settle(t, f, labtest.Patience)
		if way.layout {
			divide(t, f)
			labtest.Settle(t, f, labtest.Patience)
		}
		facts.Ats = append(facts.Ats, labtest.CreateAts(t, f.Client("west"), "west", fmt.Sprint("at-", round), 20,
			func(i int) time.Time { return time.Now().Add(time.Duration(i) * time.Second / 4) })...)
		must.Succeed(t, home.Restore(t.Context(), snapshot, way.bump))
		began := time.Now()
		time.Sleep(lease / 2) // until then the restored records may look settled
		labtest.Settle(t, f, labtest.Patience)
		took := time.Since(began)
		most := refusedSince(t, f, began, lease+10*time.Second)
		t.Logf("%s: settled %v after home was back, %.2f refused writes a second for one replica at most",
			way.name, took.Round(100*time.Millisecond), most)
		if most > 2 {
			t.Errorf("%s: %.2f refused writes a second for one replica, want 2 at most", way.name, most)
		}
		labtest.Done(t, f.Client("west"), len(facts.Ats), 2*labtest.Patience)
		if err := late.Leave(t.Context(), labtest.Patience); err != nil {
			t.Error(err)
		}
		labtest.Settle(t, f, labtest.Patience)
	}
	labtest.Leave(t, f.Replicas()...)
	for _, at := range home.Restored() {
		facts.Restores = append(facts.Restores, witness.Restore{Cluster: lab.Home, Time: at})
	}
	labtest.Judge(t, f, facts)
}

// divide gives west a layout of the next generation, with twice as many shards.
func divide(t *testing.T, f *lab.Fleet) {
	t.Helper()
	layout := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "west.layout"}}
	must.Succeed(t, f.Client(lab.Home).Get(t.Context(), client.ObjectKeyFromObject(layout), layout))
	layout.Spec.Layout.Generation++
	var prefixes []string
	for _, p := range layout.Spec.Layout.Prefixes {
		prefixes = append(prefixes, p+"0", p+"1")
	}
	layout.Spec.Layout.Prefixes = prefixes
	must.Succeed(t, f.Client(lab.Home).Update(t.Context(), layout))
	labtest.Eventually(t, "its shards are there", func() error {
		shards, err := f.Shards(t.Context())
		if err == nil && len(shards) != len(prefixes) {
			err = fmt.Errorf("there are %d, want %d", len(shards), len(prefixes))
		}
		return err
	})
}

// refusedSince is how many writes a second home refused to the replica that it refused most.
func refusedSince(t *testing.T, f *lab.Fleet, began time.Time, within time.Duration) float64 {
	t.Helper()
	all, err := audit.Refused(filepath.Join(f.Planes.Dir(), lab.Home))
	must.Succeed(t, err)
	refused := map[string]int{}
	for _, e := range all {
		if e.Arrived().After(began) && e.Arrived().Before(began.Add(within)) {
			refused[lab.ReplicaOf(audit.ParseAgent(e.UserAgent).Incarnation)]++
		}
	}
	most := 0
	for _, n := range refused {
		most = max(most, n)
	}
	return float64(most) / within.Seconds()
}
