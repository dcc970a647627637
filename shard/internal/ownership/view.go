package ownership

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A replica that renews its lease but no longer sees the records could go on holding a shard that it has lost: if
// the record was deleted and made again after BuryTime, it names another holder. So a lease is renewed only while
// the view of the records is known to be recent. The proof is that a write of this replica's own comes back through
// the watch, since everything that was committed before it comes first. Without such a write, a live list serves as
// the view. So no replica lapses when an API server's cache stalls, and with it all watches.

// View identifies a watch.
type View uint8

const (
	// Leases is the watch of Leases. It shows this replica's own renewals.
	Leases View = iota
	// Shards is the watch of Shards. It shows this replica's own writes of shard records.
	Shards
	views
)

// viewed records that a view is complete at least up to an instant.
func (r *Replica) viewed(v View, at Instant) {
	if at.AtLeast(r.views[v]) > 0 {
		r.views[v] = at
	}
}

// viewAt returns the instant up to which both views are complete.
func (r *Replica) viewAt() Instant {
	if r.views[Leases].AtLeast(r.views[Shards]) < 0 {
		return r.views[Leases]
	}
	return r.views[Shards]
}

// viewStale reports whether the view may lack changes that are older than ViewTimeout.
func (r *Replica) viewStale() bool { return r.now.AtMost(r.viewAt()) >= r.cfg.ViewTimeout }

// look requests a live list if the watches have given no proof for a while that their view is recent. It repeats a
// request that wasn't answered.
func (r *Replica) look() {
	if r.now.AtMost(r.viewAt()) >= r.lookAfter() && r.now.AtMost(r.looked) >= r.cfg.ViewTimeout/8 {
		r.looked = r.now
		r.emit(ListRecords{})
	}
}

// lookAfter returns how old a view may get before a live list is requested: a little more than the time between two
// reports, so that a replica that works needs no lists.
func (r *Replica) lookAfter() time.Duration { return r.cfg.ViewTimeout * 7 / 8 }

// wakeToLook returns the monotonic time at which look must be called next.
func (r *Replica) wakeToLook() time.Duration {
	return max(r.viewAt().Mono+r.lookAfter(), r.looked.Mono+r.cfg.ViewTimeout/8)
}

// listed handles a live list of all records. Both views are then complete up to the moment when it was requested.
//
// A lease that the list lacks doesn't count as deleted: the watch or a read of that lease will show whether it is.
// A record that exists but can't be parsed doesn't count as deleted either. No other replica can claim it
// meanwhile, and when it is corrected it must not look like a deleted record that has come back.
func (r *Replica) listed(l Listing) {
	for _, lease := range l.Leases {
		if r.leaseSeen(lease); r.over {
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
	r.viewed(Leases, l.Asked)
	r.viewed(Shards, l.Asked)
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
