package shard

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/expect"
)

// A record that can't be read any more when it is deleted was readable before, and somebody may hold it.
func TestADeletionIsSeenWhateverTheRecordSaid(t *testing.T) {
	id := keyspace.ShardID{Cluster: "west"}
	gone, empty := ownership.LayoutGone{Cluster: "west"}, &tenurev1alpha1.ShardLayout{}
	for name, c := range map[string]struct {
		record string
		layout *tenurev1alpha1.ShardLayout
		floor  string
		want   ownership.Input
	}{
		"a record":                      {id.RecordName(""), nil, "7", ownership.ShardGone{ID: id}},
		"one with a floor that is none": {id.RecordName(""), nil, "x", ownership.ShardGone{ID: id}},
		"one of another name":           {"other", nil, "", nil},
		"one of another fleet":          {id.RecordName("blue"), nil, "", nil},
		"a layout that makes no sense":  {keyspace.LayoutName("", "west"), empty, "", gone},
		"a layout of another fleet":     {keyspace.LayoutName("blue", "west"), empty, "", nil},
		"a layout under another's name": {keyspace.LayoutName("", "east"), empty, "", nil},
	} {
		got := (&follower{}).deleted(&tenurev1alpha1.Shard{
			ObjectMeta: metav1.ObjectMeta{Name: c.record,
				Annotations: map[string]string{tenurev1alpha1.FloorAnnotation: c.floor}},
			Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Layout: c.layout},
		})
		expect.Equal(t, name, c.want, got)
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

func TestAReportIsNoChangeOfARecord(t *testing.T) {
	before := &tenurev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "west.p", ResourceVersion: "7"},
		Spec: tenurev1alpha1.ShardSpec{Cluster: "west", Assignee: "a-1"}, Status: tenurev1alpha1.ShardStatus{Holder: "a-1"}}
	for what, c := range map[string]struct {
		edit func(*tenurev1alpha1.Shard)
		want bool
	}{
		"a report": {func(s *tenurev1alpha1.Shard) { s.Status.Objects, s.Status.LoadMilli = 3, 20 }, true},
		"a plan":   {func(s *tenurev1alpha1.Shard) { s.Spec.Assignee = "b-1" }, false},
		"a holder": {func(s *tenurev1alpha1.Shard) { s.Status.Holder, s.Status.Objects = "b-1", 3 }, false},
		"a label":  {func(s *tenurev1alpha1.Shard) { s.Labels = map[string]string{"by": "hand"} }, false},
	} {
		now := before.DeepCopy()
		now.ResourceVersion = "8"
		c.edit(now)
		if got := onlyReported(before, now); got != c.want {
			t.Errorf("%s: only reported: %v", what, got)
		}
	}
	if onlyReported(nil, before) {
		t.Error("a new record is a report")
	}
}
