package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/plan"
)

// filled handles the end of a warm-up, which shows that the cluster can be served.
func (r *Replica) filled(t *shardState) {
	t.fillTime = min(2*r.now.AtLeast(t.fillFrom), mostFill*r.cfg.FillTimeout)
	s := r.site(t.id.Cluster)
	r.fit.stale = r.fit.stale || s.health == unusable || s.late.count > 0
	s.health, s.confirmedAt, s.late = usable, r.now, holdOff{}
}

// mostFill bounds how long a warm-up may take, in FillTimeouts.
const mostFill = 64

// fillTimeout returns how long a warm-up may take. For each shard it doubles with each warm-up that took too long,
// until one ends, however much time passes: if it began anew meanwhile, replicas would hand a shard that takes longer
// to each other for ever. From then on, a warm-up may take twice as long as that one did.
func (r *Replica) fillTimeout(t *shardState) time.Duration { return max(r.cfg.FillTimeout, t.fillTime) }

// fills reports whether a warm-up with a deadline is under way. Standing by for a late peer has no deadline.
func (r *Replica) fills(t *shardState) bool {
	return t.phase == warming && t.known && (t.rec.Holder == r.cfg.ID || t.rec.Assignee == r.cfg.ID)
}

// overdue reports whether the latest warm-up has missed a deadline.
func (t *shardState) overdue() bool { return t.warmingAt != t.fillFrom }

// awaitFilling counts a warm-up that missed its deadline as trouble.
func (r *Replica) awaitFilling(t *shardState) {
	if !r.fills(t) {
		return
	}
	if limit := r.fillTimeout(t); r.now.AtLeast(t.warmingAt) >= limit {
		switch s := r.site(t.id.Cluster); {
		case t.warmingAt.AtLeast(s.lateAt) >= 0, s.late.count == 0:
			s.late.trouble(r)
			s.lateAt = r.now
		case !s.late.holds(r): // of shards that are filled together, only the first counts
			s.late.hold(r)
		}
		t.fillTime = min(2*limit, mostFill*r.cfg.FillTimeout)
		t.warmingAt = r.now
		r.fit.stale = true
		r.touch(t)
	}
}

// givesBack reports whether a shard that is held here, and can't be served here, should go to a replica that can serve
// it.
func (r *Replica) givesBack(t *shardState) bool {
	c := t.id.Cluster
	return t.overdue() && !r.fit.stale && r.fitness(c) != plan.Fit && r.othersTake(c) && r.statementsSteady(c)
}
