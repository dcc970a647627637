package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A peer that is late with its renewal isn't dead, and nothing may be taken from it. But filling the caches of a large
// shard takes seconds, so whoever would claim its shards fills them while the lease runs out: it stands by. That writes
// nothing and opens nothing; if the peer renews after all, the caches are dropped.

// lateAfter is the part of a lease's duration after which its renewal, due after a quarter, is late.
func lateAfter(duration time.Duration) time.Duration { return duration * 2 / 5 }

// hear notes that a lease was seen, our own or a peer's. Who hears of none is deaf, which says nothing about others;
// nor does what was missed meanwhile.
func (r *Replica) hear() {
	if r.now.AtLeast(r.heardAt) >= lateAfter(r.cfg.LeaseDuration) {
		r.hearingSince = r.now
	}
	r.heardAt = r.now
}

// listen notes whether a peer is late. One that is proven to have ended is.
func (r *Replica) listen(p *peer) {
	limit := lateAfter(p.duration(r.cfg))
	stood := min(r.now.AtLeast(p.changed), r.now.AtLeast(r.hearingSince))
	silent := stood >= limit && r.now.AtLeast(r.heardAt) < limit
	late := !p.lease.Sealed && p.lease.Version != 0 && (silent && !p.lease.Unreadable || p.ended())
	if late != p.late {
		p.late = late
		r.replan = true
	}
}

// standBy runs the planner on what will be if those who are late are dead, and warms what would fall to this replica.
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
		for _, m := range r.lastStandby.of(r.planShards(gone), replicas) {
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
