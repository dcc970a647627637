package shardtest

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// A process of the previous version runs the same driver and machine, and is kept from what its version doesn't know:
// layouts, records of later generations, that a record is retired, the UIDs of clusters. Its Lease names its version.
// It makes and claims records as the machine does beside such a process, so it is shown one more Lease, of an owner
// that does nothing: else the machine would make layouts as soon as it knows of no other process of that version. What
// it has all the same, and that version lacked, isn't missed here: it makes and claims nothing beside records that
// overlap, and knows when the store goes back.

// previousVersion is the last version of the protocol that knows no layouts.
const previousVersion = protocol.Version - 1

// bystander is the Lease that a process of the previous version is shown. Its owner is never given anything or taken
// for dead, and, as it is fresh, says nothing about how long the fleet has existed.
var bystander = ownership.Lease{
	ID: "bystander", Duration: leaseDuration, Protocol: 1, Unreadable: true, Fresh: true, Version: 1,
}

// nameless reports whether the previous version ignores records of that name.
func nameless(id keyspace.ShardID) bool { return id.Generation > 1 }

// asPrevious returns what an event tells a process of the previous version; nil for nothing.
func asPrevious(e driver.Event) driver.Event {
	switch in := e.(type) {
	case driver.Clusters:
		in.UIDs = nil
		return in
	case driver.Deleted:
		if nameless(in.ID) {
			return nil
		}
	case driver.Seen:
		switch what := in.What.(type) {
		case ownership.LayoutSeen, ownership.LayoutGone:
			return nil
		case ownership.ShardSeen:
			if nameless(what.Shard.ID) {
				return nil
			}
			what.Shard.Retired = false
			in.What = what
			return in
		}
	case driver.Found:
		switch what := in.What.(type) {
		case ownership.LayoutRead:
			what.Layout = ownership.Layout{}
			in.What = what
		case ownership.ShardSeen:
			what.Shard.Retired = false
			in.What = what
		case ownership.Listing:
			what.Leases, what.Layouts = append(slices.Clone(what.Leases), bystander), nil
			what.Shards = slices.DeleteFunc(slices.Clone(what.Shards), func(s ownership.Shard) bool { return nameless(s.ID) })
			for i := range what.Shards {
				what.Shards[i].Retired = false
			}
			in.What = what
		}
		return in
	}
	return e
}

// byPrevious returns what a process of the previous version writes.
func (n *node) byPrevious(e ownership.Effect) ownership.Effect {
	switch e := e.(type) {
	case ownership.WriteLease:
		e.Lease.Protocol = previousVersion
		return e
	case ownership.WriteLayout:
		n.w.fail(n, "the simulator: a process that knows no layouts writes one of %s", e.Layout.Cluster)
	}
	return e
}

// upgrade has a process come back as this version or, where N is odd, as the previous one. It is told to stop or, where
// N is 2 or 3, dies.
func (n *node) upgrade(f *Fault) {
	n.nextPrevious = f.N%2 == 1
	switch {
	case f.N >= 2:
		n.crash(f.For)
	case n.up && n.w.now >= n.stoppedTill:
		n.backIn = f.For
		n.handle(driver.Leave{})
	}
}

// previousRuns reports whether a process of the previous version runs.
func (w *world) previousRuns() bool {
	return slices.ContainsFunc(w.nodes, func(n node) bool { return n.up && n.previous })
}

// waits reports whether some of a cluster may wait for the end of the processes of the previous version: it was made
// anew, or its layout is of a later generation, or some of its records aren't listed.
func (w *world) waits(c keyspace.ClusterName) bool {
	if !w.previousRuns() {
		return false
	}
	l := w.store.layout(c)
	return w.made[c] > 0 || slices.ContainsFunc(w.store.shards, func(s ownership.Shard) bool {
		return s.ID.Cluster == c && (s.Retired || nameless(s.ID) || (l != nil && !l.Lists(s.ID)))
	})
}

// named reports whether a record that the previous version knows has slots in common with a shard.
func (w *world) named(id keyspace.ShardID) bool {
	return slices.ContainsFunc(w.store.shards, func(s ownership.Shard) bool {
		return s.ID.Cluster == id.Cluster && !nameless(s.ID) && overlap(s.ID.Prefix, id.Prefix)
	})
}

// finest are the smallest parts that a schedule divides a cluster into.
var finest = keyspace.Partition(6)

// givesUpNames reports whether a fault takes from the previous version the records by which it knows that it may not
// serve a cluster, or lets generations pass before all slots have had one. It would make them beside those of a later
// generation, so the protocol promises nothing then.
func (w *world) givesUpNames(f *Fault, id keyspace.ShardID) bool {
	if w.schedule.Previous == nil {
		return false
	}
	c := w.names[f.N%len(w.names)]
	switch l := w.store.layout(id.Cluster); f.Kind {
	case DeleteShard, Replace:
		return l != nil && l.Generation > 1
	case EditLayout, ReplaceLayout, RemakeCluster:
		return slices.ContainsFunc(finest, func(p keyspace.Prefix) bool {
			return !w.named(keyspace.ShardID{Cluster: c, Prefix: p})
		})
	}
	return false
}
