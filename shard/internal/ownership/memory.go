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
		if (p.lease.Version != 0 || p.absent) && !p.lease.Sealed {
			m[p.id] = sighting{p.lease.Version, p.changed, r.memory[p.id].over}
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

// since returns when a version of a lease, or that there is none (version 0), was first seen, by this incarnation or an
// earlier one.
func (r *Replica) since(l Lease) Instant {
	if s, ok := r.memory[l.ID]; ok && (s.over || s.version == l.Version) {
		return s.at
	}
	return r.now
}
