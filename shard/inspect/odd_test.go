package inspect

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Replicas go on with the last that they could read of it, so it counts, and somebody has to be told.
func TestARecordWithAFloorThatIsNoneIsTold(t *testing.T) {
	record := tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: keyspace.ShardID{Cluster: "west"}.RecordName(""),
			Annotations: map[string]string{tenurev1alpha1.FloorAnnotation: "abc"}},
		Spec: tenurev1alpha1.ShardSpec{Cluster: "west"},
	}
	counting, odd := Records{Shards: []tenurev1alpha1.Shard{record}}.Sort()
	if len(counting) != 1 || len(odd) != 1 || odd[0].Reason != Unreadable || !strings.Contains(odd[0].Note, `"abc"`) {
		t.Errorf("%d records count; odd: %+v", len(counting), odd)
	}
}
