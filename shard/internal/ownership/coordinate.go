package ownership

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/plan"
)

// plansAtOnce bounds a replica's changes of plan in flight. Each makes another replica fill caches, and when many
// replicas leave at once, renewals must not wait behind all of that. Where plans are made less often, up to four times
// as many may be in flight.
const plansAtOnce = 8

// plan runs the planner on what this replica sees and carries out its own part: it claims orphans that fall to it and
// moves its shards away when it leaves. As coordinator it does everything else.
func (r *Replica) plan() {
	if r.Leads() && !r.mixed() {
		r.divide()
		r.retire()
	}
	replicas, suspects := r.replicas((*peer).dead)
	free := plansAtOnce * min(max(1, int(r.planEvery()/(2*r.cfg.PlanEvery))), 4)
	for _, t := range r.order {
		if t.w.planInFlight() {
			free--
		}
	}
	moves := r.planFor(replicas, (*peer).dead, &r.lastPlan)
	unsure := r.unsure(moves)
	for _, m := range moves {
		t := r.shard(m.Shard)
		t.goesTo, t.goesIn = m.To, r.step
		switch {
		case t.w != nil: // its answer triggers another plan; so do the answers that free waits for
		case !t.known:
			if r.ensureLeadRead() { // a coordinator that stood still may have been succeeded, by one that has raised the floor
				r.create(t, m.To)
			}
		case !t.orphan() && free > 0 && r.mayReassign(t, suspects) && !r.postpones(m, unsure):
			r.assign(t, m.To)
			r.track(t)
			free--
		}
	}
	if r.orphans > 0 {
		if r.spareFresh(replicas) {
			for _, m := range r.planFor(replicas, (*peer).dead, &r.lastClaims) {
				t := r.shard(m.Shard)
				t.goesTo, t.goesIn = m.To, r.step
			}
		}
		for _, t := range r.order {
			if t.unserved && t.w == nil && t.goesIn == r.step {
				r.adopt(t, t.goesTo)
				r.track(t)
			}
		}
	}
	r.standBy()
}

// isFresh reports whether an incarnation has to wait before it may claim what was there when it began.
func (r *Replica) isFresh(id Incarnation) bool {
	if id == r.cfg.ID {
		return !r.watched
	}
	p := r.peers[id]
	return p != nil && p.lease.Fresh
}

// spareFresh marks fresh replicas as leaving, so that the planner gives them nothing new, if there are others. It
// reports whether it marked any. A fresh replica must wait before it claims, even an orphan that is assigned to it. So
// another replica claims, if there is one.
func (r *Replica) spareFresh(replicas []plan.Replica) (marked bool) {
	if !slices.ContainsFunc(replicas, func(p plan.Replica) bool { return !p.Leaving && !r.isFresh(p.ID) }) {
		return false
	}
	for i := range replicas {
		if p := &replicas[i]; !p.Leaving && r.isFresh(p.ID) {
			p.Leaving, marked = true, true
		}
	}
	return marked
}

// mayPlan reports whether this replica may have a part in a plan. While every shard has a holder and none of the
// holders is late, only the coordinator and leaving replicas plan.
func (r *Replica) mayPlan() bool {
	return r.Leads() || r.leaving || r.standing || r.anyLate() || r.orphans > 0
}

// latestPlan caches the planner's last answer. Many inputs that lead to planning change nothing that the planner looks
// at.
type latestPlan struct {
	shards   []plan.Shard
	replicas []plan.Replica
	moves    []plan.Move
}

// planFor returns the plan for these replicas, in which holders that gone selects count as none.
func (r *Replica) planFor(replicas []plan.Replica, gone func(*peer) bool, last *latestPlan) []plan.Move {
	shards := r.planShards(gone)
	if !slices.Equal(shards, last.shards) || !slices.Equal(replicas, last.replicas) {
		last.shards, r.planBuffer.shards = shards, last.shards // swapped, since copying tens of thousands takes long
		last.replicas = append(last.replicas[:0], replicas...)
		last.moves = plan.Plan(shards, replicas)
	}
	return last.moves
}

// planShards describes the shards to the planner: those with a record, if their cluster is known here or a live
// replica holds them, and for the coordinator also those whose records are missing. Holders that gone selects count
// as none. The slice is valid until the next call.
func (r *Replica) planShards(gone func(*peer) bool) []plan.Shard {
	shards := slices.Grow(r.planBuffer.shards[:0], len(r.order))
	var of *layout
	met := false // the cluster of that layout is known
	for _, t := range r.order {
		if t.layout != of {
			of = t.layout
			met = r.ownNames[of.cluster]
		}
		if !t.plannable() || (!met && (t.holder == nil || gone(t.holder))) {
			continue // of an unknown cluster, only shards with a live holder count
		}
		s := plan.Shard{ID: t.id, Holder: t.rec.Holder, Assignee: t.planned(), Pin: t.rec.Pin}
		switch {
		case t.w.names(r.cfg.ID): // a claim under way; if it were left out, the next plan would claim another instead
			s.Holder = r.cfg.ID
		case t.holder != nil && gone(t.holder):
			s.Holder = ""
		}
		shards = append(shards, s)
	}
	if r.Leads() {
		for _, id := range r.missing() {
			s := plan.Shard{ID: id}
			if t := r.shards[id]; t != nil {
				s.Assignee = t.planned()
			}
			shards = append(shards, s)
		}
	}
	r.planBuffer.shards = shards
	return shards
}

