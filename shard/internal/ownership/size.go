package ownership

import (
	"math/bits"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// size is what a coordinator knows about the number of objects in a cluster without a layout.
type size struct {
	uid     string // of the cluster that was counted
	asked   bool
	known   bool
	objects int64 // negative if they can't be counted
}

// counted records the answer to a [Count].
func (r *Replica) counted(in Counted) {
	if l := r.layouts[in.Cluster]; l != nil && l.size.asked && l.size.uid == in.UID {
		l.size.known, l.size.objects = true, in.Objects
		r.replan = true
	}
}

// newBits returns the number of prefix bits for a cluster that has never been divided: enough for its objects, and
// at most what the last [Clusters] input allows. It requests a count of the objects; ok is false until that is
// answered.
func (r *Replica) newBits(l *layout) (_ int, ok bool) {
	most, uid := r.given.Bits[l.cluster], r.given.UIDs[l.cluster]
	switch {
	case r.cfg.ObjectsPerShard == 0 || most == 0:
		return most, true
	case l.size.known && l.size.uid == uid:
		return needed(l.size.objects, r.cfg.ObjectsPerShard, most), true
	case !l.size.asked || l.size.uid != uid:
		l.size = size{uid: uid, asked: true}
		r.emit(Count{Cluster: l.cluster, UID: uid})
	}
	return 0, false
}

// needed returns the bits of the smallest number of shards, at most 2^most, with at most perShard objects each on
// average.
func needed(objects, perShard int64, most int) int {
	if objects < 0 {
		return most
	}
	shards := objects / perShard
	if objects%perShard > 0 {
		shards++
	}
	return min(most, bits.Len64(uint64(max(shards, 1)-1)))
}

// isNew reports whether no record shows how the cluster was divided before.
func (r *Replica) isNew(c keyspace.ClusterName) bool {
	return !slices.ContainsFunc(r.of(c), func(t *shardState) bool { return t.rank() > 0 })
}
