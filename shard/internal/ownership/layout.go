package ownership

import (
	"cmp"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A cluster's layout says which records count. It grants nothing, so replicas that know different layouts must still
// not be able to give a slot two holders. Four rules ensure that:
//
//   - Retiring is a compare-and-swap on the record, so it collides with every claim of it, and it is final.
//   - A record is made only when all that overlap it are retired, or were deleted at least BuryTime ago, and this
//     replica is making none.
//   - A record that was never held is claimed only if a live read shows a layout that lists it, sent after the record
//     was seen, and if all known records that overlap it are retired. No record is claimed while an incarnation that
//     may be alive holds one that overlaps it (contested).
//   - A layout takes effect when the watch, or a live list of all records, shows it: all records older than it are
//     known by then. What the answer to a write or a live read of one layout shows doesn't change what is excluded.
//
// So if two records overlap, the replica that claims the second one for the first time knew the first one and saw it
// retired.

// layout is what this replica knows of a cluster's layout.
type layout struct {
	cluster keyspace.ClusterName
	shards  []*shardState // of the cluster, sorted, whether or not the layout lists them
	known   bool          // it exists, as far as the watch shows
	rec     Layout        // newest version seen
	seenIn  uint64        // the step in which rec, or its deletion, was seen
	seenAt  Instant
	w       *write
	size    size // of the cluster, while it has no layout

	askAt  Instant // when the live read under way counts as lost; zero if there is none
	read   Layout  // what the latest live read found; Version 0 for nothing
	readIn uint64  // the step in which that read was sent

	// These flags save looking at each cluster in each step. A change of the layout, or of any record of its cluster,
	// clears them.
	divided  bool          // the coordinator has nothing to write
	whole    bool          // each shard that it lists has a record
	clean    bool          // no record needs retiring or clearing
	complete bool          // it is this cluster's, and each shard that it lists has a record that isn't retired
	barred   []*shardState // claims that were barred; they are decided again after any change here

	lack      lack
	goneSince Instant // since when, without a break, its cluster is on its way to count as removed; see [Replica.removed]
}

// lack says since when a cluster lacks a layout or records, which only a coordinator can make.
type lack struct {
	since   Instant // zero if it lacks nothing
	tries   int     // how often this replica has since been coordinator for BuryTime, which didn't help
	triedIn Instant // when the last of these terms began
}

// stir clears the flags, so that the coordinator looks at the cluster again.
func (l *layout) stir() { l.divided, l.whole, l.clean, l.complete = false, false, false, false }

// ID returns the shard of the layout with that prefix.
func (l Layout) ID(p keyspace.Prefix) keyspace.ShardID {
	id := keyspace.ShardID{Cluster: l.Cluster, Prefix: p}
	if l.Generation > 1 {
		id.Generation = l.Generation
	}
	return id
}

// Lists reports whether the shard is one of the layout's.
func (l Layout) Lists(id keyspace.ShardID) bool {
	_, found := slices.BinarySearchFunc(l.Prefixes, id.Prefix, keyspace.Prefix.Compare)
	return found && l.ID(id.Prefix) == id
}

// Divides reports whether sorted prefixes cover each slot once.
func Divides(prefixes []keyspace.Prefix) bool {
	next := 0
	for _, p := range prefixes {
		first, last := p.Slots()
		if int(first) != next {
			return false
		}
		next = int(last) + 1
	}
	return next == 1<<keyspace.MaxBits
}

// generation returns the generation of the layout that lists a shard.
func generation(id keyspace.ShardID) uint32 { return max(1, id.Generation) }

// layout returns the state of a cluster's layout, new if it was unknown.
func (r *Replica) layout(c keyspace.ClusterName) *layout {
	if l := r.layouts[c]; l != nil {
		return l
	}
	l := &layout{cluster: c}
	r.layouts[c] = l
	at, _ := slices.BinarySearchFunc(r.layoutOrder, c,
		func(l *layout, c keyspace.ClusterName) int { return cmp.Compare(l.cluster, c) })
	r.layoutOrder = slices.Insert(r.layoutOrder, at, l)
	return l
}

func (r *Replica) layoutSeen(n Layout) {
	l := r.layout(n.Cluster)
	if n.Version > l.rec.Version || (n.Version == l.rec.Version && !l.known) {
		l.rec = n
		r.layoutChanged(l, true)
	}
}

func (r *Replica) layoutGone(in LayoutGone) {
	if l := r.layouts[in.Cluster]; l != nil && l.known {
		l.rec.Version += 2 // anything older is from before the deletion
		r.layoutChanged(l, false)
	}
}

// layoutChanged applies what a new version, or a deletion, excludes.
func (r *Replica) layoutChanged(l *layout, known bool) {
	l.known, l.seenIn, l.seenAt, l.size = known, r.step, r.now, size{}
	l.stir()
	r.settle(&l.w, l.rec.Version)
	for _, t := range r.of(l.cluster) {
		t.excluded = r.excludes(t.id)
		r.noteExcluded(t)
		r.touch(t)
	}
	if r.changesServed(l) {
		r.chooseNames()
	}
	r.replan = true
}

// layoutRead handles the answer to a live read.
func (r *Replica) layoutRead(in LayoutRead) {
	l := r.layout(in.Cluster)
	if in.Ask > l.readIn {
		l.askAt, l.read, l.readIn = Instant{}, in.Layout, in.Ask
		r.touchBarred(l)
	}
}

// excludes reports whether the newest layout of its cluster doesn't list a shard.
func (r *Replica) excludes(id keyspace.ShardID) bool {
	l := r.layouts[id.Cluster]
	return l != nil && l.known && !l.rec.Lists(id)
}

// of returns the shards of a cluster, sorted. The slice is valid until another shard becomes known.
func (r *Replica) of(c keyspace.ClusterName) []*shardState {
	if l := r.layouts[c]; l != nil {
		return l.shards
	}
	return nil
}

// plannable reports whether the planner should see the shard.
func (t *shardState) plannable() bool { return t.known && !t.excluded && !t.rec.Retired }

// buried reports whether a record of this name was deleted so recently that its holder may not have seen it. A record
// made in its place, even a retired one, says nothing about that holder.
func (r *Replica) buried(t *shardState) bool { return r.now.AtLeast(t.freeAt) < 0 }

// heldByLiving reports whether an incarnation that may be alive holds the shard.
func (t *shardState) heldByLiving() bool { return t.known && t.rec.Holder != "" && !t.orphan() }

// heldByDead reports whether the record, which isn't excluded, names a dead incarnation.
func (t *shardState) heldByDead() bool { return t.plannable() && t.rec.Holder != "" && t.orphan() }

// withLayouts is the first version of the protocol that knows layouts.
const withLayouts = 3

// mixed reports whether a replica that knows no layouts may be alive. Until it is gone no layout is made, and records
// are made and claimed without one.
func (r *Replica) mixed() bool {
	return slices.ContainsFunc(r.peerOrder, func(p *peer) bool {
		return p.lease.Version != 0 && !p.lease.Sealed && (p.lease.Protocol < withLayouts || p.lease.Unreadable)
	})
}

// bars reports whether an orphan must not be claimed now. A barred claim is decided again after any change in its
// cluster.
func (r *Replica) bars(t *shardState) bool {
	if t.excluded || t.rec.Retired {
		return true
	}
	bars := (t.rec.Epoch == 0 && !r.shownBy(t)) || r.contested(t)
	if bars {
		t.bar()
	}
	return bars
}

// bar notes that a decision about the shard is to be made again after any change in its cluster.
func (t *shardState) bar() {
	if !t.barred {
		t.barred = true
		t.layout.barred = append(t.layout.barred, t)
	}
}

// contested reports whether a record that overlaps t's prevents claiming t.
func (r *Replica) contested(t *shardState) bool {
	first := t.rec.Epoch == 0
	for _, o := range t.layout.shards {
		switch {
		case o == t || !o.id.Overlaps(t.id):
		case o.heldByLiving():
			return true
		case !first:
		case o.known && !o.rec.Retired && (o.excluded || o.rec.Epoch > 0 || (o.rec.Floor > 0 && t.rec.Floor == 0)):
			return true
		case r.buried(o):
			return true
		}
	}
	_, held, buried := r.underOtherNames(t)
	return held || buried
}

// shownBy reports whether a live read showed a layout that lists the shard, sent after the shard's record and its
// layout were last seen. If none was sent yet, it requests one.
func (r *Replica) shownBy(t *shardState) bool {
	l := t.layout
	if l.readIn >= max(t.seenIn, l.seenIn) {
		return l.read.Lists(t.id) || (l.read.Version == 0 && r.mixed())
	}
	if l.askAt.IsZero() {
		l.askAt = r.now.Add(r.cfg.LeaseDuration / 20)
		r.asked = append(r.asked, question{l, l.askAt})
		r.emit(FindLayout{Ask: r.step, Cluster: l.cluster})
	}
	return false
}

// unbar queues barred claims again if something happened in their cluster that may have changed the answer.
func (r *Replica) unbar() {
	for len(r.asked) > 0 {
		q := r.asked[0]
		if q.open() {
			if r.now.AtLeast(q.at) < 0 {
				break
			}
			q.of.askAt = Instant{} // the answer was lost
			r.touchBarred(q.of)
		}
		r.asked = r.asked[1:]
	}
	for _, t := range r.dirty[:len(r.dirty):len(r.dirty)] {
		r.touchBarred(t.layout)
	}
	if len(r.dirty) > 0 { // what happens under one name matters for the other names
		r.touchAliased()
	}
}

// touchAliased queues the barred shards of all clusters again if some cluster has several names.
func (r *Replica) touchAliased() {
	if r.aliased {
		for _, l := range r.layoutOrder {
			r.touchBarred(l)
		}
	}
}

func (r *Replica) touchBarred(l *layout) {
	for _, t := range l.barred {
		t.barred = false
		r.touch(t)
	}
	l.barred = l.barred[:0]
}

// question is a live read of a layout under way, and when it counts as lost.
type question struct {
	of *layout
	at Instant
}

// open reports whether the read is still waited for.
func (q question) open() bool { return q.of.askAt == q.at }
