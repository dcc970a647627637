package replication

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

// TestTrimCopyHalvesACopy takes what the fake API server keeps of a copy, with the managed fields that an apply leaves.
func TestTrimCopyHalvesACopy(t *testing.T) {
	b := settled(t)
	d := b.get("west")
	d.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Message: "Deployment has minimum availability."},
	}
	size := func() int {
		data, err := json.Marshal(d)
		must.Succeed(t, err)
		return len(data)
	}
	d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing,
		Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "it has timed out progressing"})
	before := size()
	_, err := TrimCopy(d)
	must.Succeed(t, err)
	t.Logf("%d bytes of JSON became %d", before, size())
	if size() > before*2/3 {
		t.Errorf("%d bytes of JSON became %d", before, size())
	}
	expect.Equal(t, "conditions", []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing,
		Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}, d.Status.Conditions)
}

func TestTrimCopyLeavesOthersAlone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/web"}
	if got, err := TrimCopy(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestOfADeploymentThatIsNoSourceLittleIsKept(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		label     string
		finalizer []string
		whole     bool
	}{
		"never a source":          {"", nil, false},
		"a source":                {"true", nil, true},
		"one that lost its label": {"", []string{Finalizer}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := aSource()
			d.Labels[LabelReplicate], d.Finalizers = c.label, c.finalizer
			d.Annotations["note"], d.Annotations[AnnotationCopies] = large, "west"
			d.Spec.Template.Annotations = map[string]string{"note": large}
			before := d.DeepCopy()
			_, err := TrimSource(d)
			must.Succeed(t, err)
			if c.whole {
				expect.Equal(t, "changed", before, d)
				return
			}
			data, err := json.Marshal(d)
			if err != nil || len(data) > 4096 || d.Annotations[AnnotationCopies] != "west" {
				t.Errorf("%d bytes are kept, with annotations %v: %v", len(data), d.Annotations, err)
			}
		})
	}
}
