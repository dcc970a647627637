package ownership

import (
	"cmp"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
)

// divide ensures, as coordinator, that each cluster has a layout that can be served.
func (r *Replica) divide() {
	for _, l := range r.layoutOrder {
		if l.divided {
			continue
		}
		c := l.cluster
		if _, given := r.given.Bits[c]; !given || l.w != nil || r.servedAs(c) != c {
			continue
		}
		next, ok := r.nextLayout(l)
		if !ok || next.Generation > keyspace.MaxGeneration {
			continue
		}
		l.w = r.send(next.Version, nil, func(seq uint64) Effect {
			same := l.known && next.Generation == l.rec.Generation
			return WriteLayout{Seq: seq, Base: next.Version, Layout: next, OnlyUID: same}
		})
	}
}

// nextLayout returns the layout that a cluster needs, with the version that it replaces; ok is false if it needs none
// or can't get it yet.
func (r *Replica) nextLayout(l *layout) (next Layout, ok bool) {
	c := l.cluster
	uid := r.given.UIDs[c]
	next = l.rec
	switch {
	case !l.known:
		if !r.mayRemake() {
			return next, false
		}
		bits := r.given.Bits[c]
		if r.isNew(c) {
			if bits, ok = r.newBits(l); !ok {
				return next, false
			}
		}
		next = r.derive(c, bits)
		next.UID = cmp.Or(l.rec.UID, uid) // if a layout was deleted, the records are of the cluster that it was made for
		return next, true
	case l.rec.UID != "" && uid != "" && l.rec.UID != uid:
		// The name leads to another cluster, unless this replica knows the old one, and can't reach the new one. Replicas
		// that can serve the old one's shards give them back first.
		if r.site(c).health == unusable || slices.ContainsFunc(r.of(c), r.servedWell) {
			return next, false
		}
		// The old one may have another name by now, under which it mustn't be served while it is served under this one.
		// While this layout has its UID, every replica knows that. So all records are retired first, by a layout that
		// doesn't list them.
		if slices.ContainsFunc(r.of(c), (*shardState).plannable) {
			next.Generation = r.nextGeneration(c)
			return next, true
		}
		if slices.ContainsFunc(r.of(c), func(t *shardState) bool { return t.known && !t.rec.Retired || r.buried(t) }) {
			return next, false
		}
		bits, ok := r.newBits(l)
		if !ok {
			return next, false
		}
		next.Generation, next.Prefixes = r.nextGeneration(c), keyspace.Partition(bits)
	case slices.ContainsFunc(r.of(c), func(t *shardState) bool { return t.rec.Retired && t.known && !t.excluded }):
		next.Generation = r.nextGeneration(c) // a retired record can't be held again, so a new one is needed
	case l.rec.UID == "" && uid != "": // the layout stays as it is, with the UID
	default:
		l.divided = true
		return next, false
	}
	if uid != "" {
		next.UID = uid
	}
	return next, true
}

// servedWell reports whether a shard has a holder that may be alive and doesn't say that it can't serve the
// cluster. A holder that reaches neither the old cluster nor the new one gives its shards up only when it sees a
// new layout.
func (r *Replica) servedWell(t *shardState) bool {
	return t.heldByLiving() && (t.holder == nil || t.holder.lease.Unfit.Of(t.id.Cluster) != plan.Unfit)
}

// nextGeneration returns a generation that no record of the cluster has used: the one after all of them or, if somebody
// has made a record of the last one by hand, the first unused one after the layout's.
func (r *Replica) nextGeneration(c keyspace.ClusterName) uint32 {
	l := r.layout(c)
	last := l.rec.Generation
	used := map[uint32]bool{}
	for _, t := range r.of(c) {
		used[generation(t.id)] = true
		last = max(last, generation(t.id))
	}
	if last < keyspace.MaxGeneration {
		return last + 1
	}
	next := uint32(1)
	if l.known {
		next += l.rec.Generation
	}
	for used[next] {
		next++
	}
	return next
}

// rank returns how much a record counts when a layout is derived from records; 0 for nothing.
func (t *shardState) rank() int {
	switch {
	case !t.known || t.rec.Retired:
		return 0
	case t.heldByLiving():
		return 3
	case t.rec.Epoch > 0:
		return 2
	case t.rec.Floor > 0:
		return 1
	}
	return 0
}

// derive makes a layout from existing records: first those that live replicas hold, then those that were ever held,
// then those that a coordinator made. Slots that none of them covers are divided by that many bits.
func (r *Replica) derive(c keyspace.ClusterName, bits int) Layout {
	records := r.of(c)
	l, best := Layout{Cluster: c, Generation: 1}, 0
	for _, t := range records {
		if k := t.rank(); k > best || (k == best && k > 0 && generation(t.id) > l.Generation) {
			best, l.Generation = k, generation(t.id)
		}
	}
	if best == 0 && slices.ContainsFunc(records, func(t *shardState) bool { return t.known && t.rec.Retired }) {
		l.Generation = r.nextGeneration(c)
	}
	var taken []keyspace.Prefix
	for ; best > 0; best-- {
		for _, t := range records {
			overlaps := func(p keyspace.Prefix) bool { return t.id.Overlaps(keyspace.ShardID{Cluster: c, Prefix: p}) }
			if t.rank() == best && generation(t.id) == l.Generation && !slices.ContainsFunc(taken, overlaps) {
				taken = append(taken, t.id.Prefix)
			}
		}
	}
	l.Prefixes = r.cover(nil, l, keyspace.Prefix{}, taken, bits)
	return l
}

