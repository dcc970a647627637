package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Records are the coordination records of a fleet, as the home cluster has them.
type Records struct {
	Fleet  keyspace.Fleet
	Shards []tenurev1alpha1.Shard
	// Layouts list the shards that each cluster is divided into.
	Layouts []tenurev1alpha1.Shard
	// Leases are those of all incarnations, and the lead record.
	Leases []coordinationv1.Lease
}

// Read lists the records of a fleet in a namespace of the home cluster. The options apply to both lists.
func Read(ctx context.Context, from client.Reader, namespace string, fleet keyspace.Fleet,
	opts ...client.ListOption) (Records, error) {
	shards := &tenurev1alpha1.ShardList{}
	if err := from.List(ctx, shards, append(slices.Clip(opts), client.InNamespace(namespace))...); err != nil {
		return Records{}, fmt.Errorf("listing the Shard records in namespace %s: %w", namespace, err)
	}
	leases, err := member.List(ctx, from, namespace, fleet, opts...)
	if err != nil {
		return Records{}, err
	}
	r := Records{Fleet: fleet, Leases: leases, Shards: shards.Items[:0]} // in place, since there may be tens of thousands
	for _, s := range shards.Items {
		switch {
		case record.OfAnother(fleet, &s):
		case s.Spec.Layout != nil:
			r.Layouts = append(r.Layouts, s)
		default:
			r.Shards = append(r.Shards, s)
		}
	}
	return r, nil
}

// Lease is the content of one of the fleet's Leases.
type Lease struct {
	// Incarnation is the owner of the Lease. In the lead record it is the coordinator, or "" if there is none.
	Incarnation protocol.Incarnation
	// Coordinator is true for the lead record. The fields below are unset then.
	Coordinator bool
	// Replica is the stable name of the process; "" if the Lease doesn't have it.
	Replica string
	// Duration is how long the Lease may stand still before a peer seals it; 0 if the Lease doesn't have it.
	Duration time.Duration
	// Weight is the replica's share of the work relative to the others'; 0 means 1.
	Weight int
	// Build is the version of the program.
	Build string
	// Unfit lists the clusters that the replica can't serve.
	Unfit plan.UnfitFor
	// Clusters describes the clusters that don't answer this replica as they should, or whose keys wait.
	Clusters []ClusterView
	// Leaving means that the replica was told to stop. Sealed means that the incarnation was declared dead, for ever.
	Leaving, Sealed bool
}

// ReadLease parses a Lease. It returns an error for one that no replica could have written.
func ReadLease(lease *coordinationv1.Lease) (Lease, error) {
	seen, err := member.Seen(lease)
	if err != nil {
		return Lease{}, err
	}
	if lead, ok := seen.(ownership.LeadSeen); ok {
		return Lease{Incarnation: lead.Lead.Holder, Coordinator: true}, nil
	}
	l := seen.(ownership.LeaseSeen).Lease
	if l.Unreadable {
		return Lease{}, fmt.Errorf("lease %s: can't be read: its lease duration or its protocol version is invalid; "+
			"its owner is never declared dead: if no replica owns it, delete it", lease.Name)
	}
	return Lease{
		Incarnation: l.ID, Replica: l.Replica, Duration: l.Duration, Weight: l.Weight, Build: l.Build, Unfit: l.Unfit,
		Leaving: l.Leaving, Sealed: l.Sealed, Clusters: decodeViews(lease.Annotations[tenurev1alpha1.TroubleAnnotation]),
	}, nil
}

// Shard is the content of one Shard record.
type Shard struct {
	ID keyspace.ShardID
	// Holder is the replica that serves the shard, Assignee the one that should, and Warm the one whose caches are
	// ready to take over. Each is "" if there is none.
	Holder, Assignee, Warm protocol.Incarnation
	Epoch                  protocol.Epoch
	// Objects and Load are as the holder last reported them. Load is in seconds spent in reconciles per second.
	Objects int64
	Load    float64
	// Pin is the name of the replica that an operator pinned the shard to; "" if it isn't pinned.
	Pin string
}

// ReadShard parses a fleet's Shard record. It returns an error for a layout, and for a record that isn't a valid record
// of the shard that it names.
func ReadShard(fleet keyspace.Fleet, shard *tenurev1alpha1.Shard) (Shard, error) {
	seen, err := record.Seen(fleet, shard)
	if err != nil {
		return Shard{}, err
	}
	shardSeen, ok := seen.(ownership.ShardSeen)
	if !ok {
		return Shard{}, fmt.Errorf("record %s: is a layout", shard.Name)
	}
	s := shardSeen.Shard
	return Shard{
		ID: s.ID, Holder: s.Holder, Assignee: s.Assignee, Warm: s.Warm, Epoch: s.Epoch, Objects: s.Objects, Load: s.Load,
		Pin: s.Pin,
	}, nil
}