// planned returns the assignee by the record, or by the write under way. Without the latter, the planner would make the
// same move twice.
func (t *shardState) planned() Incarnation {
	if t.w != nil {
		switch e := t.w.effect.(type) {
		case WriteAssignee:
			return e.Assignee
		case CreateShard:
			return e.Assignee
		}
	}
	if !t.known {
		return ""
	}
	return t.rec.Assignee
}

// create makes a record, as coordinator. In a fleet that this replica founded, the first record for its slots begins
// right above the floor. Anywhere else the slots may have had epochs that this replica has never seen, so the floor is
// raised to the clock first, unless that was done a moment ago.
func (r *Replica) create(t *shardState, to Incarnation) {
	// Of the records that a name had before another cluster got it, those that were deleted don't say which cluster they
	// were about.
	floor, first := r.lead.rec.Floor, r.lead.founded && t.id.Generation == 0
	for _, o := range r.of(t.id.Cluster) {
		if o.id.Overlaps(t.id) {
			floor, first = max(floor, o.floor), first && o.rec.Version == 0
		}
	}
	elsewhere, _, _ := r.underOtherNames(t)
	floor, first = max(floor, elsewhere), first && elsewhere == 0
	if !first {
		if !r.ensureFloorRaised() {
			return
		}
		floor += 2 * epochBand
	}
	t.w = r.send(max(t.rec.Version, 1)-1, t, func(seq uint64) Effect {
		return CreateShard{Seq: seq, ID: t.id, Assignee: to, Floor: min(floor+1, MaxFloor)}
	})
}

// adopt gives an orphan a holder: its assignee while that is alive, otherwise the replica that the plan names, which
// claims the shard itself. If it doesn't in time, the coordinator writes the plan into the record.
func (r *Replica) adopt(t *shardState, to Incarnation) {
	if (r.takesOf(t.rec.Assignee, t.id.Cluster) && !r.isFresh(t.rec.Assignee)) || r.mayReturn(t) {
		return
	}
	switch {
	case to == r.cfg.ID:
		r.claim(t)
	case r.Leads() && !t.orphanAt.IsZero() && r.now.AtLeast(t.orphanAt) > r.cfg.WarmTimeout:
		r.assign(t, to)
	default:
		r.replan = r.replan || r.Leads()
	}
}

// callOffs is how many times per lease duration a leaving assignee calls the same move off.
const callOffs = 4

func (r *Replica) assign(t *shardState, to Incarnation) {
	if t.rec.Assignee == to {
		return
	}
	if r.leaving && !r.holds(t) {
		t.calledOff = r.now
	}
	t.w = r.send(t.rec.Version, t, func(seq uint64) Effect {
		return WriteAssignee{Seq: seq, Base: t.rec.Version, ID: t.id, Assignee: to}
	})
}

// mayReassign reports whether this replica may change the assignee of a shard that has a holder. A leaving holder plans
// for itself. A leaving assignee calls the move off. Both wait until the others can know that they leave: if a
// whole fleet leaves at once, no shard should move from one leaving replica to another. Everything else is the
// coordinator's, which waits while a peer is suspect.
func (r *Replica) mayReassign(t *shardState, suspects bool) bool {
	switch {
	case r.leavesItself(t.rec.Holder):
		return false
	case r.leaving:
		return r.own.leaving && (r.holds(t) || r.awaited(t) && t.calledOff.IsZero())
	}
	return r.Leads() && !suspects
}

// leavesItself reports whether the holder is leaving, and so plans its own shards.
func (r *Replica) leavesItself(id Incarnation) bool {
	p := r.peers[id]
	return p != nil && p.lease.Leaving && !p.expired
}

// awaited reports whether some holder might still hand the shard off to this replica. A leaving replica waits for that:
// a holder that hasn't seen yet that it leaves would hand off to an incarnation that has gone.
func (r *Replica) awaited(t *shardState) bool {
	if !t.known || t.rec.Assignee != r.cfg.ID || t.holder == nil || t.holder.dead() {
		return false // as for nearly all
	}
	return r.ownNames[t.id.Cluster] && len(r.candidates()) > 0
}

// leaveIfDone ends a clean exit once this replica holds nothing, awaits nothing, and has no write under way.
func (r *Replica) leaveIfDone() {
	if !r.leaving || !r.own.leaving {
		return
	}
	keeps := func(t *shardState) bool { return r.holds(t) || r.awaited(t) || t.w != nil || t.phase != idle }
	for range r.order { // where it found one last, there is one still after most steps
		r.keptBy %= len(r.order)
		if keeps(r.order[r.keptBy]) {
			return
		}
		r.keptBy++
	}
	r.over = true
	r.emit(DropLease{})
}