// cover appends prefixes that cover p: the taken ones, and elsewhere the largest that have at least bits bits and whose
// records aren't retired.
func (r *Replica) cover(prefixes []keyspace.Prefix, l Layout, p keyspace.Prefix, taken []keyspace.Prefix,
	bits int) []keyspace.Prefix {
	if slices.Contains(taken, p) {
		return append(prefixes, p)
	}
	inside := slices.ContainsFunc(taken, func(q keyspace.Prefix) bool {
		first, _ := q.Slots()
		return p.ContainsSlot(first)
	})
	t := r.shards[l.ID(p)]
	retired := t != nil && t.known && t.rec.Retired
	lower, upper, err := p.Split()
	if err != nil || (!inside && !retired && p.Bits() >= bits) {
		return append(prefixes, p)
	}
	return r.cover(r.cover(prefixes, l, lower, taken, bits), l, upper, taken, bits)
}

// mayRemake reports whether records that were deleted before the first listing can be made again, because their old
// holders have stopped by now. A fleet that this replica founded has no such records. But its first listing may have
// been old, and where layouts don't order what is made, nothing else shows that a record was missing from it.
func (r *Replica) mayRemake() bool {
	if (r.lead.founded && !r.mixed()) || r.now.AtLeast(r.syncedAt) >= r.cfg.BuryTime {
		return true
	}
	r.remakeAt = r.syncedAt.Add(r.cfg.BuryTime)
	return false
}

// missing lists the shards that a layout lists, or would list, and that have no record. It leaves out those whose slots
// may still have an old holder.
func (r *Replica) missing() []keyspace.ShardID {
	if !r.mayRemake() {
		return nil
	}
	var ids []keyspace.ShardID
	for _, l := range r.layoutOrder {
		if l.whole {
			continue
		}
		c := l.cluster
		if !r.ownNames[c] {
			continue
		}
		divided := l.rec
		switch {
		case l.known:
		case r.mixed():
			divided = r.derive(c, r.given.Bits[c])
		default:
			continue
		}
		l.whole = true
		var occupied *[1 << keyspace.MaxBits]bool
		for _, p := range divided.Prefixes {
			id := divided.ID(p)
			t := r.shards[id]
			if t != nil && t.known {
				continue
			}
			l.whole = false
			if t != nil && t.w.creates() { // not yet there, and planned for
				ids = append(ids, id)
				continue
			}
			if occupied == nil {
				occupied = r.occupied(c)
			}
			if first, last := p.Slots(); !slices.Contains(occupied[first:int(last)+1], true) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// occupied marks the slots of a cluster in which no record may be made: a record that covers them isn't retired, was
// deleted only recently, or is being made by this replica.
func (r *Replica) occupied(c keyspace.ClusterName) *[1 << keyspace.MaxBits]bool {
	var slots [1 << keyspace.MaxBits]bool
	for _, t := range r.of(c) {
		if !r.buried(t) && (!t.known || t.rec.Retired) && !t.w.creates() {
			continue
		}
		first, last := t.id.Prefix.Slots()
		for s := int(first); s <= int(last); s++ {
			slots[s] = true
		}
	}
	return &slots
}

// clearsAtOnce bounds the clearings in flight: nothing waits for them, and other writes shouldn't wait behind them.
const clearsAtOnce = 8

// retire retires, as coordinator, excluded records that no live replica holds. A live holder retires its own. It clears
// the records of removed clusters, which nobody claims: a sealed lease stays while a record names its incarnation.
func (r *Replica) retire() {
	free := clearsAtOnce
	for _, w := range r.writes {
		if e, ok := effectOf[WriteShard](w); ok && e.Kind == Clear {
			free--
		}
	}
	for _, l := range r.layoutOrder {
		if l.clean {
			continue
		}
		l.clean = true
		removed := r.removed(l)
		for _, t := range r.of(l.cluster) {
			l.clean = l.clean && (!t.excluded || t.rec.Retired)
			if !t.known || t.rec.Retired || t.w != nil || !t.orphan() {
				continue
			}
			s := t.rec
			s.Holder, s.Warm, s.Retired = "", "", t.excluded
			switch {
			case t.excluded:
				r.writeShard(t, Retire, s)
			case t.rec.Holder == "" || r.ownNames[l.cluster]:
			case removed && free > 0:
				r.writeShard(t, Clear, s)
				free--
			default:
				l.clean = false // something changes first, or an answer makes room
			}
		}
	}
}
