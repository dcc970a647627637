package inspect

import (
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Reasons for which [Records.Sort] calls a record odd. Events and metrics use the same names.
const (
	// Unreadable: it can't be parsed, its name isn't that of its shard or layout, or an annotation of it makes no sense.
	Unreadable = "UnreadableRecord"
	// Foreign: the layout of its cluster doesn't list it. No replica will claim it.
	Foreign = "ForeignRecord"
	// Overlapping: it overlaps another record, and the cluster has no layout that shows which one counts.
	Overlapping = "OverlappingRecords"
	// Spent: the layout lists it, but it was retired. The coordinator makes another layout.
	Spent = "SpentRecord"
)

// Odd is a record that somebody should look at, for a reason other than its holder.
type Odd struct {
	Record string    // its name
	UID    types.UID // of the object
	Reason string    // as the reason of an event: one of the constants above, or of package shard
	Note   string    // what is wrong, and the remedy
	Cause  string    // tells it from others of the same record and reason; "" if there can be only one
}

// Sort returns the shard records that count, the odd ones of all shards and layouts, and the shards that layouts list
// and that have no record. A record can be among the first and the second. Shard records in neither are left from
// earlier layouts.
func (r Records) Sort() (counting []*tenurev1alpha1.Shard, odd []Odd, missing []keyspace.ShardID) {
	counting = make([]*tenurev1alpha1.Shard, 0, len(r.Shards))
	recorded := make(map[keyspace.ShardID]bool, len(r.Shards))
	layouts := make(map[keyspace.ClusterName]ownership.Layout, len(r.Layouts))
	note := func(s *tenurev1alpha1.Shard, reason, format string, args ...any) {
		odd = append(odd, Odd{Record: s.Name, UID: s.UID, Reason: reason, Note: fmt.Sprintf(format, args...)})
	}
	for i := range r.Layouts {
		l, err := record.Layout(r.Fleet, &r.Layouts[i])
		if err != nil {
			note(&r.Layouts[i], Unreadable, "%v", err)
			continue
		}
		layouts[l.Cluster] = l
	}
	unlisted := map[keyspace.ClusterName][]keyspace.ShardID{} // of clusters that have no layout
	for i := range r.Shards {
		s := &r.Shards[i]
		id, err := record.ID(r.Fleet, s)
		if err != nil {
			note(s, Unreadable, "%v", err)
			continue
		}
		recorded[id] = true
		if _, err := record.Floor(s); err != nil { // it counts, and this as none
			note(s, Unreadable, "%v", err)
		}
		retired := s.Status.Phase == tenurev1alpha1.ShardRetired
		l, divided := layouts[id.Cluster]
		switch {
		case !divided && retired:
		case divided && max(1, id.Generation) < l.Generation && (retired || s.Status.Holder == "" || r.acts(s.Status.Holder)):
			// Left from an earlier layout, or about to be given up.
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
	for _, l := range layouts {
		for _, p := range l.Prefixes {
			if id := l.ID(p); !recorded[id] {
				missing = append(missing, id)
			}
		}
	}
	return counting, odd, missing
}

// acts reports whether an incarnation may act: it has a Lease that isn't sealed.
func (r Records) acts(id string) bool {
	return slices.ContainsFunc(r.Leases, func(l coordinationv1.Lease) bool {
		return l.Name == id && l.Annotations[tenurev1alpha1.SealedAnnotation] == ""
	})
}
