package ownership

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// missing lists the shards that have no record and should: the parts of each cluster's hash space that no record
// covers, divided as a new cluster is. A part whose record was deleted stays bare until its old holder, too, must have
// seen that; what was deleted before we looked we can't know, so unless we founded the fleet we look for that long
// first.
func (r *Replica) missing() []keyspace.ShardID {
	if !r.founded && r.now.AtLeast(r.syncedAt) < r.cfg.BuryTime {
		r.lookAt = r.syncedAt.Add(r.cfg.BuryTime)
		return nil
	}
	var ids []keyspace.ShardID
	for _, c := range r.clusterNames {
		first, _ := slices.BinarySearchFunc(r.order, keyspace.ShardID{Cluster: c}, compareTenure)
		last, slots := first, 0
		for ; last < len(r.order) && r.order[last].id.Cluster == c; last++ {
			if t := r.order[last]; t.known {
				slots += 1 << (keyspace.MaxBits - t.id.Prefix.Bits())
			}
		}
		if slots < 1<<keyspace.MaxBits {
			ids = r.uncovered(ids, c, keyspace.Prefix{}, r.order[first:last])
		}
	}
	return ids
}

// uncovered appends the largest parts of a prefix that no record covers and that aren't larger than a new cluster's.
func (r *Replica) uncovered(
	ids []keyspace.ShardID, c keyspace.ClusterName, p keyspace.Prefix, records []*tenure,
) []keyspace.ShardID {
	inside := false
	for _, t := range records {
		q := t.id.Prefix
		if !overlap(p, q) {
			continue
		}
		switch {
		case t.known && q.Bits() <= p.Bits():
			return ids
		case t.known:
			inside = true
		case r.now.AtLeast(t.freeAt) < 0:
			return ids // too early
		}
	}
	if !inside && p.Bits() >= r.clusters[c] {
		return append(ids, keyspace.ShardID{Cluster: c, Prefix: p})
	}
	lower, upper, err := p.Split()
	if err != nil {
		return ids // a single slot has nothing inside
	}
	return r.uncovered(r.uncovered(ids, c, lower, records), c, upper, records)
}

// overlap reports whether two prefixes have slots in common: then one contains the other.
func overlap(p, q keyspace.Prefix) bool {
	pFirst, _ := p.Slots()
	qFirst, _ := q.Slots()
	return p.ContainsSlot(qFirst) || q.ContainsSlot(pFirst)
}

func compareTenure(t *tenure, id keyspace.ShardID) int { return t.id.Compare(id) }
