package ownership

import (
	"slices"
	"time"
)

// A kubelet that reports a container as terminated has seen the process end, which no lease can tell: a lease that stands
// still may be that of a process that is only paused. Each incarnation names itself in its container's termination
// message when it begins, and its container in its lease. Where the report, the message and the lease agree, the
// incarnation has ended for certain, and its peers don't wait for its lease to run out.

// containerSeen takes what a kubelet reports of a container.
func (r *Replica) containerSeen(in ContainerSeen) {
	if len(in.Ended) == 0 {
		delete(r.ended, in.Container)
		return
	}
	r.ended[in.Container] = in.Ended
	for _, id := range in.Ended {
		if p := r.peers[id]; p != nil {
			r.prove(p)
		}
	}
}

// prove notes that a peer has ended if the container that its lease names says so. It stays proven, whatever is seen
// later: a renewal that arrives afterwards was sent before.
func (r *Replica) prove(p *peer) {
	if p.ended() || p.lease.Container == "" || !slices.Contains(r.ended[p.lease.Container], p.id) {
		return
	}
	p.endedAt = r.now
	r.touchAll()
}

// ended reports whether the incarnation is proven to have ended.
func (p *peer) ended() bool { return p.endedAt != (Instant{}) }

// due returns the monotonic time at which a peer may be sealed: when it has stood still for its duration or, once it is
// proven to have ended, when nothing that it sent can be on its way any more. A renewal that arrives in that time shows
// that more may follow, so the time begins anew.
func (p *peer) due(cfg Config) time.Duration {
	at := p.changed.Mono + p.duration(cfg)
	if p.ended() {
		at = min(at, max(p.changed.Mono, p.endedAt.Mono)+cfg.WireTime)
	}
	return at
}
