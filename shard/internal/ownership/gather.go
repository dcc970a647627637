package ownership

import "slices"

// When many shards move at once, filling caches and handing off keep servers and replicas busy, and each gap grows. So
// a holder whose successor is warm waits while caches are being filled for other moves, anywhere in the fleet, and
// hands off only a few shards at a time. It goes on serving meanwhile. It waits for GatherTimeout at most, so an
// unreachable cluster or a reconcile that doesn't end holds up no other move for longer.

// handoffsAtOnce bounds the shards that a replica hands off at a time.
const handoffsAtOnce = 2

// successorCold reports whether the record shows a planned move whose successor isn't warm. Where the holder is dead,
// no handoff follows.
func (t *shardState) successorCold() bool {
	to := t.rec.Assignee
	return t.known && !t.orphan() && to != "" && to != t.rec.Holder && to != t.rec.Warm
}

// successorWarm reports whether the record shows a planned move whose successor is warm.
func (t *shardState) successorWarm() bool {
	return t.known && t.rec.Holder != "" && t.rec.Warm != "" && t.rec.Warm == t.rec.Assignee
}

// waitsForMoves reports whether a handoff to a warm successor waits: for other moves, up to GatherTimeout, or for as
// long as another handoff fails.
func (r *Replica) waitsForMoves(t *shardState) bool {
	if !t.successorWarm() {
		return false
	}
	return r.handoffFails() || (r.filling > 0 || r.handing >= handoffsAtOnce) &&
		r.now.AtLeast(t.warmAt) < r.cfg.GatherTimeout
}

// handoffFails reports whether a handoff has failed more than once. A drained shard isn't served, so no other shard
// is drained until the home cluster accepts that handoff. Conflicts don't count: they concern only the one record,
// which has changed and can't be read.
func (r *Replica) handoffFails() bool {
	return slices.ContainsFunc(r.waiting, func(w *write) bool {
		return w.waits() && w.tries > 1 && w.cause != Conflict && w.shard != nil && w.shard.phase == drained
	})
}

// recount updates what is counted of a shard's move. It must be called after each change that matters for it: of the
// record, or of its holder.
func (r *Replica) recount(t *shardState) {
	switch {
	case !t.successorWarm():
		t.warmAt = Instant{}
	case t.warmAt.IsZero():
		t.warmAt = r.now
	}
	switch cold := t.successorCold(); {
	case cold == t.filling:
	case cold:
		t.filling = true
		r.filling++
	default:
		t.filling = false
		r.filling--
		r.resumeHandoffs()
	}
}

// resumeHandoffs queues waiting handoffs for a decision, unless they still have to wait for other moves.
func (r *Replica) resumeHandoffs() {
	if r.filling > 0 || r.handing >= handoffsAtOnce {
		return
	}
	for _, t := range r.order {
		if t.phase == active && r.holds(t) && t.successorWarm() {
			r.touch(t)
		}
	}
}
