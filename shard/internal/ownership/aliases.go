package ownership

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// chooseNames determines which clusters may be served, and under which name.
func (r *Replica) chooseNames() {
	r.namesStale = false
	r.aliases = map[string][]keyspace.ClusterName{}
	for _, c := range r.givenNames {
		r.layout(c).stir()
		if uid := r.uidOf(c); uid != "" {
			r.aliases[uid] = append(r.aliases[uid], c)
		}
	}
	for _, l := range r.layoutOrder { // also those that were deleted: somebody may serve by that name, or have done so
		if uid := l.rec.UID; uid != "" && !slices.Contains(r.aliases[uid], l.cluster) {
			r.aliases[uid] = append(r.aliases[uid], l.cluster)
		}
	}
	r.aliased = false
	for _, names := range r.aliases {
		r.aliased = r.aliased || len(names) > 1
	}
	ownNames := map[keyspace.ClusterName]bool{}
	for c := range r.given.Bits {
		if !r.remade(c) && r.servedAs(c) == c {
			ownNames[c] = true
		}
	}
	if !maps.Equal(ownNames, r.ownNames) {
		r.ownNames = ownNames
		r.clustersKnown()
		r.touchAll()
	}
}

// changesServed reports whether a layout's change may change which clusters are served.
func (r *Replica) changesServed(l *layout) bool {
	if _, given := r.given.Bits[l.cluster]; given && r.ownNames[l.cluster] == r.remade(l.cluster) {
		return true // it is served though it is another cluster by now, or neither
	}
	names := r.aliases[l.rec.UID]
	return len(names) > 1 || len(names) == 1 && names[0] != l.cluster
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

// remade reports whether the cluster under that name is another than the one its layout was made for, even if that was
// deleted: its records are still there.
func (r *Replica) remade(c keyspace.ClusterName) bool {
	uid, l := r.given.UIDs[c], r.layouts[c]
	return uid != "" && l != nil && l.rec.UID != "" && l.rec.UID != uid
}

// servedAs returns the name under which a cluster is served: the alphabetically first of those of its names that have a
// layout, or of all if none has. A name that this replica doesn't know, or that leads to another cluster by now, counts
// only while a replica serves it: its layout is of the past. If it leads to another cluster, a holder that can't serve
// it doesn't count: that one gives its shards back only when it sees a new layout (see servedWell).
func (r *Replica) servedAs(c keyspace.ClusterName) keyspace.ClusterName {
	uid := r.uidOf(c)
	best, laid := c, r.laid(c, uid)
	for _, other := range r.aliases[uid] {
		_, given := r.given.Bits[other]
		leads := given && r.uidOf(other) == uid
		serves := (*shardState).heldByLiving
		if given {
			serves = r.servedWell
		}
		if !leads && !slices.ContainsFunc(r.of(other), serves) {
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

// underOtherNames returns the highest epoch that the shard's slots had under other names of its cluster, whether an
// incarnation that may be alive holds one of these shards, and whether one's record was deleted recently.
func (r *Replica) underOtherNames(t *shardState) (highest Epoch, held, buried bool) {
	if !r.aliased {
		return 0, false, false
	}
	for _, c := range r.aliases[r.uidOf(t.id.Cluster)] {
		if c == t.id.Cluster {
			continue
		}
		alias := keyspace.ShardID{Cluster: c, Prefix: t.id.Prefix}
		for _, o := range r.of(c) {
			if o.id.Overlaps(alias) {
				floor := min(o.floor, MaxFloor) // one above that was mistyped
				highest, held, buried = max(highest, floor), held || o.heldByLiving(), buried || r.buried(o)
			}
		}
	}
	return highest, held, buried
}

// heldTwice reports whether another replica may serve the slots of a shard that this one holds, under another name of
// its cluster, so that the shard must not be opened yet. No compare-and-swap prevents that, since the two records are
// claimed one by one, and each claimant may have claimed before it saw the other's claim. So a shard of a cluster with
// several names is opened only when this replica knows all that was committed before it saw that it holds the shard: of
// two claimants, the later one then sees the other. A replica that doesn't know the other name yet doesn't wait.
func (r *Replica) heldTwice(t *shardState) bool {
	if !r.aliased || len(r.aliases[r.uidOf(t.id.Cluster)]) < 2 {
		return false
	}
	_, held, _ := r.underOtherNames(t)
	unproven := !r.knowsAllUntil(t.seenAt)
	if unproven && (r.listAskedAt.AtLeast(t.seenAt) < 0 || r.now.Mono >= r.listAgainAt()) {
		r.listAskedAt = r.now
		r.emit(ListRecords{})
	}
	if held || unproven {
		t.bar()
	}
	return held || unproven
}

// awaitsList reports whether a shard isn't opened before a live list of all records is answered: see heldTwice.
func (r *Replica) awaitsList(t *shardState) bool {
	return r.holds(t) && t.phase == warm && t.w == nil && !r.knowsAllUntil(t.seenAt)
}
