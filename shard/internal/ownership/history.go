package ownership

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// The home cluster may be restored from a snapshot. Then it shows an earlier state, and later writes are lost. A
// version older than the newest seen is no evidence of a restore, since one API server may lag behind another; such
// versions are ignored. Two things are evidence: a live read that doesn't show what was known before the read was sent
// (package driver sends such reads when something looks odd), and a version that can't follow the one before it in any
// history. Then the incarnation is over, and its process starts again on what the home cluster shows. The next
// incarnation forgets versions, keeps epochs, and watches for a lease duration before it claims anything. By then every
// holder of the lost history has stopped, since its last renewal is lost too and it can't renew again.
//
// A process that has just started waits for the same reason: it can't know what there was before. It needn't wait if
// all previous replicas have left in order.

// goneBack ends the incarnation because the home cluster went back.
func (r *Replica) goneBack(format string, args ...any) {
	r.lapseAfresh("the home cluster went back: " + fmt.Sprintf(format, args...))
}

// lapseAfresh ends the incarnation because the home cluster went back, or may have.
func (r *Replica) lapseAfresh(reason string) {
	r.wentBack = true
	r.lapse(reason)
}

// Afresh reports whether the process's next incarnation must not start from caches of the home cluster.
func (r *Replica) Afresh() bool { return r.wentBack }

// NewestLease returns the newest version of a lease that was seen; 0 if none was, or if the lease was seen to be
// missing.
func (r *Replica) NewestLease(id Incarnation) Version {
	if id == r.cfg.ID {
		return r.own.version
	}
	newest := r.memory.leases[id].version
	if p := r.peers[id]; p != nil {
		newest = max(newest, p.lease.Version)
	}
	return newest
}

// NewestShard returns the newest version of a shard's record that was seen, or the lowest that can follow its deletion.
func (r *Replica) NewestShard(id keyspace.ShardID) Version {
	if t := r.shards[id]; t != nil {
		return t.rec.Version
	}
	return 0
}

// NewestLayout returns the newest version of a cluster's layout that was seen, or the lowest that can follow its
// deletion.
func (r *Replica) NewestLayout(c keyspace.ClusterName) Version {
	if l := r.layouts[c]; l != nil {
		return max(l.rec.Version, l.read.Version)
	}
	return 0
}

// Regresses reports whether a layout's generation is lower than that of the one seen last. A layout that was deleted
// and made again may also have a lower one, so this proves nothing.
func (r *Replica) Regresses(n Layout) bool {
	l := r.layouts[n.Cluster]
	return l != nil && n.Generation < l.rec.Generation
}

// Renewal returns the number of this incarnation's last renewal that is known to have committed; 0 if none is.
func (r *Replica) Renewal() uint64 { return r.own.renewal }

// NewestLead returns the newest version of the lead record that was seen, or the lowest that can follow its deletion.
func (r *Replica) NewestLead() Version { return max(r.lead.rec.Version, r.lead.least) }

// noteWatched notes when this home cluster has been watched for a lease duration.
func (r *Replica) noteWatched() {
	if r.watched || !r.synced || r.now.AtLeast(r.watchedAt) < 0 {
		return
	}
	r.watched = true
	r.own.renewAt = r.now // other replicas wait for this renewal
	// From now on plans give this replica what nobody holds. Replicas that began at the same time have said so by then.
	r.replan, r.planAfter = true, r.now.Add(r.cfg.PlanEvery)
}

// allLeft reports whether, by the first listing, all previous replicas have left in order: no shard is held, and all
// leases are of replicas that are starting, too. (If a fresh lease's owner holds a shard, it may have started long ago,
// in a history that was restored.)
func (r *Replica) allLeft() bool {
	lives := func(p *peer) bool { return p.lease.Version != 0 && !p.lease.Fresh }
	held := func(t *shardState) bool { return t.known && t.rec.Holder != "" }
	return !slices.ContainsFunc(r.peerOrder, lives) && !slices.ContainsFunc(r.order, held)
}

// waitUntilWatched protects what the first listing showed: it isn't claimed until this home cluster has been watched
// for a lease duration.
func (r *Replica) waitUntilWatched() {
	if r.watchedAt.IsZero() {
		r.watchedAt = r.now.Add(r.cfg.LeaseDuration)
	}
	if r.watched || (r.allLeft() && !r.another) {
		return
	}
	for _, t := range r.order {
		if t.known && (r.another || t.rec.Epoch > 0) {
			t.freeAt = r.watchedAt
		}
	}
}
