package ownership

import "slices"

// When many shards move at once, the filling of caches and the handoffs themselves keep servers and replicas busy,
// and each gap gets longer. So a holder whose successor is warm waits for the caches that are still being filled for
// other moves, anywhere in the fleet, and hands few shards off at a time. They are served meanwhile, and what takes
// long (a cluster that can't be reached, a reconcile that doesn't end) holds nobody up for longer than GatherTimeout.

// handoffsAtOnce is how many shards a replica hands off at a time.
const handoffsAtOnce = 2

// fills reports whether the record tells of a planned move whose successor isn't warm.
func (t *tenure) fills() bool {
	to := t.rec.Assignee
	return t.known && t.rec.Holder != "" && to != "" && to != t.rec.Holder && to != t.rec.Warm
}

// warmed reports whether the record tells of a planned move whose successor is warm.
func (t *tenure) warmed() bool {
	return t.known && t.rec.Holder != "" && t.rec.Warm != "" && t.rec.Warm == t.rec.Assignee
}

// gathers reports whether a shard that could be handed off waits for others.
func (r *Replica) gathers(t *tenure) bool {
	if !t.warmed() {
		return false
	}
	return r.handoffFails() || (r.filling > 0 || r.handing >= handoffsAtOnce) && r.now.AtLeast(t.warmAt) < r.cfg.GatherTimeout
}

// handoffFails reports whether a handoff has been tried in vain more than once. What is drained isn't served, so nothing
// else is drained before the home cluster takes that one.
func (r *Replica) handoffFails() bool {
	return slices.ContainsFunc(r.waiting, func(w *write) bool {
		return w.waits && w.tries > 1 && w.about.shard != nil && w.about.shard.phase == drained
	})
}

// enter changes a shard's phase, and lets the next one go when a handoff is done.
func (r *Replica) enter(t *tenure, p phase) {
	before := t.phase
	t.phase = p
	r.engage(t, before, p)
	switch {
	case before.handsOff() == p.handsOff():
	case p.handsOff():
		r.handing++
	default:
		r.handing--
		r.goOn()
	}
}

// handsOff reports whether nothing starts any more and the record doesn't tell yet.
func (p phase) handsOff() bool { return p == draining || p == drained }

// recount takes note of a record's change: before it, filled and warm were what fills and warmed say.
func (r *Replica) recount(t *tenure, filled, warm bool) {
	if !warm && t.warmed() {
		t.warmAt = r.now
	}
	switch fills := t.fills(); {
	case fills == filled:
	case fills:
		r.filling++
	default:
		r.filling--
		r.goOn()
	}
}

// goOn has those that wait decided anew, if there is nothing left to wait for.
func (r *Replica) goOn() {
	if r.filling > 0 || r.handing >= handoffsAtOnce {
		return
	}
	for _, t := range r.order {
		if t.phase == active && r.holds(t) && t.warmed() {
			r.touch(t)
		}
	}
}
