package ownership

import "maps"

// Memory is what one incarnation of a process leaves to the next: since when each lease has stood still, on the clocks
// that both read. A process that lapsed because the home cluster was away needn't watch its dead peers' leases for a
// whole duration once more. Nothing is trusted that a new process wouldn't have to find out: a time counts only for the
// very version that it was noted for, and whoever renewed meanwhile shows a newer one.
type Memory map[Incarnation]sighting

// sighting is when a version of a lease was first seen.
type sighting struct {
	version Version
	at      Instant
}

// Memory returns what the process's next incarnation is to know, its predecessor's own lease included: that may be
// sealed once its duration has passed since the last renewal that counted. (A later one that landed unanswered doesn't
// matter: that incarnation is over, and its process knows.)
func (r *Replica) Memory() Memory {
	m := Memory{}
	if !r.synced {
		maps.Copy(m, r.memory) // not all of it was looked for yet
	}
	for _, p := range r.peerOrder {
		if p.lease.Version != 0 && !p.lease.Sealed {
			m[p.id] = sighting{p.lease.Version, p.changed}
		}
	}
	if r.own.member {
		m[r.cfg.ID] = sighting{r.own.version, r.own.start}
	}
	return m
}

// since returns when a version of a lease was first seen, by this incarnation or an earlier one.
func (r *Replica) since(l Lease) Instant {
	if s, ok := r.memory[l.ID]; ok && s.version == l.Version {
		return s.at
	}
	return r.now
}
