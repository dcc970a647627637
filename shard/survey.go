package shard

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/member"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/internal/record"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// alive returns the incarnations whose Lease is there and not sealed.
func alive(leases []coordinationv1.Lease) map[protocol.Incarnation]bool {
	all := map[protocol.Incarnation]bool{}
	for i := range leases {
		if seen, err := member.Seen(&leases[i]); err == nil {
			if l, ok := seen.(ownership.LeaseSeen); ok && !l.Lease.Sealed {
				all[l.Lease.ID] = true
			}
		}
	}
	return all
}

// look returns which shards are unserved and which are to move, each with the time since when; the maps of the last
// look are left as they are, since readers may hold them.
func look(shards []tenurev1alpha1.Shard, alive map[protocol.Incarnation]bool, unservedBefore, movingBefore map[keyspace.ShardID]time.Time, now time.Time) (unserved, moving map[keyspace.ShardID]time.Time) {
	unserved, moving = map[keyspace.ShardID]time.Time{}, map[keyspace.ShardID]time.Time{}
	for i := range shards {
		status := &shards[i].Status
		id, err := record.ID(&shards[i])
		if err != nil {
			continue
		}
		switch holder := protocol.Incarnation(status.Holder); {
		case holder == "" || !alive[holder]:
			unserved[id] = since(unservedBefore, id, now)
		case shards[i].Spec.Assignee != "" && shards[i].Spec.Assignee != status.Holder:
			moving[id] = since(movingBefore, id, now)
		}
	}
	return unserved, moving
}

func since(before map[keyspace.ShardID]time.Time, id keyspace.ShardID, now time.Time) time.Time {
	if t, ok := before[id]; ok {
		return t
	}
	return now
}
