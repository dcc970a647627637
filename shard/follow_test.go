package shard

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A record that can't be read any more when it is deleted was readable before, and somebody may hold it.
func TestADeletionIsSeenWhateverTheRecordSaid(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west"}
	gone, empty := driver.Seen{What: ownership.LayoutGone{Cluster: "west"}, By: "a-1"}, &tenurev1alpha1.ShardLayout{}
	for name, c := range map[string]struct {
		record string
		layout *tenurev1alpha1.ShardLayout
		floor  string
		want   driver.Event
	}{
		"a record":                      {id.RecordName(""), nil, "7", driver.Deleted{ID: id, By: "a-1"}},
		"one with a floor that is none": {id.RecordName(""), nil, "x", driver.Deleted{ID: id, By: "a-1"}},
		"one of another name":           {"other", nil, "", nil},
		"one of another fleet":          {id.RecordName("blue"), nil, "", nil},
		"a layout that makes no sense":  {keyspace.LayoutName("", "west"), empty, "", gone},
		"a layout of another fleet":     {keyspace.LayoutName("blue", "west"), empty, "", nil},
		"a layout under another's name": {keyspace.LayoutName("", "east"), empty, "", nil},
	} {
		f := &follower{by: "a-1"}
		got := f.deleted(&tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: c.record,
				Annotations: map[string]string{tenurev1alpha1.FloorAnnotation: c.floor}},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Layout: c.layout},
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", name, diff)
		}
	}
}

func TestACachedRecordKeepsManagedFieldsOfItsMoveAlone(t *testing.T) {
	for _, c := range []struct {
		holder, assignee string
		want             int
	}{{"a", "a", 0}, {"a", "", 0}, {"a", "b", 1}, {"", "b", 1}} {
		s := &tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}, {Subresource: "status"}}},
			Spec:       tenurev1alpha1.ShardSpec{Assignee: c.assignee},
			Status:     tenurev1alpha1.ShardStatus{Holder: c.holder},
		}
		if _, err := lean(s); err != nil || len(s.ManagedFields) != c.want || c.want == 0 && s.ManagedFields != nil {
			t.Errorf("%+v: %v, %v", c, s.ManagedFields, err)
		}
	}
}
