package inspect

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// What may be wrong with a record, as events and metrics call it.
const (
	// Unreadable: it is no record of the shard or layout that it names.
	Unreadable = "UnreadableRecord"
	// Foreign: the layout of its cluster doesn't list it. Nobody will claim it.
	Foreign = "ForeignRecord"
	// Overlapping: it overlaps another, and there is no layout that says which of them counts.
	Overlapping = "OverlappingRecords"
	// Spent: the layout lists it, but it was retired. The coordinator makes another layout.
	Spent = "SpentRecord"
)

// Odd is a record that something is wrong with, though not with who holds it.
type Odd struct {
	Record string    // its name
	UID    types.UID // of the object
	Reason string    // one of the constants
	Note   string    // what it is, and the way out
}

// Sort tells the records that count from those that don't. Those that don't and should be looked at are odd; the others
// are left from earlier layouts.
func (r Records) Sort() (counting []*tenurev1alpha1.Shard, odd []Odd) {
	layouts := map[keyspace.ClusterName]ownership.Layout{}
	note := func(s *tenurev1alpha1.Shard, reason, format string, args ...any) {
		odd = append(odd, Odd{Record: s.Name, UID: s.UID, Reason: reason, Note: fmt.Sprintf(format, args...)})
	}
	for i := range r.Layouts {
		l, err := record.Layout(fleetOf(&r.Layouts[i]), &r.Layouts[i])
		if err != nil {
			note(&r.Layouts[i], Unreadable, "%v", err)
			continue
		}
		layouts[l.Cluster] = l
	}
	unlisted := map[keyspace.ClusterName][]keyspace.ShardID{} // of clusters that have no layout
	for i := range r.Shards {
		s := &r.Shards[i]
		id, err := record.ID(fleetOf(s), s)
		if err != nil {
			note(s, Unreadable, "%v", err)
			continue
		}
		if _, err := record.Floor(s); err != nil { // what it said before goes on
			note(s, Unreadable, "%v", err)
		}
		retired := s.Status.Phase == tenurev1alpha1.ShardRetired
		l, divided := layouts[id.Cluster]
		switch {
		case !divided && retired, divided && max(1, id.Generation) < l.Generation && (retired || s.Status.Holder == ""):
			// Left from an earlier layout.
		case divided && !l.Lists(id):
			note(s, Foreign, "record %s: the layout of cluster %s doesn't list it, so nobody serves it; delete it",
				s.Name, id.Cluster)
		case divided && retired:
			note(s, Spent, "record %s: was retired, and is listed by the layout of cluster %s; the coordinator makes another",
				s.Name, id.Cluster)
		case !divided && slices.ContainsFunc(unlisted[id.Cluster], id.Overlaps):
			note(s, Overlapping, "record %s: overlaps another, so one of them isn't served; delete that which was made by hand",
				s.Name)
			counting = append(counting, s)
		default:
			if !divided {
				unlisted[id.Cluster] = append(unlisted[id.Cluster], id)
			}
			counting = append(counting, s)
		}
	}
	return counting, odd
}

func fleetOf(s *tenurev1alpha1.Shard) keyspace.Fleet {
	return keyspace.Fleet(s.Labels[tenurev1alpha1.FleetLabel])
}
