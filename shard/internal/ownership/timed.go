package ownership

import (
	"slices"
	"time"
)

// Few of the shards wait for a time, and few are unserved. Both are kept in mind from step to step, since looking at
// each of tens of thousands of shards for that would take most of a step.

// touchDue does what depends on time alone, and queues the shards that may have to be decided because time passed.
func (r *Replica) touchDue() {
	r.awaitServing()
	if !r.remakeAt.IsZero() && r.now.AtLeast(r.remakeAt) >= 0 {
		r.remakeAt = Instant{}
		r.replan = true
	}
	r.timed = slices.DeleteFunc(r.timed, func(t *shardState) bool {
		t.timed = r.waitsForTime(t)
		return !t.timed
	})
	r.timedAt = r.now.Mono + time.Hour
	for _, t := range r.timed {
		r.awaitFilling(t)
		if !t.calledOff.IsZero() && r.now.AtLeast(t.calledOff) >= r.cfg.LeaseDuration/callOffs {
			t.calledOff, r.replan = Instant{}, true
		}
		free := !t.freeAt.IsZero() && r.now.AtLeast(t.freeAt) >= 0
		if free {
			t.freeAt = Instant{}
		}
		if free || (t.overdue() && t.phase == warming) || r.awaitsList(t) ||
			(r.holds(t) && (r.leaving || (t.phase == active && t.successorWarm()))) {
			r.touch(t)
		}
		r.timedAt = min(r.timedAt, t.wake(r))
	}
}

// track counts the shard if it is unserved, and notes whether it may need a decision because time passes. Steps then
// needn't look at every shard. It must be called after each change that matters for either.
func (r *Replica) track(t *shardState) {
	if now := r.isUnserved(t); now != t.unserved {
		t.unserved = now
		if now {
			r.orphans++
		} else {
			r.orphans--
		}
	}
	if !r.waitsForTime(t) {
		return
	}
	if !t.timed {
		t.timed = true
		r.timed = append(r.timed, t)
	}
	r.timedAt = min(r.timedAt, t.wake(r))
}

// isUnserved reports whether a plan may give the shard, which no replica that may be alive holds, a holder. What a
// removed cluster left behind waits until somebody adds the cluster again.
func (r *Replica) isUnserved(t *shardState) bool {
	if !t.plannable() || !t.orphan() {
		return false
	}
	return r.ownNames[t.id.Cluster]
}

// waitsForTime reports whether the shard may need a decision because time passes.
func (r *Replica) waitsForTime(t *shardState) bool {
	return !t.freeAt.IsZero() || !t.calledOff.IsZero() || t.phase == warming || r.awaitsList(t) ||
		(r.holds(t) && (r.leaving || t.successorWarm()))
}

// wake returns when the shard needs a decision even if no input arrives.
func (t *shardState) wake(r *Replica) time.Duration {
	wake := r.now.Mono + time.Hour
	if !t.freeAt.IsZero() {
		wake = min(wake, t.freeAt.Mono)
	}
	if !t.calledOff.IsZero() {
		wake = min(wake, t.calledOff.Mono+r.cfg.LeaseDuration/callOffs)
	}
	if r.awaitsList(t) {
		wake = min(wake, r.listAgainAt())
	}
	if r.fills(t) {
		wake = min(wake, t.warmingAt.Mono+r.fillTimeout(t))
	}
	if due := t.warmAt.Mono + r.cfg.GatherTimeout; due > r.now.Mono && r.holds(t) && t.successorWarm() {
		wake = min(wake, due)
	}
	if due := t.moveAt.Mono + r.cfg.LeaveTimeout; due > r.now.Mono && r.leaving && r.holds(t) {
		wake = min(wake, due)
	}
	return wake
}
