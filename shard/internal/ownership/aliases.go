package ownership

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// sortClusters determines which clusters may be served, and under which name.
func (r *Replica) sortClusters() {
	r.unsorted = false
	r.aliases = map[string][]keyspace.ClusterName{}
	for _, c := range r.givenNames {
		r.layout(c).stir()
		if uid := r.uidOf(c); uid != "" {
			r.aliases[uid] = append(r.aliases[uid], c)
		}
	}
	for _, l := range r.layoutOrder {
		if uid := l.rec.UID; l.known && uid != "" && !slices.Contains(r.aliases[uid], l.cluster) {
			r.aliases[uid] = append(r.aliases[uid], l.cluster)
		}
	}
	r.aliased = false
	for _, names := range r.aliases {
		r.aliased = r.aliased || len(names) > 1
	}
	served := map[keyspace.ClusterName]int{}
	for c, bits := range r.given.Bits {
		if !r.remade(c) && r.servedAs(c) == c {
			served[c] = bits
		}
	}
	if !maps.Equal(served, r.clusters) {
		r.clusters = served
		r.clustersKnown()
		r.touchAll()
	}
}

// misplaced reports whether a layout's change may change which clusters are served.
func (r *Replica) misplaced(l *layout) bool {
	_, served := r.clusters[l.cluster]
	_, given := r.given.Bits[l.cluster]
	return given && served == r.remade(l.cluster) || len(r.aliases[l.rec.UID]) > 1 ||
		len(r.aliases[l.rec.UID]) == 1 && r.aliases[l.rec.UID][0] != l.cluster
}

// uidOf returns the UID of the cluster under that name: the one that the cluster itself reports or, while that isn't
// known, the one in its layout; "" if neither is known.
func (r *Replica) uidOf(c keyspace.ClusterName) string {
	if uid := r.given.UIDs[c]; uid != "" {
		return uid
	}
	if l := r.layouts[c]; l != nil && l.known {
		return l.rec.UID
	}
	return ""
}

// remade reports whether the cluster under that name is another than the one its layout was made for.
func (r *Replica) remade(c keyspace.ClusterName) bool {
	uid, l := r.given.UIDs[c], r.layouts[c]
	return uid != "" && l != nil && l.known && l.rec.UID != "" && l.rec.UID != uid
}

// servedAs returns the name under which a cluster is served: the alphabetically first of those of its names that have a
// layout, or of all if none has. A name that this replica doesn't know counts only while a replica serves it.
func (r *Replica) servedAs(c keyspace.ClusterName) keyspace.ClusterName {
	uid := r.uidOf(c)
	best, laid := c, r.laid(c, uid)
	for _, other := range r.aliases[uid] {
		if _, given := r.given.Bits[other]; !given && !slices.ContainsFunc(r.of(other), (*shardState).served) {
			continue
		}
		if has := r.laid(other, uid); (has && !laid) || (has == laid && other < best) {
			best, laid = other, has
		}
	}
	return best
}

// Aliases returns, for each name under which a cluster isn't served, the name under which it is; nil if there are none.
func (r *Replica) Aliases() map[keyspace.ClusterName]keyspace.ClusterName {
	if !r.aliased {
		return nil
	}
	aliases := map[keyspace.ClusterName]keyspace.ClusterName{}
	for _, c := range r.givenNames {
		if served := r.servedAs(c); served != c {
			aliases[c] = served
		}
	}
	return aliases
}

// laid reports whether the cluster of that UID has a layout under that name.
func (r *Replica) laid(c keyspace.ClusterName, uid string) bool {
	l := r.layouts[c]
	return l != nil && l.known && l.rec.UID == uid
}

// elsewhere returns the highest epoch that the shard's slots had under other names of its cluster, and whether one of
// these shards is served.
func (r *Replica) elsewhere(t *shardState) (highest Epoch, served bool) {
	if !r.aliased {
		return 0, false
	}
	for _, c := range r.aliases[r.uidOf(t.id.Cluster)] {
		if c == t.id.Cluster {
			continue
		}
		alias := keyspace.ShardID{Cluster: c, Prefix: t.id.Prefix}
		for _, o := range r.of(c) {
			if o.id.Overlaps(alias) {
				highest, served = max(highest, o.floor), served || o.served()
			}
		}
	}
	return highest, served
}
