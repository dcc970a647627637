package ownership

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// The home cluster may be restored from a snapshot: then it shows what was true once, and what was written since is lost.
// Older versions than the newest seen are no evidence of that, since an API server may lag behind another; they are
// ignored. A live read that doesn't show what was known before it was sent is. (Package driver sends such reads where
// something looks odd.) So is a version that no history can have that has the one before. Then the incarnation is over,
// and its process begins anew on what the home cluster shows: its next incarnation forgets versions, keeps epochs, and
// watches for a lease duration before it claims anything. By then whoever held a shard in the history that is lost has
// stopped. Its last renewal is lost, too, so that it can't renew again.
//
// A process that has just started waits for the same reason: it can't know what there was before. It needn't where all who
// were there have left.

// goneBack ends the incarnation since the home cluster went back.
func (r *Replica) goneBack(format string, args ...any) {
	r.wentBack, r.afresh = true, true
	r.lapse("the home cluster went back: " + fmt.Sprintf(format, args...))
}

// Afresh reports whether the process's next incarnation must not begin with what caches show of the home cluster.
func (r *Replica) Afresh() bool { return r.afresh }

// NewestLease returns the newest version of a lease that was seen; 0 if it was never seen, or seen to be missing.
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

// NewestShard returns the newest version of a shard's record that was seen, or the least that may follow its deletion.
func (r *Replica) NewestShard(id keyspace.ShardID) Version {
	if t := r.shards[id]; t != nil {
		return t.rec.Version
	}
	return 0
}

// NewestLayout returns the newest version of a cluster's layout that was seen, or the least that may follow its deletion.
func (r *Replica) NewestLayout(c keyspace.ClusterName) Version {
	if l := r.layouts[c]; l != nil {
		return max(l.rec.Version, l.read.Version)
	}
	return 0
}

// Regresses reports whether a layout is of an earlier generation than the one that was seen last. One that was deleted and
// made anew may be, so this proves nothing.
func (r *Replica) Regresses(n Layout) bool {
	l := r.layouts[n.Cluster]
	return l != nil && n.Generation < l.rec.Generation
}

// NewestLead returns the newest version of the coordinator's record that was seen, or the least that may follow its
// deletion.
func (r *Replica) NewestLead() Version { return max(r.lead.Version, r.leadLeast) }

// contradicts reports whether s can't follow the version of its record that was seen last: its epoch falls, or it was seen
// to be deleted.
func (t *tenure) contradicts(s Shard) bool {
	return s.UID != "" && s.UID == t.rec.UID && (!t.known || s.Epoch < t.rec.Epoch)
}

// settle notes that this home cluster has been watched for long enough.
func (r *Replica) settle() {
	if r.watched || !r.synced || r.now.AtLeast(r.settleAt) < 0 {
		return
	}
	r.watched = true
	r.own.renewAt = r.now // the others wait to hear that
}

// foundLeft reports whether all who were here before have left in order by what the first listing shows: nothing is held, and
// there are no leases but of those who begin, too. (Where one of them holds something, it may have begun long ago, in what is
// a snapshot.)
func (r *Replica) foundLeft() bool {
	lives := func(p *peer) bool { return p.lease.Version != 0 && !p.lease.Fresh }
	held := func(t *tenure) bool { return t.known && t.rec.Holder != "" }
	return !slices.ContainsFunc(r.peerOrder, lives) && !slices.ContainsFunc(r.order, held)
}

// waitToSettle has what was found when the incarnation began left alone until this home cluster has been watched for a lease
// duration.
func (r *Replica) waitToSettle() {
	if r.settleAt == (Instant{}) {
		r.settleAt = r.now.Add(r.cfg.LeaseDuration)
	}
	if r.watched || (r.foundLeft() && !r.another) {
		return
	}
	for _, t := range r.order {
		if t.known && (r.another || t.rec.Epoch > 0) {
			t.freeAt = r.settleAt
		}
	}
}
