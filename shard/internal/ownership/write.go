package ownership

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/plan"
)

// write is one compare-and-swap that isn't settled. An answer settles it. So does the sight of any version newer
// than the one that the write replaces: either that version is its result, or it can never be committed any more.
type write struct {
	seq     uint64
	about   target
	base    Version
	effect  Effect
	waits   bool    // it had no result, and will be sent again at retryAt
	retryAt Instant // meaningful while waits
	tries   int     // attempts that had no result
	cause   Cause   // of the last of them
	// causedAt is when the first of the last attempts in a row that had this cause was answered.
	causedAt Instant
}

// send emits a write and remembers what it is about.
func (r *Replica) send(base Version, about target, build func(seq uint64) Effect) *write {
	r.seq++
	w := &write{seq: r.seq, about: about, base: base, effect: build(r.seq)}
	r.writes = append(r.writes, w)
	r.emit(w.effect)
	return w
}

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

// plans reports whether w is a change of plan that is in flight.
func (w *write) plans() bool {
	_, ok := effectOf[WriteAssignee](w)
	return ok && !w.waits
}

// forget drops a settled write. A late answer to it is ignored.
func (r *Replica) forget(w *write) {
	if i := slices.Index(r.writes, w); w != nil && i >= 0 {
		last := len(r.writes) - 1
		r.writes[i], r.writes[last] = r.writes[last], nil
		r.writes = r.writes[:last]
		w.waits = false
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
	about := w.about
	if in.Outcome == Unknown || (in.Outcome == Rejected && !about.own) {
		// If the record had changed and could be read, the newer version was fed before this answer and settled the
		// write. So either it couldn't be read, or the rejection had another reason. What we know is out of date: don't
		// act on it.
		if about.own {
			w.waits, w.retryAt = true, r.now.Add(r.renewBackoff(in))
		} else {
			r.wait(w, in)
		}
		return
	}
	r.forget(w)
	if about.shard != nil {
		r.recordWritten(about.shard.id.Cluster)
	}
	switch {
	case about.own:
		r.ownWritten(in)
	case about.lead:
		r.leadWritten(in.Version)
	case about.layout != nil:
		about.layout.written(r)
	case about.peer != nil:
		r.sealWritten(about.peer, in.Version)
	default:
		r.shardWritten(about.shard, w, in.Version)
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
		if e.Kind != AnnounceWarm && e.Kind != Report {
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
			w.about.shard.phase != warm {
			e.Shard.Warm = ""
			w.effect = e
		}
		return w.effect, w.tries > 0, true
	}
	return nil, false, false
}

// withdraws drops a claim if this replica is no longer fit for the cluster. A claim that was sent before is
// repeated all the same, since it may have been committed.
func (r *Replica) withdraws(w *write) bool {
	e, ok := w.effect.(WriteShard)
	if !ok || !e.Kind.Claims() || w.tries > 0 || r.fitness(e.Shard.ID.Cluster) == plan.Fit {
		return false
	}
	w.about.shard.w = nil
	r.forget(w)
	r.touch(w.about.shard)
	return true
}
