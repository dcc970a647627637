package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// bump is how far a restore raises the store's versions, if it is one that uses no version twice.
const bump = 1_000_000

// replaces reports whether the store shows another history after such a fault, or has lost much of it.
func (k FaultKind) replaces() bool {
	return k == Restore || k == Rebuild || k == LoseLeases || k == LoseRecords
}

// replaced reports whether the schedule ever replaces the store's history. Clocks are right then: if no process
// that can join remembers the epochs, only clocks keep them rising.
func (s *Schedule) replaced() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind.replaces() })
}

// save takes the snapshot that a Restore will use.
func (w *world) save(f int32) { w.snapshots[f] = w.store.clone() }

// replaceHistory carries out a fault that replaces the store's history, or loses much of it.
func (w *world) replaceHistory(f *Fault) {
	s := &w.store
	switch f.Kind {
	case Restore:
		shot, ok := w.snapshots[w.faultIndex(f)]
		if !ok || w.outOfContact(shot) {
			return
		}
		if shot.version != s.version {
			w.felt(f)
		}
		if f.N%2 == 1 {
			shot.version = max(s.version, shot.version) + bump
		}
		w.restore(shot)
	case Rebuild:
		if s.version > 0 {
			w.felt(f)
		}
		var empty records
		if f.N%2 != 0 {
			empty.version = s.version
		}
		w.restore(empty)
	case LoseLeases:
		if len(s.leases.keys) > 0 {
			w.felt(f)
		}
		for _, id := range slices.Clone(s.leases.keys) {
			s.deleteLease(id)
		}
		if f.N%2 == 1 {
			s.deleteLead()
		}
	case LoseRecords:
		if slices.ContainsFunc(s.shards.all, w.unheardOf) {
			return
		}
		if len(s.shards.keys)+len(s.layouts.keys) > 0 {
			w.felt(f)
		}
		for _, id := range slices.Clone(s.shards.keys) {
			s.deleteShard(id)
		}
		for _, cluster := range slices.Clone(s.layouts.keys) { // they are of the same resource
			s.deleteLayout(cluster)
		}
	}
	w.replaced++
	if !slices.ContainsFunc(s.leases.all, settled) && !slices.ContainsFunc(s.shards.all, held) {
		w.keepOut()
	}
	w.pumpAll()
}

// keepOut lets no process start for two lease durations. A new one couldn't know that a shard which is unheld by the
// records was held a moment ago. A process that hasn't joined yet knows no more, so it is started again then.
func (w *world) keepOut() {
	w.noStartTill = w.now + 2*leaseDuration
	w.last = max(w.last, w.noStartTill)
	for i := range w.nodes {
		if n := &w.nodes[i]; n.up && !n.joined {
			n.crash(1)
		}
	}
}

func (w *world) faultIndex(f *Fault) int32 {
	for i := range w.schedule.Faults {
		if &w.schedule.Faults[i] == f {
			return int32(i)
		}
	}
	return -1
}

// outOfContact reports whether some process can't learn from its own Lease that the snapshot leaves something out,
// and hasn't seen everything that the snapshot leaves out. The protocol promises nothing then. Neither does it if the
// watches of such a process stand still before they have shown what was restored (see freeze).
func (w *world) outOfContact(shot records) bool {
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.up && !n.renewedSince(shot) && (w.now < n.stoppedTill || w.now < n.cutTill || !n.sawAll()) {
			return true
		}
	}
	return false
}

// renewedSince reports whether the process knows of a version of its incarnation's Lease that the snapshot leaves out.
func (n *node) renewedSince(shot records) bool {
	if l := shot.leases.find(n.id); l != nil {
		return n.renewed > l.Version
	}
	return n.renewed > 0
}

// sawAll reports whether the process's watches have shown everything, and aren't frozen.
func (n *node) sawAll() bool {
	for s := range leads + 1 {
		if n.cursor[s] < len(n.w.store.log[s]) || n.w.now < n.frozenTill[s] {
			return false
		}
	}
	return true
}

// unheardOf reports whether a record is held, and the watch of some process hasn't shown it yet. If it is deleted now,
// that process may never see that it was there, and make it again as coordinator. The protocol promises nothing then.
func (w *world) unheardOf(sh ownership.Shard) bool {
	if !held(sh) {
		return false
	}
	shows := func(what ownership.Input) bool {
		in, ok := what.(ownership.ShardSeen)
		return ok && in.Shard.UID == sh.UID
	}
	return slices.ContainsFunc(w.nodes, func(n node) bool {
		return n.up && !slices.ContainsFunc(w.store.log[shards][:n.cursor[shards]], shows)
	})
}

func held(sh ownership.Shard) bool { return sh.Holder != "" }

// settled reports whether a lease is of a replica that isn't just starting. Who starts sees by such a lease that home
// isn't new.
func settled(l ownership.Lease) bool { return !l.Fresh }

// stopped reports whether a snapshot shows no fleet, a fleet that left in order, or a record that was never held.
func (r *records) stopped() bool {
	never := func(sh ownership.Shard) bool { return sh.Epoch == 0 }
	return r.lead.Version == 0 || slices.ContainsFunc(r.shards.all, never) || !slices.ContainsFunc(r.shards.all, held)
}

// leastOutage is how long the store is away, at least, when it is set back.
const leastOutage = time.Second

// restore sets the store back. No process reaches it meanwhile, and requests on their way to it are lost. Watches
// break and then show the restored records; changes that they hadn't shown yet are never shown.
func (w *world) restore(shot records) {
	s := &w.store
	w.Restores++
	w.restoredAt = w.now + leastOutage + w.upTo(leaseDuration/2)
	if w.restoredAt > w.awayTill {
		w.awayTill, w.awayFault = w.restoredAt, nil
	}
	w.last = max(w.last, w.awayTill)
	for i := range s.log {
		w.lostBefore[i] = len(s.log[i])
	}
	if shot.stopped() {
		w.keepOut()
	}
	before := s.records
	s.records = shot.clone()
	for _, id := range before.leases.keys {
		if s.lease(id) == nil {
			s.show(leases, ownership.LeaseGone{ID: id})
		}
	}
	for _, l := range s.leases.all {
		s.show(leases, ownership.LeaseSeen{Lease: l})
	}
	for _, id := range before.shards.keys {
		if s.shard(id) == nil {
			w.lost = true
			s.show(shards, ownership.ShardGone{ID: id})
		}
	}
	for _, l := range before.layouts.all {
		if now := s.layout(l.Cluster); now == nil {
			w.lost = true
			s.show(shards, ownership.LayoutGone{Cluster: l.Cluster})
		} else if now.Version != l.Version {
			w.lost = true // it may list shards without a record
		}
	}
	for _, sh := range s.shards.all {
		s.show(shards, ownership.ShardSeen{Shard: sh})
	}
	for _, l := range s.layouts.all {
		s.show(shards, ownership.LayoutSeen{Layout: l})
	}
	switch {
	case s.lead.Version != 0:
		s.show(leads, ownership.LeadSeen{Lead: s.lead})
	case before.lead.Version != 0:
		s.show(leads, ownership.LeadGone{})
	}
	for i := range s.log {
		w.historyFrom[i] = len(s.log[i])
	}
	for i := range w.tallies {
		w.tallies[i].settle()
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.unaware = !n.renewedSince(shot)
		for st := range leads + 1 {
			n.reconnect[st] = true
			n.relist[st] = n.relist[st] || w.upTo(2) == 1
		}
	}
}
