package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A replica that renews its lease but no longer sees the records could go on holding a shard that it has lost: if the
// record was deleted and made again after BuryTime, it names another holder. So a lease is renewed only while both
// watches are known to have shown what was committed until recently. The proof is that a write of this replica's own
// comes back through the watch, since everything that was committed before it comes first. Without such a write, a live
// list serves instead. So no replica lapses when an API server's cache stalls, and with it all watches.

// Watch is one of the two watches.
type Watch uint8

const (
	// LeaseWatch is the watch of Leases. It shows this replica's own renewals.
	LeaseWatch Watch = iota
	// ShardWatch is the watch of Shards. It shows this replica's own writes of shard records.
	ShardWatch
	watches
)

// noteCaughtUp records that a watch is complete at least up to an instant.
func (r *Replica) noteCaughtUp(w Watch, at Instant) {
	if at.AtLeast(r.caughtUp[w]) > 0 {
		r.caughtUp[w] = at
		r.touchAliased() // see heldTwice
	}
}

// caughtUpTo returns the instant up to which both watches are complete.
func (r *Replica) caughtUpTo() Instant {
	if r.caughtUp[LeaseWatch].AtLeast(r.caughtUp[ShardWatch]) < 0 {
		return r.caughtUp[LeaseWatch]
	}
	return r.caughtUp[ShardWatch]
}

// knowsAllUntil reports whether this replica has seen all that was committed before that instant.
func (r *Replica) knowsAllUntil(at Instant) bool { return r.caughtUpTo().AtLeast(at) >= 0 }

// watchStale reports whether the watches may lack changes that are older than WatchTimeout.
func (r *Replica) watchStale() bool { return r.now.AtMost(r.caughtUpTo()) >= r.cfg.WatchTimeout }

// requestList requests a live list if the watches have given no such proof for a while. It repeats a request that
// wasn't answered.
func (r *Replica) requestList() {
	if r.now.AtMost(r.caughtUpTo()) >= r.listAfter() && r.now.AtMost(r.listAskedAt) >= r.cfg.WatchTimeout/8 {
		r.listAskedAt = r.now
		r.emit(ListRecords{})
	}
}

// listAfter returns how old caughtUpTo may get before a live list is requested: a little more than the time between two
// reports, so that a replica that works needs no lists.
func (r *Replica) listAfter() time.Duration { return r.cfg.WatchTimeout * 7 / 8 }

// wakeToList returns the monotonic time at which requestList must be called next.
func (r *Replica) wakeToList() time.Duration {
	return max(r.caughtUpTo().Mono+r.listAfter(), r.listAgainAt())
}

// listAgainAt returns the monotonic time from which a live list that wasn't answered is requested again.
func (r *Replica) listAgainAt() time.Duration { return r.listAskedAt.Mono + r.cfg.WatchTimeout/8 }

// listed handles a live list of all records. Both watches then count as complete up to when it was requested.
//
// A lease that the list lacks doesn't count as deleted: the watch or a read of that lease will show whether it is.
// A record that exists but can't be parsed doesn't count as deleted either. No other replica can claim it
// meanwhile, and when it is corrected it must not look like a deleted record that has come back.
func (r *Replica) listed(l Listing) {
	if l.Asked.AtLeast(r.listAskedAt) < 0 {
		r.listAskedAt = l.Asked // what was requested while this list was under way isn't answered by itself
	}
	for _, lease := range l.Leases {
		r.leaseSeen(lease)
		if r.over {
			return
		}
	}
	if l.Lead.Version != 0 {
		r.leadSeen(l.Lead)
	}
	shown := make(map[*shardState]bool, len(l.Shards))
	for _, s := range l.Shards {
		r.shardSeen(s)
		shown[r.shards[s.ID]] = true
	}
	for _, t := range r.order {
		if t.known && !shown[t] && !l.Unreadable[t.rec.UID] {
			r.shardGone(ShardGone{ID: t.id, Asked: l.Asked})
		}
	}
	listed := make(map[keyspace.ClusterName]bool, len(l.Layouts))
	for _, n := range l.Layouts { // last: a layout takes effect when all older records are known
		r.layoutSeen(n)
		listed[n.Cluster] = true
	}
	for _, o := range r.layoutOrder {
		if o.known && !listed[o.cluster] && !l.UnreadableLayouts[o.cluster] && l.Asked.AtLeast(o.seenAt) > 0 {
			r.layoutGone(LayoutGone{Cluster: o.cluster})
		}
	}
	r.noteCaughtUp(LeaseWatch, l.Asked)
	r.noteCaughtUp(ShardWatch, l.Asked)
	r.touchAliased() // a list that was requested meanwhile must be requested again
}

// Renewed returns when the renewal that made this version of this replica's lease was first sent; ok is false if none
// of the last ones made it.
func (r *Replica) Renewed(v Version) (at Instant, ok bool) {
	i := slices.IndexFunc(r.own.last, func(s sent) bool { return s.version == v })
	if i < 0 {
		return Instant{}, false
	}
	return r.own.last[i].at, true
}
