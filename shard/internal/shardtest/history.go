package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// snapshot is the store as it was when a snapshot of it was taken.
type snapshot struct {
	at      time.Duration
	version ownership.Version
	leases  []ownership.Lease
	shards  []ownership.Shard
	lead    ownership.Lead
}

// bump is how far versions are raised where a snapshot is restored so that none is used twice.
const bump = 1_000_000

// replaces tells the faults after which the store shows another history than before.
func (k FaultKind) replaces() bool {
	return k == Restore || k == Rebuild || k == LoseLeases || k == LoseRecords
}

// replaced reports whether the store's history is ever replaced. Clocks are right then: where the records are lost, epochs
// rise by them alone.
func (s *Schedule) replaced() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind.replaces() })
}

// save takes the snapshot that a Restore will use.
func (w *world) save(f int32) {
	s := &w.store
	w.snapshots[f] = snapshot{
		at: w.now, version: s.version, leases: slices.Clone(s.leases), shards: slices.Clone(s.shards), lead: s.lead,
	}
}

// replaceHistory carries out what replaces the store's history, or loses much of it.
func (w *world) replaceHistory(f *Fault) {
	s := &w.store
	if replaced := f.Kind == Restore || f.Kind == Rebuild; replaced && w.restoredAt > 0 && w.now < w.restoredAt+2*leaseDuration {
		return // versions and epochs of three histories at once are more than the protocol can tell apart
	}
	switch f.Kind {
	case Restore:
		shot, ok := w.snapshots[w.faultIndex(f)]
		if !ok || w.outOfContact(shot.at) {
			return
		}
		if f.N%2 == 1 {
			s.version += bump
		} else {
			s.version = shot.version
		}
		w.restore(shot)
	case Rebuild:
		if f.N%2 == 0 {
			s.version = 0
		}
		w.restore(snapshot{})
	case LoseLeases:
		for _, l := range slices.Clone(s.leases) {
			s.deleteLease(l.ID)
		}
		if f.N%2 == 1 {
			s.deleteLead()
		}
	case LoseRecords:
		for _, sh := range slices.Clone(s.shards) {
			s.deleteShard(sh.ID)
		}
	}
	w.pumpAll()
}

func (w *world) faultIndex(f *Fault) int32 {
	for i := range w.schedule.Faults {
		if &w.schedule.Faults[i] == f {
			return int32(i)
		}
	}
	return -1
}

// outOfContact reports whether a process hasn't followed the store all the time since then. It may know less of what is
// lost than the snapshot leaves out, and can't find that out. The protocol promises nothing then.
func (w *world) outOfContact(since time.Duration) bool {
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.up {
			continue
		}
		if n.stoppedTill > since || n.cutTill > since || slices.Max(n.frozenTill[:]) > since {
			return true
		}
	}
	return false
}

// restore sets the store back. What is on its way to it is lost. Watches are broken, and then list: what they had still to
// show is shown before, or never.
func (w *world) restore(shot snapshot) {
	s := &w.store
	w.Restores++
	w.restoredAt = w.now
	if shot.lead.Version == 0 || slices.ContainsFunc(shot.shards, func(sh ownership.Shard) bool { return sh.Epoch == 0 }) {
		// Who starts now can't know that records that nobody has held by the snapshot were held since.
		w.noStartTill = w.now + 2*leaseDuration
		w.last = max(w.last, w.noStartTill)
	}
	before := *s
	s.leases, s.shards, s.lead = slices.Clone(shot.leases), slices.Clone(shot.shards), shot.lead
	for _, l := range before.leases {
		if s.lease(l.ID) == nil {
			s.log[leases] = append(s.log[leases], driver.Seen{What: ownership.LeaseGone{ID: l.ID}})
		}
	}
	for _, l := range s.leases {
		s.log[leases] = append(s.log[leases], driver.Seen{What: ownership.LeaseSeen{Lease: l}})
	}
	for _, sh := range before.shards {
		if s.shard(sh.ID) == nil {
			w.lost = true
			s.log[shards] = append(s.log[shards], driver.Deleted{ID: sh.ID})
		}
	}
	for _, sh := range s.shards {
		s.log[shards] = append(s.log[shards], driver.Seen{What: ownership.ShardSeen{Shard: sh}})
	}
	switch {
	case s.lead.Version != 0:
		s.log[leads] = append(s.log[leads], driver.Seen{What: ownership.LeadSeen{Lead: s.lead}})
	case before.lead.Version != 0:
		s.log[leads] = append(s.log[leads], driver.Seen{What: ownership.LeadGone{}})
	}
	for i := range s.log {
		w.historyFrom[i] = len(s.log[i])
	}
	for i := range w.tallies {
		t := &w.tallies[i]
		t.writes, t.plans, t.upsets = 0, 0, 0
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		for st := range leads + 1 {
			n.reconnect[st] = true
			n.relist[st] = n.relist[st] || w.upTo(2) == 1
		}
	}
}
