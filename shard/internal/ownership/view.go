package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A replica that renews its lease but no longer sees the records may go on holding what was taken from it: a record
// that was deleted and made again after BuryTime names another holder. So a lease is renewed only while the view of the
// records is known to be recent. The proof is a write of this replica's own that comes back through the watch, after
// everything that was committed before it. Without such a write, a live list serves as the view: when an API server's
// cache stalls, and with it all watches, no replica lapses.

// View identifies a watch.
type View uint8

const (
	// Leases: this replica's own renewals come back through it.
	Leases View = iota
	// Shards: this replica's writes of shards' records do.
	Shards
	views
)

// viewed takes the news that a view is complete as of an instant, at least.
func (r *Replica) viewed(v View, at Instant) {
	if at.AtLeast(r.views[v]) > 0 {
		r.views[v] = at
	}
}

// viewAt is the instant as of which both views are complete.
func (r *Replica) viewAt() Instant {
	if r.views[Leases].AtLeast(r.views[Shards]) < 0 {
		return r.views[Leases]
	}
	return r.views[Shards]
}

// viewStale reports whether the view may miss what happened longer ago than ViewTimeout.
func (r *Replica) viewStale() bool { return r.now.AtMost(r.viewAt()) >= r.cfg.ViewTimeout }

// look asks for a live list in time, where the watches give no proof that they go on. One that wasn't answered is asked
// for again.
func (r *Replica) look() {
	if r.now.AtMost(r.viewAt()) >= r.lookAfter() && r.now.AtMost(r.looked) >= r.cfg.ViewTimeout/8 {
		r.looked = r.now
		r.emit(ListRecords{})
	}
}

// lookAfter is how old a view may be until it is looked for another: a little older than the time between two reports,
// so that a replica that works needs no lists.
func (r *Replica) lookAfter() time.Duration { return r.cfg.ViewTimeout * 7 / 8 }

// wakeToLook is when look is to be called next.
func (r *Replica) wakeToLook() time.Duration {
	return max(r.viewAt().Mono+r.lookAfter(), r.looked.Mono+r.cfg.ViewTimeout/8)
}

// listed takes a live list of all records for the view as of when it was asked for. A lease that it doesn't show is
// left to the watch and to the reads that look for it. A record that somebody made unreadable isn't deleted: nobody
// else can hold it meanwhile, and it must not look as if it came back once that is corrected.
func (r *Replica) listed(l Listing) {
	for _, lease := range l.Leases {
		if r.leaseSeen(lease); r.over {
			return
		}
	}
	if l.Lead.Version != 0 {
		r.leadSeen(l.Lead)
	}
	shown := make(map[*tenure]bool, len(l.Shards))
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
	for _, n := range l.Layouts { // after all records that were there before them
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

// Renewed returns when the renewal that is known to have made a version of the own lease, the newest one, was sent.
func (r *Replica) Renewed(v Version) (sent Instant, ok bool) {
	return r.own.start, r.own.member && v == r.own.version
}
