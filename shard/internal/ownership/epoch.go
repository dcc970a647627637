package ownership

import (
	"slices"
	"time"
)

// An epoch must never be used twice, whatever is lost: deleted records, a deleted lead record, a home cluster restored
// from a snapshot. Three measures together ensure that. Each process remembers the highest epochs that it has seen
// ([Memory]). The lead record holds a floor, and each write of it raises the floor at least to the writer's wall clock
// in milliseconds since 1970; a handoff adds one, so epochs grow more slowly than the clock. And every record that may
// come from another history starts above the floor: one made again after a deletion, one made by hand, and one found
// when the incarnation began.

// epochBand is the distance by which epochs that might collide are kept apart:
//
//   - The coordinator raises the floor when an epoch is more than half a band above it.
//   - A record that a former coordinator made is first claimed one band above the floor, and one made by hand one
//     and a half bands above it.
//   - A new coordinator raises the floor by two bands, and a record that is made again starts two bands above
//     everything known. Perhaps no live replica saw the old record's last epochs, and clocks may have been set.
const epochBand = 64

// MaxFloor is the highest floor that counts, and the highest that is ever written. No clock reaches it, so a floor or
// an epoch near it was mistyped. Every replica remembers a floor for good, and the epochs above it must not overflow.
// Once a fleet has come to it, a record that is made again is claimed above what its claimant remembers, and no
// higher.
const MaxFloor Epoch = 1 << 62

// era returns this replica's wall clock as an epoch.
func (r *Replica) era() Epoch { return Epoch(r.now.Wall / time.Millisecond) }

// epochs is what a replica knows about the epochs that were given out.
type epochs struct {
	highest   Epoch // seen in any record
	excluded  Epoch // seen in any record that its cluster's layout doesn't list
	atListing Epoch // the wall clock, as an epoch, when the first listing was complete
	lifted    bool  // the floor was raised since then
	anyFound  bool  // some shard record was found when the incarnation began (shardState.found)
}

// noteEpoch records that an epoch is, or may have been, in use.
func (r *Replica) noteEpoch(e Epoch) { r.epochs.highest = max(r.epochs.highest, e) }

// noteExcluded records the epoch of a shard if it is excluded.
func (r *Replica) noteExcluded(t *shardState) {
	if t.excluded {
		r.epochs.excluded = max(r.epochs.excluded, min(t.floor, MaxFloor)) // one above that was mistyped
	}
}

// needsFloorRaised reports whether the incarnation needs the floor raised, since it hasn't been raised after the
// incarnation began.
func (r *Replica) needsFloorRaised() bool {
	return r.lead.rec.Version != 0 && !r.epochs.lifted && r.epochs.anyFound
}

// foundRecords marks the records of the first listing. They may come from a snapshot, with epochs that were used since
// then. So they are claimed only above a floor that was raised after the incarnation began.
func (r *Replica) foundRecords() {
	r.epochs.atListing, r.epochs.lifted, r.epochs.anyFound = r.era(), false, false
	for _, t := range r.order {
		t.found = t.known
		r.epochs.anyFound = r.epochs.anyFound || t.found
	}
	r.epochs.lifted = r.lead.rec.Floor >= r.epochs.atListing
}

// foundLate reports whether a record that is seen for the first time was held before the first listing. The home
// cluster may have been set back since then, and this incarnation had no Lease yet that would have shown it.
func (r *Replica) foundLate(t *shardState, s Shard) bool {
	return r.synced && !t.known && s.Epoch > 0 && s.Epoch < r.epochs.atListing
}

// neverUsed reports whether the first listing showed a home cluster that no fleet has used: it has no lead record,
// no layout and no epoch, its only Leases are of replicas that are starting, and this process has seen no other
// history.
func (r *Replica) neverUsed() bool {
	divided := func(l *layout) bool { return l.known }
	return !r.another && r.allLeft() && r.lead.rec.Version == 0 && r.epochs.highest == 0 &&
		!slices.ContainsFunc(r.layoutOrder, divided)
}

// ensureLeadRead reports whether the lead record was read live in this very step. If not, it requests that read, and
// the answer triggers all decisions again.
func (r *Replica) ensureLeadRead() bool {
	r.lead.wanted = r.lead.wanted || !r.lead.read
	return r.lead.read
}

// findLead sends the read that ensureLeadRead requested.
func (r *Replica) findLead() {
	if r.lead.wanted && r.now.AtLeast(r.lead.seekAt) >= 0 {
		r.lead.seekAt = r.now.Add(r.cfg.LeaseDuration / 20)
		r.emit(FindLead{})
	}
}

// leadFound handles the answer to that read.
func (r *Replica) leadFound(l Lead) {
	r.leadSeen(l)
	if l.Version == r.lead.rec.Version { // otherwise a newer one was seen in the meantime
		r.lead.read, r.lead.wanted = true, false
		r.touchAll()
	}
}

// ensureFloorRaised reports whether the floor was raised to the clock a moment ago. If not, it is raised now, and all
// decisions are triggered again after that. What a lost history gave out may be remembered by nobody, or only by
// others; but it was given out before home went back.
func (r *Replica) ensureFloorRaised() bool {
	if r.lead.rec.Floor+Epoch(r.cfg.LeaseDuration/time.Millisecond) >= r.era() {
		return true
	}
	r.writeLead(r.lead.rec)
	r.lead.wanted = true
	return false
}

// claimEpoch returns the epoch at which a shard may be claimed now; ok is false if the claim must wait.
func (r *Replica) claimEpoch(t *shardState) (_ Epoch, ok bool) {
	if t.found && !r.epochs.lifted {
		return 0, false // the sight of a higher floor triggers the decision again
	}
	elsewhere, _, _ := r.underOtherNames(t)
	// The epoch before ours. The cluster may have had a name that another one has now: its records there are excluded.
	before := max(t.floor, r.lead.rec.Floor, elsewhere, r.epochs.excluded)
	if t.rec.Epoch != 0 {
		return before + 1, true
	}
	before = max(before, r.epochs.highest) // its creation may have been sent before an earlier record was deleted
	if t.rec.Floor > r.lead.rec.Floor {
		return before + 1, true
	}
	// The record was made by hand, or by a coordinator that has a successor. It may replace one that came and went while
	// we didn't look: before the first listing, or between two lists. The old holder then needs time to see the deletion,
	// and only the coordinator knows the old epochs.
	if known := t.cameAt.Add(r.cfg.BuryTime); t.rec.Floor == 0 && r.now.AtLeast(known) < 0 {
		t.freeAt = known
		return 0, false
	}
	if !r.ensureLeadRead() || !r.ensureFloorRaised() {
		return 0, false
	}
	band := Epoch(epochBand)
	if t.rec.Floor == 0 {
		band += epochBand / 2 // it may replace one that a coordinator with a successor made, and that was claimed one band up
	}
	return max(before, r.lead.rec.Floor+band) + 1, true
}
