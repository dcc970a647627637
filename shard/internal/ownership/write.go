package ownership

import "slices"

// write is one compare-and-swap that isn't settled. It is settled by an answer, or by the sight of any version newer
// than the one it replaces: then either that version has it, or it can never happen.
type write struct {
	seq     uint64
	about   target
	base    Version
	effect  Effect
	waits   bool    // outcome unknown: to be sent again at retryAt
	retryAt Instant // meaningful while waits
}

// send emits a write and remembers what it is about.
func (r *Replica) send(base Version, about target, build func(seq uint64) Effect) *write {
	r.seq++
	w := &write{seq: r.seq, about: about, base: base, effect: build(r.seq)}
	r.writes = append(r.writes, w)
	r.emit(w.effect)
	return w
}

// resend repeats a write of unknown outcome, with the same content and base, when its time has come.
func (r *Replica) resend(w *write) {
	if w != nil && w.waits && r.now.AtLeast(w.retryAt) >= 0 {
		w.waits = false
		r.emit(w.effect)
	}
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

// plans reports whether w is a change of plan that is on its way.
func (w *write) plans() bool {
	if w == nil || w.waits {
		return false
	}
	_, ok := w.effect.(WriteAssignee)
	return ok
}

// forget drops a settled write: a late answer to it says nothing new.
func (r *Replica) forget(w *write) {
	if i := slices.Index(r.writes, w); w != nil && i >= 0 {
		last := len(r.writes) - 1
		r.writes[i], r.writes[last] = r.writes[last], nil
		r.writes = r.writes[:last]
	}
}

// written routes an answer to what it is about. Answers to forgotten writes are dropped.
func (r *Replica) written(in Written) {
	i := slices.IndexFunc(r.writes, func(w *write) bool { return w.seq == in.Seq })
	if i < 0 {
		return
	}
	w := r.writes[i]
	about := w.about
	if in.Outcome == Unknown || (in.Outcome == Rejected && !about.own) {
		// A rejected write whose record has changed was settled when the newer version was fed. If we are here, that
		// couldn't be read, or the rejection had another reason: all we know is still old, so we must not act on it.
		w.waits = true
		w.retryAt = r.now.Add(r.cfg.RetryEvery)
		if about.shard != nil {
			r.unknown = append(r.unknown, about.shard)
		}
		return
	}
	r.forget(w)
	switch {
	case about.own:
		r.ownWritten(in)
	case about.lead:
		r.leadWritten(in.Version)
	case about.peer != nil:
		r.sealWritten(about.peer, in.Version)
	default:
		r.shardWritten(about.shard, w, in.Version)
	}
}
