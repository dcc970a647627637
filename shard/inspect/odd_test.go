package inspect

import (
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
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

// For replicas it has none, so it counts, and somebody has to be told.
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

// Replicas go by their own fleet. A label that somebody changes makes no record another fleet's.
func TestARecordIsJudgedByTheFleetThatReadsIt(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west"}
	for fleet, label := range map[keyspace.Fleet]string{"": "x", "y": ""} {
		record := tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: id.RecordName(fleet), ResourceVersion: "1",
				Labels: map[string]string{tenurev1alpha1.FleetLabel: label}},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west"},
		}
		counting, odd, _ := Records{Fleet: fleet, Shards: []tenurev1alpha1.Shard{record}}.Sort()
		if len(counting) != 1 || len(odd) != 0 {
			t.Errorf("of fleet %q, %d records count; odd: %+v", fleet, len(counting), odd)
		}
		if s, err := ReadShard(fleet, &record); err != nil || s.ID != id {
			t.Errorf("fleet %q reads %+v (%v)", fleet, s, err)
		}
	}
}

// A record of an earlier layout is given up by its holder, and retired after that.
func TestARecordThatItsHolderIsAboutToGiveUpIsNoTrouble(t *testing.T) {
	r := Records{
		Layouts: []tenurev1alpha1.Shard{{
			ObjectMeta: metav1.ObjectMeta{Name: keyspace.LayoutName("", "west"), ResourceVersion: "1"},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Generation: 1,
				Layout: &tenurev1alpha1.ShardLayout{Generation: 2, Prefixes: []string{""}}},
		}},
		Shards: []tenurev1alpha1.Shard{{
			ObjectMeta: metav1.ObjectMeta{Name: keyspace.ShardID{Cluster: "west"}.RecordName("")},
			Spec:       tenurev1alpha1.ShardSpec{Cluster: "west", Generation: 1},
			Status:     tenurev1alpha1.ShardStatus{Holder: "a-1"},
		}},
	}
	for sealed, want := range map[bool]int{false: 0, true: 1} {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a-1", ResourceVersion: "1",
			Labels:      map[string]string{tenurev1alpha1.RoleLabel: tenurev1alpha1.RoleMember},
			Annotations: map[string]string{tenurev1alpha1.LeaseDurationAnnotation: "10s"}}}
		if sealed {
			lease.Annotations[tenurev1alpha1.SealedAnnotation] = "now"
		}
		r.Leases = []coordinationv1.Lease{lease}
		if counting, odd, _ := r.Sort(); len(counting) != 0 || len(odd) != want {
			t.Errorf("its holder is sealed: %v; %d records count; odd: %+v", sealed, len(counting), odd)
		}
	}
}
