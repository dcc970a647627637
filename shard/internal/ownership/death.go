package ownership

import (
	"slices"
	"time"
)

// A lease that stands still may be that of a process that is only paused. A kubelet that reports a container as
// terminated knows more: the process has ended. Each incarnation names itself in its container's termination message
// when it begins, and its container in its lease. If report, message and lease agree, the incarnation has certainly
// ended, and its peers don't wait for its lease to run out.

// containerSeen records what a kubelet reports about a container.
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

// prove records that a peer has ended, if the container that its lease names says so. The proof is final: a renewal
// that arrives later was sent before.
func (r *Replica) prove(p *peer) {
	if p.ended() || p.lease.Container == "" || !slices.Contains(r.ended[p.lease.Container], p.id) {
		return
	}
	p.endedAt = r.now
	r.touchAll()
}

// ended reports whether the incarnation is proven to have ended.
func (p *peer) ended() bool { return !p.endedAt.IsZero() }

// due returns the monotonic time at which a peer may be sealed. That is when it has stood still for its duration or,
// once it is proven to have ended, when none of its writes can still be on its way. A renewal that arrives in that time
// shows that more may follow, so the wait begins again.
func (p *peer) due(cfg Config) time.Duration {
	at := p.changed.Mono + p.duration(cfg)
	if p.ended() {
		at = min(at, max(p.changed.Mono, p.endedAt.Mono)+WireTime)
	}
	return at
}
