package replication

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestTrimCopyHalvesACopy takes what the fake API server keeps of a copy, with the managed fields that an apply leaves.
func TestTrimCopyHalvesACopy(t *testing.T) {
	b := newBench(t, aSource())
	b.live()
	d := b.get("west")
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: "Deployment has minimum availability."},
	}
	size := func() int {
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing,
		Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "it has timed out progressing"})
	before := size()
	if _, err := TrimCopy(d); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of JSON became %d", before, size())
	if size() > before*2/3 {
		t.Errorf("%d bytes of JSON became %d", before, size())
	}
	if diff := cmp.Diff([]appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
		Reason: "ProgressDeadlineExceeded"}}, d.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestTrimCopyLeavesOthersAlone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/web"}
	if got, err := TrimCopy(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("%v, %v", got, err)
	}
}
