package ownership

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/plan"
)

// write is one compare-and-swap that isn't settled. An answer settles it. So does the sight of any version newer
// than the one that the write replaces: either that version is its result, or it can never be committed any more.
type write struct {
	seq     uint64
	shard   *shardState // whose record it writes; nil if it writes another record
	base    Version
	effect  Effect
	retryAt Instant // when it will be sent again; zero while it is under way
	tries   int     // attempts that had no result
	cause   Cause   // of the last of them
	// causedAt is when the first of the last attempts in a row that had this cause was answered.
	causedAt Instant
}

// send emits a write and remembers it. shard is nil if it writes no shard's record.
func (r *Replica) send(base Version, shard *shardState, build func(seq uint64) Effect) *write {
	r.seq++
	w := &write{seq: r.seq, shard: shard, base: base, effect: build(r.seq)}
	r.writes = append(r.writes, w)
	r.emit(w.effect)
	return w
}

// waits reports whether the write will be sent again, at retryAt.
func (w *write) waits() bool { return !w.retryAt.IsZero() }

// settled reports whether the sight of version v settles w.
func (w *write) settled(v Version) bool { return w != nil && v > w.base }

// effectOf returns the effect of a write, which may be nil; ok is false if it is of another type.
func effectOf[E Effect](w *write) (e E, ok bool) {
	if w != nil {
		e, ok = w.effect.(E)
	}
	return e, ok
}

// names reports whether w gives a shard to an incarnation.
func (w *write) names(id Incarnation) bool {
	e, ok := effectOf[WriteShard](w)
	return ok && e.Shard.Holder == id
}

// creates reports whether the write makes a record.
func (w *write) creates() bool {
	_, ok := effectOf[CreateShard](w)
	return ok
}

// planInFlight reports whether w is a change of plan that is in flight.
func (w *write) planInFlight() bool {
	_, ok := effectOf[WriteAssignee](w)
	return ok && !w.waits()
}

// forget drops a settled write. A late answer to it is ignored.
func (r *Replica) forget(w *write) {
	if i := slices.Index(r.writes, w); w != nil && i >= 0 {
		last := len(r.writes) - 1
		r.writes[i], r.writes[last] = r.writes[last], nil
		r.writes = r.writes[:last]
		w.retryAt = Instant{}
	}
}

// drop forgets the write that w points to, which may be nil, and clears that.
func (r *Replica) drop(w **write) {
	r.forget(*w)
	*w = nil
}

// settle drops a write if the sight of version v settles it.
func (r *Replica) settle(w **write, v Version) {
	if (*w).settled(v) {
		r.drop(w)
	}
}

// written applies an answer to the write that it answers. Answers to forgotten writes are dropped.
func (r *Replica) written(in Written) {
	if in.Outcome == Committed && in.Seq != r.own.seq { // renewals don't earn: they may succeed where nothing else does
		r.budget.earn()
	}
	i := slices.IndexFunc(r.writes, func(w *write) bool { return w.seq == in.Seq })
	if i < 0 {
		return
	}
	w := r.writes[i]
	_, renewal := w.effect.(WriteLease)
	if in.Outcome == Unknown || (in.Outcome == Rejected && !renewal) {
		// If the record had changed and could be read, the newer version was fed before this answer and settled the
		// write. So either it couldn't be read, or the rejection had another reason. What we know is out of date: don't
		// act on it.
		if renewal {
			w.retryAt = r.now.Add(r.renewBackoff(in))
		} else {
			r.wait(w, in)
		}
		return
	}
	if _, ok := effectOf[WriteLayout](w); ok {
		// The layout takes effect when the watch shows it. If that never happens, the write is repeated, and its
		// rejection shows why.
		w.retryAt = r.now.Add(r.cfg.LeaseDuration)
		r.waiting = append(r.waiting, w)
		return
	}
	r.forget(w)
	switch e := w.effect.(type) {
	case WriteLease:
		r.ownWritten(in)
	case WriteLead:
		r.leadWritten(in.Version)
	case SealLease:
		r.sealWritten(r.peers[e.ID], in.Version)
	default:
		r.recordWritten(w.shard.id.Cluster)
		r.shardWritten(w.shard, w, in.Version)
	}
}

// Lane groups writes by urgency. Each lane has its own limit of writes in flight; renewals have none.
type Lane uint8

const (
	// Renewals are writes of the own lease. If they fail, nothing else matters.
	Renewals Lane = iota
	// Takeovers end a time in which keys are unserved: seals, claims, handoffs, and the election of a coordinator.
	Takeovers
	// Others are all other writes: plans, new records and layouts, warm announcements, reports, cleanup.
	Others
	// Lanes is the number of lanes.
	Lanes
)

// LaneOf returns the lane of a write.
func LaneOf(e Effect) Lane {
	switch e := e.(type) {
	case WriteLease, DropLease:
		return Renewals
	case SealLease, WriteLead:
		return Takeovers
	case WriteShard:
		if e.Kind != AnnounceWarm && e.Kind != Report && e.Kind != Clear {
			return Takeovers
		}
	}
	return Others
}

// Current returns the content that a queued write should have when it is sent now. again reports whether an earlier
// attempt had no result. ok is false if the write must not be sent any more, because it was settled or withdrawn.
//
// The announcement that this replica is warm becomes its withdrawal if the caches were dropped since. (Both contents
// replace the same version, so at most one of them is committed, and the sight of it settles both.)
func (r *Replica) Current(seq uint64) (_ Effect, again, ok bool) {
	for _, w := range r.writes {
		if w.seq != seq {
			continue
		}
		if r.withdraws(w) {
			return nil, false, false
		}
		if e, ok := w.effect.(WriteShard); ok && e.Kind == AnnounceWarm && e.Shard.Warm == r.cfg.ID &&
			w.shard.phase != warm {
			e.Shard.Warm = ""
			w.effect = e
		}
		return w.effect, w.tries > 0, true
	}
	return nil, false, false
}

// withdraws drops a claim if this replica is no longer fit for the cluster, and a clearing if it no longer leads or has
// the cluster again. What was sent before is repeated all the same, since it may have been committed.
func (r *Replica) withdraws(w *write) bool {
	e, ok := w.effect.(WriteShard)
	claim, c := e.Kind.Claims(), e.Shard.ID.Cluster
	switch {
	case !ok, w.tries > 0, !claim && e.Kind != Clear, claim && r.fitness(c) == plan.Fit, !claim && r.mayClear(c):
		return false
	}
	r.drop(&w.shard.w)
	r.touch(w.shard)
	return true
}
