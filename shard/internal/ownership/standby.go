package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A peer that is late with its renewal isn't dead, and nothing may be taken from it. But filling the caches of a large
// shard takes seconds. So the replicas that would claim its shards fill their caches while its lease runs out: they
// stand by. Standing by writes nothing and opens no gate. If the peer renews after all, the caches are dropped.

// lateAfter returns how long a lease may stand still before its renewal, due after a quarter of the duration, is late.
func lateAfter(duration time.Duration) time.Duration { return duration * 2 / 5 }

// noteLeaseEvent records that a Lease event arrived, for this replica's lease or a peer's. If none arrives for a while,
// the watch itself may be stalled, so silence says nothing about peers. Their lateness counts from the first event
// after it.
func (r *Replica) noteLeaseEvent() {
	if r.now.AtLeast(r.heardAt) >= lateAfter(r.cfg.LeaseDuration) {
		r.hearingSince = r.now
	}
	r.heardAt = r.now
}

// judgeLate updates whether a peer is late. A peer that is proven to have ended counts as late.
func (r *Replica) judgeLate(p *peer) {
	limit := lateAfter(p.duration(r.cfg))
	stood := min(r.now.AtLeast(p.changed), r.now.AtLeast(r.hearingSince))
	silent := stood >= limit && r.now.AtLeast(r.heardAt) < limit
	late := !p.lease.Sealed && p.lease.Version != 0 && (silent && !p.lease.Unreadable || p.ended())
	if late != p.late {
		p.late = late
		r.replan = true
	}
}

// standBy plans for the case that all late peers are dead, and warms what would then fall to this replica.
func (r *Replica) standBy() {
	anyLate := r.anyLate()
	if !anyLate && !r.standing {
		return
	}
	r.standing = anyLate
	mine := map[keyspace.ShardID]bool{}
	if anyLate {
		gone := func(p *peer) bool { return p.dead() || p.late }
		replicas, _ := r.replicas(gone)
		r.spareFresh(replicas)
		for _, m := range r.planFor(replicas, gone, &r.lastStandby) {
			mine[m.Shard] = m.To == r.cfg.ID
		}
	}
	for _, t := range r.order {
		if by := mine[t.id] && t.holder != nil && t.holder.late; by != t.standby {
			t.standby = by
			r.touch(t)
		}
	}
}

func (r *Replica) anyLate() bool {
	return slices.ContainsFunc(r.peerOrder, func(p *peer) bool { return p.late })
}
