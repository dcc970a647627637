package ownership

import "slices"

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

// names reports whether w gives a shard to an incarnation.
func (w *write) names(id Incarnation) bool {
	if w == nil {
		return false
	}
	e, ok := w.effect.(WriteShard)
	return ok && e.Shard.Holder == id
}

// creates reports whether the write makes a record.
func (w *write) creates() bool {
	if w == nil {
		return false
	}
	_, ok := w.effect.(CreateShard)
	return ok
}

// plans reports whether w is a change of plan that is in flight.
func (w *write) plans() bool {
	if w == nil || w.waits {
		return false
	}
	_, ok := w.effect.(WriteAssignee)
	return ok
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
