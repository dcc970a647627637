package lab_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/bench/audit"
	"github.com/tenure-dev/tenure/bench/witness"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	restoredAge = flag.Int("restored-age", 0, "how old snapshots of home are, in `seconds` of a life in which a shard "+
		"moves and three records change in each; they are lived faster")
	allRestores = flag.Bool("all-restores", false,
		"restore home in all ways, with a second API server, and hold what is measured against the targets")
)

// oneRestore is a way to restore home.
type oneRestore struct {
	name   string
	bump   uint64
	lags   bool // one of two API servers does, as soon as it is back
	layout bool // the cluster's layout changes between the snapshot and the restore
}

const manyRevisions = 1_000_000_000

func TestHomeThatIsRestoredUnderLiveReplicasIsServedAgain(t *testing.T) {
	const lease = 4 * time.Second
	ways := []oneRestore{{name: "as it was"}, {name: "with its revision bumped", bump: manyRevisions}}
	if *allRestores {
		ways = append(ways, oneRestore{name: "one API server lags", lags: true},
			oneRestore{name: "bumped, and one lags", bump: manyRevisions, lags: true},
			oneRestore{name: "the layout goes back", layout: true},
			oneRestore{name: "bumped, and the layout goes back", bump: manyRevisions, layout: true})
	}
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, LeaseDuration: lease, SecondHome: *allRestores})
	labtest.Replicas(t, f, "r0", "r1", "r2")
	labtest.Settle(t, f, labtest.Patience)
	home := f.Planes.Cluster(lab.Home)
	var facts witness.Facts
	for round, way := range ways {
		snapshot := filepath.Join(t.TempDir(), "home.db")
		must.Succeed(t, home.Snapshot(t.Context(), snapshot))
		moves, changes := age(t, f, *restoredAge)
		late := labtest.Replica(t, f, fmt.Sprint("late", round)) // the restore forgets what has moved to it
		labtest.Settle(t, f, labtest.Patience)
		if way.layout {
			divide(t, f, round)
			labtest.Settle(t, f, labtest.Patience)
		}
		facts.Ats = append(facts.Ats, labtest.CreateAts(t, f.Client("west"), "west", fmt.Sprint("at-", round), 20,
			func(i int) time.Time { return time.Now().Add(time.Duration(i) * time.Second / 4) })...)
		must.Succeed(t, home.Restore(t.Context(), snapshot, way.bump))
		began := time.Now()
		if way.lags {
			f.Second.Lag(lease / 5)
		}
		time.Sleep(lease / 2) // until then the restored records may look settled
		labtest.Settle(t, f, labtest.Patience)
		took := time.Since(began)
		most := refusedSince(t, f, began, lease+10*time.Second)
		t.Logf("%s, %d moves and %d changes later: settled %v after home was back, %.2f refused writes a second for one "+
			"replica at most",
			way.name, moves, changes, took.Round(100*time.Millisecond), most)
		if *allRestores && took > lease+10*time.Second {
			t.Errorf("%s: settled after %v, want %v at most", way.name, took, lease+10*time.Second)
		}
		if most > 2 {
			t.Errorf("%s: %.2f refused writes a second for one replica, want 2 at most", way.name, most)
		}
		labtest.Done(t, f.Client("west"), len(facts.Ats), 2*labtest.Patience)
		if way.lags {
			f.Second.Lag(0)
		}
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

// age makes the changes to home that a busy fleet makes in so many seconds.
func age(t *testing.T, f *lab.Fleet, seconds int) (moves, changes int) {
	t.Helper()
	shards, err := f.Shards(t.Context())
	must.Succeed(t, err)
	for moves < seconds {
		to := f.Alive()[(moves/len(shards))%2].Name
		must.Succeed(t, f.Pin(t.Context(), "", func(int) string { return to }))
		labtest.Eventually(t, "all shards are with "+to, func() error {
			shards, err := f.Shards(t.Context())
			if err != nil {
				return err
			}
			for i := range shards {
				if lab.ReplicaOf(shards[i].Status.Holder) != to {
					return fmt.Errorf("%s is held by %s", shards[i].Name, shards[i].Status.Holder)
				}
			}
			return f.Inactive(t.Context())
		})
		moves += len(shards)
	}
	for ; changes < 3*seconds; changes++ {
		patch := client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"aged":"%d"}}}`, changes))
		must.Succeed(t, f.Client(lab.Home).Patch(t.Context(), &shards[changes%len(shards)], patch))
	}
	must.Succeed(t, f.Unpin(t.Context()))
	return moves, changes
}

// divide gives west a layout of the next generation, with twice as many shards.
func divide(t *testing.T, f *lab.Fleet, round int) {
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
