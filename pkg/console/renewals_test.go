package console

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
