package ownership

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Memory is what one incarnation of a process leaves to the next: since when each lease has stood still, on the clocks
// that both read; the highest epochs and newest versions seen; and whether the process has watched this home cluster
// for a lease duration.
//
// After a lapse because the home cluster was away, dead peers' leases therefore needn't be watched for another whole
// duration. A remembered time counts only for the version that it was recorded for. A peer that renewed meanwhile shows
// a newer version.
//
// If the home cluster went back, versions and times mean nothing any more. Epochs still count.
type Memory struct {
	leases  map[Incarnation]sighting
	records map[keyspace.ShardID]remembered
	layouts map[keyspace.ClusterName]Version // newest seen
	lead    Version                          // newest seen of the lead record
	highest Epoch                            // of all records
	watched bool                             // the process has watched this home cluster for a lease duration
	// watchedAt is when watched becomes true; zero before the first listing.
	watchedAt Instant
	another   bool // the process has followed another history of the home cluster, or may have
}

// sighting records when a version of a lease was first seen. Version 0 means that the lease was missing.
type sighting struct {
	version Version
	at      Instant
	over    bool // of an earlier incarnation of this process, which is over even if a late renewal arrives
}

// remembered is what is known about a shard's records.
type remembered struct {
	epoch   Epoch // no tenure has a lower one from now on
	top     Epoch // the highest that a record was at
	version Version
}

// Memory returns what the process's next incarnation should know. It includes this incarnation's own lease, which may
// be sealed a duration after the last renewal that counted. A later renewal may still be committed, but the incarnation
// is over and its process knows that.
func (r *Replica) Memory() *Memory {
	m := &Memory{
		leases: map[Incarnation]sighting{}, records: maps.Clone(r.memory.records),
		lead: r.NewestLead(), highest: r.epochs.highest,
		watched: r.watched, watchedAt: r.watchedAt, another: r.another && !r.watched,
	}
	if m.records == nil {
		m.records = map[keyspace.ShardID]remembered{}
	}
	if !r.synced {
		maps.Copy(m.leases, r.memory.leases) // the first listing wasn't complete: unseen leases may exist
	}
	for _, p := range r.peerOrder {
		before, known := r.memory.leases[p.id]
		switch {
		case p.lease.Sealed:
			delete(m.leases, p.id)
		case p.lease.Version != 0 || p.absent:
			m.leases[p.id] = sighting{p.lease.Version, p.changed, before.over}
		case known: // nothing was heard of it
			m.leases[p.id] = before
		}
	}
	for _, t := range r.order {
		m.records[t.id] = remembered{t.floor, t.top, t.rec.Version}
	}
	m.layouts = map[keyspace.ClusterName]Version{}
	for _, l := range r.layoutOrder {
		m.layouts[l.cluster] = r.NewestLayout(l.cluster)
	}
	switch {
	case r.own.member:
		m.leases[r.cfg.ID] = sighting{r.own.version, r.own.start, true}
	case r.Asked():
		m.leases[r.cfg.ID] = sighting{0, r.own.askedAt, true}
	}
	if r.wentBack {
		m.GoBack()
	}
	return m
}

// NewestLease returns the newest version of a lease that was seen; 0 if none was, or if the lease was seen to be
// missing.
func (m *Memory) NewestLease(id Incarnation) Version { return m.leases[id].version }

// GoBack adapts the memory to a home cluster that went back. It forgets versions and times. It keeps epochs, and
// when this process's own incarnations last renewed.
func (m *Memory) GoBack() {
	for id, s := range m.leases {
		delete(m.leases, id)
		if s.over {
			m.leases[id] = sighting{0, s.at, true}
		}
	}
	for id, s := range m.records {
		m.records[id] = remembered{epoch: s.epoch, top: s.top}
	}
	m.layouts, m.lead, m.watched, m.watchedAt, m.another = nil, 0, false, Instant{}, true
}

// See records a Lease that a watch shows between two incarnations, so that waiting times don't start over with the
// next one. It ignores other inputs.
func (m *Memory) See(in Input, now Instant) {
	seen := sighting{at: now}
	var id Incarnation
	switch in := in.(type) {
	case LeaseSeen:
		id, seen.version = in.Lease.ID, in.Lease.Version
	case LeaseGone:
		id = in.ID
	default:
		return
	}
	old, ok := m.leases[id]
	if !ok || (!old.over && (seen.version > old.version || (seen.version == 0 && old.version != 0))) {
		m.leases[id] = seen
	}
}

// remember restores what the memory holds about shards, layouts and the lead record. Versions older than these are
// ignored, as within one incarnation.
func (r *Replica) remember() {
	// In order, so that each is added at the end of a list.
	for _, id := range slices.SortedFunc(maps.Keys(r.memory.records), keyspace.ShardID.Compare) {
		s, t := r.memory.records[id], r.shard(id)
		t.floor, t.top, t.rec.Version = s.epoch, s.top, s.version
	}
	for c, v := range r.memory.layouts {
		r.layout(c).rec.Version = v
	}
	r.lead.least, r.epochs.highest = r.memory.lead, r.memory.highest
	r.watched, r.watchedAt, r.another = r.memory.watched, r.memory.watchedAt, r.memory.another
}

// since returns when this version of a lease, or its absence (version 0), was first seen by any incarnation of this
// process.
func (r *Replica) since(l Lease) Instant {
	if s, ok := r.memory.leases[l.ID]; ok && (s.over || s.version == l.Version) {
		return s.at
	}
	return r.now
}
