package shardtest

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// A simulated process of the previous version runs the present driver and machine. It isn't shown what its version
// doesn't know: layouts, records of later generations, retirements, the UIDs of clusters. Its Lease names its
// version.
//
// It must make and claim records without layouts, as the machine does while it sees a process of an older version.
// So it is shown one more Lease, that of the bystander.
//
// In two ways it is better than the real previous version: it makes and claims nothing beside records that overlap,
// and it notices when the store goes back. The simulator doesn't cover these differences.

// previousVersion is the last version of the protocol that knows no layouts.
const previousVersion = protocol.Version - 1

// bystander is the additional Lease that a process of the previous version is shown. It is unreadable, so its owner
// gets no shards and is never considered dead. It is fresh, so it doesn't make the fleet look old.
var bystander = ownership.Lease{
	ID: "bystander", Duration: leaseDuration, Protocol: 1, Unreadable: true, Fresh: true, Version: 1,
}

// nameless reports whether the previous version ignores records of that name.
func nameless(id keyspace.ShardID) bool { return id.Generation > 1 }

// asPrevious returns an event as a process of the previous version sees it; nil if it sees nothing.
func asPrevious(e driver.Event) driver.Event {
	switch in := e.(type) {
	case driver.Clusters:
		in.UIDs = nil
		return in
	case driver.Seen:
		switch what := in.What.(type) {
		case ownership.LayoutSeen, ownership.LayoutGone:
			return nil
		case ownership.ShardGone:
			if nameless(what.ID) {
				return nil
			}
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

// byPrevious returns an effect as a process of the previous version writes it.
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

// upgrade ends a process, which comes back as this version or, if N is odd, as the previous one. It is told to stop
// or, if N is 2 or 3, crashes.
func (n *node) upgrade(f *Fault) {
	n.nextPrevious, n.upgradeFault = f.N%2 == 1, f
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

// waits reports whether some shards of a cluster may stay unserved while processes of the previous version run: the
// cluster was made anew, has records of a later generation, or has records that are retired or not listed.
func (w *world) waits(c keyspace.ClusterName) bool {
	if !w.previousRuns() {
		return false
	}
	l := w.store.layout(c)
	return w.made[c] > 0 || slices.ContainsFunc(w.store.shards.all, func(s ownership.Shard) bool {
		return s.ID.Cluster == c && (s.Retired || nameless(s.ID) || (l != nil && !l.Lists(s.ID)))
	})
}

// named reports whether a record that the previous version knows has slots in common with a shard.
func (w *world) named(id keyspace.ShardID) bool {
	return slices.ContainsFunc(w.store.shards.all, func(s ownership.Shard) bool {
		return s.ID.Cluster == id.Cluster && !nameless(s.ID) && overlap(s.ID.Prefix, id.Prefix)
	})
}

// finest are the smallest parts that a schedule divides a cluster into.
var finest = keyspace.Partition(6)

// givesUpNames reports whether a fault could leave records of the first generation beside others that overlap them,
// while processes of the previous version run. That is so if the fault deletes a record in a cluster that has a layout
// or record of a later generation, makes a retired record anew, or replaces a layout or cluster before each slot has
// had a record of the first generation. The protocol promises nothing then.
func (w *world) givesUpNames(f *Fault, id keyspace.ShardID) bool {
	if !w.schedule.mixes() {
		return false
	}
	c := w.names[f.N%len(w.names)]
	switch l := w.store.layout(id.Cluster); f.Kind {
	case DeleteShard, Replace:
		if s := w.store.shard(id); f.Kind == Replace && s != nil && s.Retired {
			return true
		}
		return l != nil && l.Generation > 1 || slices.ContainsFunc(w.store.shards.all, func(s ownership.Shard) bool {
			return s.ID.Cluster == id.Cluster && nameless(s.ID)
		})
	case EditLayout, ReplaceLayout, RemakeCluster:
		return slices.ContainsFunc(finest, func(p keyspace.Prefix) bool {
			return !w.named(keyspace.ShardID{Cluster: c, Prefix: p})
		})
	}
	return false
}
