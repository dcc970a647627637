package lab_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/bench/witness"
	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
	"github.com/tenure-dev/tenure/test/lab/labtest"
)

func TestHomeThatIsRestoredUnderLiveReplicasIsServedAgain(t *testing.T) {
	const lease = 4 * time.Second
	f := labtest.Fleet(t, lab.Options{Workloads: []string{"west"}, LeaseDuration: lease})
	settled := func(within time.Duration) {
		t.Helper()
		if err := f.AwaitSettled(t.Context(), within); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		labtest.Replica(t, f, fmt.Sprint("r", i))
	}
	settled(labtest.Patience)
	home := f.Planes.Cluster(lab.Home)
	var facts witness.Facts
	for round, bump := range []uint64{0, 1_000_000_000} {
		snapshot := filepath.Join(t.TempDir(), "home.db")
		if err := home.Snapshot(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		labtest.Replica(t, f, fmt.Sprint("late", round)) // what moves to it is lost
		settled(labtest.Patience)
		at := &cnatv1alpha1.At{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("at-", round)}, Spec: cnatv1alpha1.AtSpec{
			Schedule: time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano), Command: "true"}}
		if err := f.Client("west").Create(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		facts.Ats = append(facts.Ats, witness.At{Cluster: "west", Namespace: "default", Name: at.Name, UID: string(at.UID), Schedule: at.Spec.Schedule})
		if err := home.Restore(t.Context(), snapshot, bump); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(lease / 2) // until then the restored records may look settled
		settled(lease + 10*time.Second)
		t.Logf("bump %d: settled %v after home was back", bump, time.Since(began).Round(100*time.Millisecond))
		done(t, f)
	}
	labtest.Leave(t, f.Replicas()...)
	for _, at := range home.Restored() {
		facts.Restores = append(facts.Restores, witness.Restore{Cluster: lab.Home, Time: at})
	}
	report, err := witness.Read(f.Planes.Dir(), witness.Options{Facts: facts, Rules: witness.Rules{Settle: time.Second, Users: []string{lab.AccountUser}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}
