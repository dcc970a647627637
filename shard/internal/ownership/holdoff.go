package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// holdOff is the time after trouble in which a replica gets no shards of a cluster. It doubles with each trouble in a
// row. (The backoff of retry.go is between two tries of one request.)
type holdOff struct {
	count int
	until Instant
}

// mostHolds bounds a holdOff, in lease durations.
const mostHolds = 16

// trouble counts one more trouble and starts the wait. The count begins anew if the last trouble was long ago.
func (h *holdOff) trouble(r *Replica) {
	if h.count > 0 && r.now.AtLeast(h.until) > mostHolds*r.cfg.LeaseDuration {
		h.count = 0
	}
	h.count++
	h.hold(r)
}

// hold starts the waiting time now.
func (h *holdOff) hold(r *Replica) {
	h.until = r.now.Add(doubled(r.cfg.LeaseDuration, h.count-1))
}

// doubled returns d, doubled so many times, at most mostHolds times d.
func doubled(d time.Duration, times int) time.Duration {
	return d * time.Duration(min(1<<min(times, 30), mostHolds))
}

func (h *holdOff) holds(r *Replica) bool { return h.count > 0 && r.now.AtLeast(h.until) < 0 }

// holds reports whether this replica gets no more shards of the cluster for now.
func (s *site) holds(r *Replica) bool { return s.lost.holds(r) || s.late.holds(r) || s.denied.holds(r) }

// reviewHoldOffs ends what holds this replica off a cluster that no other replica could serve, since waiting gains
// nothing then. Otherwise it notes when that ends by itself.
func (r *Replica) reviewHoldOffs(c keyspace.ClusterName, s *site) {
	for _, h := range []*holdOff{&s.lost, &s.late, &s.denied} {
		switch {
		case !h.holds(r):
		case r.othersTake(c):
			r.fit.refitAt = earliest(r.fit.refitAt, h.until)
		default:
			h.until = r.now
		}
	}
}

// deniedFor is how long a replica takes no more of a cluster after a refused claim, in lease durations. The claim is
// repeated sooner, so the time ends only if it isn't refused any more, if another replica has claimed the shard, or if
// no other can (see reviewHoldOffs).
const deniedFor = 2

// refused lets others go on where the API server refuses a write of this replica's. A suspect that can't be sealed
// holds up no moves. An orphan that this replica may not claim falls to another: if claims have been refused for
// WarmTimeout, and no other write of a record was committed meanwhile, it is the replica that is refused and not the
// record.
func (r *Replica) refused(w *write) {
	_, seal := w.effect.(SealLease)
	claim, _ := w.effect.(WriteShard)
	switch {
	case seal:
		r.replan = true
	case !claim.Kind.Claims() || w.cause != Refused:
	case r.now.AtLeast(w.causedAt) < r.cfg.WarmTimeout || r.recordedAt.AtLeast(w.causedAt) >= 0:
	default:
		r.site(claim.Shard.ID.Cluster).denied = holdOff{count: 1, until: r.now.Add(deniedFor * r.cfg.LeaseDuration)}
		r.fit.stale = true
	}
}

// recordWritten notes that a write of a shard's record was committed.
func (r *Replica) recordWritten(c keyspace.ClusterName) {
	r.recordedAt = r.now
	if s := r.site(c); s.denied.count > 0 {
		s.denied = holdOff{}
		r.fit.stale = true
	}
}
