package ownership

import "maps"

// Memory is what one incarnation of a process leaves to the next: since when each lease has stood still, on the clocks
// that both read. A process that lapsed because the home cluster was away needn't watch its dead peers' leases for a
// whole duration once more. Nothing is trusted that a new process wouldn't have to find out: a time counts only for the
// very version that it was noted for, and whoever renewed meanwhile shows a newer one.
type Memory map[Incarnation]sighting

// sighting is when a version of a lease was first seen; version 0 is its absence.
type sighting struct {
	version Version
	at      Instant
	over    bool // an incarnation of this very process: it is over, whatever lands of its renewals
}

// Memory returns what the process's next incarnation is to know, its predecessor's own lease included: that may be
// sealed once its duration has passed since the last renewal that counted. (A later one may land unanswered. That
// doesn't matter: the incarnation is over, and its process knows.)
func (r *Replica) Memory() Memory {
	m := Memory{}
	if !r.synced {
		maps.Copy(m, r.memory) // not all of it was looked for yet
	}
	for _, p := range r.peerOrder {
		before, known := r.memory[p.id]
		switch {
		case p.lease.Sealed:
			delete(m, p.id)
		case p.lease.Version != 0 || p.absent:
			m[p.id] = sighting{p.lease.Version, p.changed, before.over}
		case known: // nothing was heard of it
			m[p.id] = before
		}
	}
	switch {
	case r.own.member:
		m[r.cfg.ID] = sighting{r.own.version, r.own.start, true}
	case r.own.asked:
		m[r.cfg.ID] = sighting{0, r.own.askedAt, true}
	}
	return m
}

// See notes what a watch shows between two incarnations: their time to wait would else begin with the next.
func (m Memory) See(in Input, now Instant) {
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
	if old, ok := m[id]; !ok || (!old.over && (seen.version > old.version || (seen.version == 0 && old.version != 0))) {
		m[id] = seen
	}
}

// since returns when a version of a lease, or that there is none (version 0), was first seen, by this incarnation or an
// earlier one.
func (r *Replica) since(l Lease) Instant {
	if s, ok := r.memory[l.ID]; ok && (s.over || s.version == l.Version) {
		return s.at
	}
	return r.now
}
