package ownership

import (
	"slices"
	"time"
)

// An epoch must never be used twice, whatever is forgotten: records that are deleted, a coordinator's record that is
// deleted, a home cluster that is restored from a snapshot. Three things see to that together. Each replica keeps the
// highest epochs that its process has seen ([Memory]). The coordinator's record holds a floor, and every write of that
// record raises the floor to the writer's wall clock at least, in milliseconds since 1970; a handoff counts one, so
// epochs grow more slowly than the clock does. And what may come from another history starts above the floor:
// records that are made anew, records made by hand, and records that were found when the incarnation began.

// epochBand is how far above the epoch floor the first epoch of a record that was made by hand lies, and twice what
// epochs may grow above the floor before it is raised in passing. A new coordinator raises the floor by two bands, and
// a record that is made anew starts two bands above all that is known: nobody alive may have seen the last epochs of
// the old one, and clocks may have been set.
const epochBand = 64

// era is this replica's wall clock as an epoch.
func (r *Replica) era() Epoch { return Epoch(r.now.Wall / time.Millisecond) }

// noteEpoch takes note that an epoch is, or may have been, in use.
func (r *Replica) noteEpoch(e Epoch) { r.highest = max(r.highest, e) }

// raisesFloor reports whether the incarnation waits for a floor that was raised since it began.
func (r *Replica) raisesFloor() bool { return r.lead.Version != 0 && !r.lifted && r.anyFound }

// foundRecords marks what there was when the incarnation began. It may have come back from a snapshot, with epochs that
// were used up since: so it is claimed above a floor that was raised since the incarnation began.
func (r *Replica) foundRecords() {
	r.eraFound, r.lifted, r.anyFound = r.era(), false, false
	for _, t := range r.order {
		t.found = t.known
		r.anyFound = r.anyFound || t.found
	}
	r.lifted = r.lead.Floor >= r.eraFound
}

// foundEmpty reports whether nothing was there when the incarnation began, and nothing may have been there before: who
// has joined is as new to this home cluster as we are.
func (r *Replica) foundEmpty() bool {
	divided := func(l *layout) bool { return l.known }
	return !r.another && r.foundLeft() && r.lead.Version == 0 && r.highest == 0 && !slices.ContainsFunc(r.layoutOrder, divided)
}

// leadLive reports whether the coordinator's record was read live in this very step. If not, it asks for that read,
// whose answer has everything decided anew.
func (r *Replica) leadLive() bool {
	r.leadWanted = r.leadWanted || !r.leadRead
	return r.leadRead
}

// findLead sends the read that leadLive asked for.
func (r *Replica) findLead() {
	if r.leadWanted && r.now.AtLeast(r.leadSeekAt) >= 0 {
		r.leadSeekAt = r.now.Add(r.cfg.LeaseDuration / 20)
		r.emit(FindLead{})
	}
}

// leadFound takes the answer to that read.
func (r *Replica) leadFound(l Lead) {
	r.leadSeen(l)
	if l.Version == r.lead.Version { // else a newer one was seen meanwhile
		r.leadRead, r.leadWanted = true, false
		r.touchAll()
	}
}

// leadGone takes the deletion of the coordinator's record. The floor that it held isn't lost: the first in line makes the
// record anew, above all that it knows.
func (r *Replica) leadGone() {
	if r.lead.Version != 0 {
		r.leadLeast = r.lead.Version + 2 // nothing older follows the deletion
	}
	r.lead, r.leader = Lead{}, nil
	if r.leadWrite != nil && r.leadWrite.base != 0 {
		r.forget(r.leadWrite)
		r.leadWrite = nil
	}
	r.replan = true
}

// claimEpoch returns the epoch at which a shard may be claimed now; ok is false where that must wait.
func (r *Replica) claimEpoch(t *tenure) (_ Epoch, ok bool) {
	if t.found && !r.lifted {
		return 0, false // the sight of a higher floor has it decided anew
	}
	before := max(t.floor, r.lead.Floor) // the epoch before ours
	if t.rec.Epoch != 0 {
		return before + 1, true
	}
	before = max(before, r.highest) // its creation may have been under way since before an earlier one was deleted
	if t.rec.Floor > r.lead.Floor {
		return before + 1, true
	}
	// Made by hand, or by a coordinator that has been succeeded. It may stand for one that was deleted before we looked:
	// then its old holder needs time to see that, and its epochs are known only from the coordinator.
	if known := r.syncedAt.Add(r.cfg.BuryTime); t.rec.Floor == 0 && r.now.AtLeast(known) < 0 {
		t.freeAt = known
		return 0, false
	}
	if !r.leadLive() {
		return 0, false
	}
	return max(before, r.lead.Floor+epochBand) + 1, true
}
