package console

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/test/must"
)

func TestOnlyAChangeThatWasSeenCountsAsARenewal(t *testing.T) {
	lease := func(version string) []coordinationv1.Lease {
		return []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "r0-a", ResourceVersion: version}}}
	}
	r, now := &Renewals{}, time.Unix(1000, 0)
	if seen := r.See(lease("1"), now); len(seen) != 0 {
		t.Errorf("a Lease that was found as it is counts as renewed: %v", seen)
	}
	if seen := r.See(lease("2"), now.Add(time.Second)); !seen["r0-a"].Equal(now.Add(time.Second)) {
		t.Errorf("a change that was seen doesn't count: %v", seen)
	}
	if seen := r.See(lease("2"), now.Add(5*time.Second)); !seen["r0-a"].Equal(now.Add(time.Second)) {
		t.Errorf("time passes, and the last change is another: %v", seen)
	}
	if r.See(nil, now); len(r.leases) != 0 {
		t.Error("a Lease that is gone is remembered")
	}
	if seen := (*Renewals)(nil).See(lease("1"), now); seen != nil {
		t.Errorf("nobody looks, and %v were seen", seen)
	}
}

// The clock of whoever asks may be ahead of all replicas'.
func TestReplicasThatRenewAreAliveWhateverTheTimeInTheirLeases(t *testing.T) {
	for _, renews := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, err := scheme()
			must.Succeed(t, err)
			late := lease("r0", 0)
			late.Namespace, late.Spec.RenewTime.Time = "ns", time.Now().Add(-time.Minute)
			late.ResourceVersion = ""
			home := fake.NewClientBuilder().WithScheme(s).WithObjects(&late).Build()
			g := Gatherer{Home: &rest.Config{}, Namespace: "ns"}
			snapshot := Snapshot{Now: time.Now()}
			snapshot.Records, err = inspect.Read(t.Context(), home, "ns", "")
			must.Succeed(t, err)
			if renews {
				time.AfterFunc(time.Second, func() {
					late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(time.Second)
					if err := home.Update(t.Context(), &late); err != nil {
						t.Error(err)
					}
				})
			}
			began := time.Now()
			must.Succeed(t, g.lookAgain(t.Context(), home, &snapshot))
			if took := time.Since(began); took < time.Second || took > longestLook {
				t.Errorf("it took %v", took)
			}
			got := readLeases(snapshot).byID["r0-aaaaaa"]
			if want := map[bool]ReplicaState{true: Live, false: Quiet}[renews]; got == nil || got.State != want {
				t.Errorf("renews: %v: it is %+v, want %s", renews, got, want)
			}
		})
	}
}
