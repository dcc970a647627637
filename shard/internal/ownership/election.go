package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// leadership is what a replica knows about the coordinator's role.
type leadership struct {
	rec      Lead
	holder   *peer // that rec names; nil for none and for this replica
	w        *write
	since    Instant // when the holder was first seen to be the holder
	succeeds bool    // this replica should take the role from the holder, which is alive
	founded  bool    // this incarnation created the lead record of an empty home cluster
	least    Version // the lowest version that the lead record may have; older ones were deleted
	read     bool    // the lead record was read live in this step
	wanted   bool    // a decision waits for such a read
	seekAt   Instant // when to send that read
}

// leadSeen records a version of the lead record.
func (r *Replica) leadSeen(l Lead) {
	if l.Version <= r.lead.rec.Version || l.Version < r.lead.least {
		return
	}
	// A higher floor was raised since the incarnation began, unless home was set back. That shows only if it has a Lease.
	raised := r.own.member && r.lead.rec.Version != 0 && l.Floor > r.lead.rec.Floor
	if r.synced && !r.epochs.lifted && (raised || l.Floor >= r.epochs.atListing) {
		r.epochs.lifted = true
		r.touchAll()
	}
	if l.Holder != r.lead.rec.Holder {
		r.lead.since, r.lead.succeeds = r.now, false
	}
	r.lead.rec = l
	r.noteEpoch(l.Floor)
	r.lead.holder = r.named(l.Holder)
	if r.lead.w.settled(l.Version) {
		r.lead.founded = r.lead.founded || (r.lead.w.base == 0 && l.Holder == r.cfg.ID && r.empty)
		r.forget(r.lead.w)
		r.lead.w = nil
		r.lead.seekAt = r.now // a decision that waits for a live read may have waited for this write
	}
	r.replan = true
}

// leadWritten handles a committed write of the lead record.
func (r *Replica) leadWritten(v Version) {
	next := r.lead.w.effect.(WriteLead).Lead
	next.Version = v
	r.leadSeen(next)
}

// Leads reports whether this replica is the coordinator by the newest record it saw.
func (r *Replica) Leads() bool { return r.lead.rec.Holder == r.cfg.ID && !r.leaving }

// elect takes the coordinator's role if its holder is sealed or leaves and this replica is first in line, or if the
// holder can't do what this replica could (see [Replica.awaitServing]). The lead record has no heartbeat of its own:
// its holder's lease serves as one. I1 doesn't depend on it, so two coordinators would only waste writes.
func (r *Replica) elect() {
	if !r.synced {
		return
	}
	next := r.lead.rec
	switch {
	case r.leadFree() && r.firstInLine(), r.lead.succeeds && !r.leaving:
		next.Holder = r.cfg.ID
		if r.epochs.highest > 0 {
			next.Floor = r.epochs.highest + 2*epochBand // records that were deleted before we looked may have used that many
		}
	case r.Leads() && min(r.epochs.highest, MaxFloor) > r.lead.rec.Floor+epochBand/2, r.needsFloorRaised():
	default:
		return
	}
	r.writeLead(next)
}

// writeLead writes the lead record, unless a write of it is under way. Each write raises the floor.
func (r *Replica) writeLead(next Lead) {
	if r.lead.w != nil {
		return
	}
	base := r.lead.rec.Version
	// The clock may have been set back.
	next.Floor = min(max(next.Floor, r.epochs.highest, r.era(), r.epochs.atListing), MaxFloor)
	r.lead.w = r.send(base, nil, func(seq uint64) Effect {
		return WriteLead{Seq: seq, Base: base, Lead: next}
	})
}

func (r *Replica) leadFree() bool {
	if r.lead.rec.Holder == r.cfg.ID {
		return false
	}
	p := r.lead.holder
	return p == nil || p.dead() || p.lease.Leaving || p.lease.Version == 0
}

func (r *Replica) firstInLine() bool {
	c := r.candidates()
	return len(c) > 0 && c[0] == r.cfg.ID
}

// leadGone handles the deletion of the lead record. Its floor isn't lost: the first replica in line makes the record
// again, above everything that it knows.
func (r *Replica) leadGone() {
	if r.lead.rec.Version != 0 {
		r.lead.least = r.lead.rec.Version + 2 // anything older is from before the deletion
	}
	r.lead.rec, r.lead.holder = Lead{}, nil
	if r.lead.w != nil && r.lead.w.base != 0 {
		r.drop(&r.lead.w)
	}
	r.replan = true
}

// awaitServing decides whether this replica should take the role from a living coordinator. A coordinator divides only
// clusters that it knows, and one that has never reached a cluster doesn't know it. So a replica that knows a cluster
// which stays without layout or records takes the role, once the coordinator has had the time for which a new one waits
// (BuryTime) and a lease duration more. A replica that has had the role for BuryTime since then, and couldn't help the
// cluster either, waits twice as long before it takes the role for that cluster again.
func (r *Replica) awaitServing() {
	if !r.synced || r.leaving || r.mixed() {
		return
	}
	patience := r.cfg.BuryTime + r.cfg.LeaseDuration
	waited := func(l *layout, d time.Duration) bool {
		return r.now.AtLeast(l.lack.since) >= d && r.now.AtLeast(r.lead.since) >= d
	}
	for _, l := range r.layoutOrder {
		switch {
		case l.complete:
		case !r.lacks(l):
			l.lack = lack{}
		case l.lack.since.IsZero():
			l.lack.since = r.now
		case r.Leads():
			if l.lack.triedIn != r.lead.since && waited(l, r.cfg.BuryTime) {
				l.lack.triedIn = r.lead.since
				l.lack.tries++
			}
		case waited(l, doubled(patience, l.lack.tries)):
			r.lead.succeeds = true
		}
	}
}

// lacks reports whether a cluster that this replica knows has no layout, has that of another cluster which had its
// name, or has a shard without a record that can be claimed. Of a cluster that the replica can't use, it may know
// things that are no longer so.
func (r *Replica) lacks(l *layout) bool {
	c := l.cluster
	if _, given := r.given.Bits[c]; !given || r.servedAs(c) != c || r.site(c).health == unusable {
		return false
	}
	if !l.known || r.remade(c) {
		return true
	}
	l.complete = !slices.ContainsFunc(l.rec.Prefixes, func(p keyspace.Prefix) bool {
		t := r.shards[l.rec.ID(p)]
		return t == nil || !t.known || t.rec.Retired
	})
	return !l.complete
}
