package inspect

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

func TestAShardThatTheLayoutListsAndThatHasNoRecordIsMissing(t *testing.T) {
	there := keyspace.ShardID{Cluster: "west", Prefix: keyspace.Partition(1)[0], Generation: 2}
	r := Records{
		Shards: []tenurev1alpha1.Shard{{ObjectMeta: metav1.ObjectMeta{Name: there.RecordName("")},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Prefix: there.Prefix.String(), Generation: 2}}},
		Layouts: []tenurev1alpha1.Shard{{
			ObjectMeta: metav1.ObjectMeta{Name: keyspace.LayoutName("", "west"), ResourceVersion: "1"},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Generation: 1,
				Layout: &tenurev1alpha1.ShardLayout{Generation: 2, Prefixes: []string{"0", "1"}}}}},
	}
	counting, odd, missing := r.Sort()
	want := []keyspace.ShardID{{Cluster: "west", Prefix: keyspace.Partition(1)[1], Generation: 2}}
	if len(counting) != 1 || len(odd) != 0 || !slices.Equal(missing, want) {
		t.Errorf("%d records count; odd: %+v; missing: %v, want %v", len(counting), odd, missing, want)
	}
}

// Replicas go on with the last that they could read of it, so it counts, and somebody has to be told.
func TestARecordWithAFloorThatIsNoneIsTold(t *testing.T) {
	record := tenurev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: keyspace.ShardID{Cluster: "west"}.RecordName(""),
			Annotations: map[string]string{tenurev1alpha1.FloorAnnotation: "abc"}},
		Spec: tenurev1alpha1.ShardSpec{Cluster: "west"},
	}
	counting, odd, _ := Records{Shards: []tenurev1alpha1.Shard{record}}.Sort()
	if len(counting) != 1 || len(odd) != 1 || odd[0].Reason != Unreadable || !strings.Contains(odd[0].Note, `"abc"`) {
		t.Errorf("%d records count; odd: %+v", len(counting), odd)
	}
}
