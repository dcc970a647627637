package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Input is one thing that happened, as [Replica.Step] takes it.
type Input interface{ input() }

type (
	// LeaseSeen: a version of a lease was read or watched. Older versions than the newest seen are ignored.
	LeaseSeen struct{ Lease Lease }
	// LeaseGone: the lease doesn't exist (any more).
	LeaseGone struct{ ID Incarnation }
	// ShardSeen: a version of a shard record was read or watched.
	ShardSeen struct{ Shard Shard }
	// ShardGone: the record was deleted. Version is the deletion's, as the watch tells it. It is 0 where a read just
	// didn't find the record; Asked is when that read was sent. What was seen since then may be newer.
	ShardGone struct {
		ID      keyspace.ShardID
		Version Version
		Asked   Instant
	}
	// LayoutSeen: the watch shows a version of a cluster's layout. All changes of records before it have been fed.
	LayoutSeen struct{ Layout Layout }
	// LayoutGone: the watch shows that it was deleted, and a live read didn't find it.
	LayoutGone struct{ Cluster keyspace.ClusterName }
	// LayoutRead answers [FindLayout], with its number: the layout as it is, of Version 0 where there is none. With number 0
	// it is what was read after a write of the layout.
	LayoutRead struct {
		Ask     uint64
		Cluster keyspace.ClusterName
		Layout  Layout
	}
	// LeadSeen: a version of the coordinator's record was read or watched.
	LeadSeen struct{ Lead Lead }
	// ContainerSeen: a kubelet reports on a container. Ended are the incarnations that it says to have run in it and to
	// have ended, by the termination messages that they left; none where it says nothing (any more).
	ContainerSeen struct {
		Container string
		Ended     []Incarnation
	}
	// LeadFound: the coordinator's record as a live read shows it, which a [FindLead] asked for.
	LeadFound struct{ Lead Lead }
	// LeadGone: the coordinator's record was deleted, or isn't there.
	LeadGone struct{}
	// Viewed: a view shows all that was committed until that instant.
	Viewed struct {
		View View
		At   Instant
	}
	// Listing: all records, as a live list that was asked for at that instant shows them.
	Listing struct {
		Leases  []Lease
		Lead    Lead // Version 0: there is none
		Shards  []Shard
		Layouts []Layout // of the same version as the shards
		Asked   Instant
	}
	// WentBack: a live read doesn't show what was seen before it was sent, or nothing shows any more that it would.
	WentBack struct{ What string }
	// Synced: the first listing of all records has been fed. Nothing is concluded from absence before it.
	Synced struct{}
	// Clusters: the workload clusters that exist now, with the number of prefix bits that new ones are divided by at most, and what
	// tells each from others of its name; "" where that can't be known.
	Clusters struct {
		Bits map[keyspace.ClusterName]int
		UIDs map[keyspace.ClusterName]string
	}
	// Written answers a write. Where it wasn't committed, the driver reads the record afresh if it can and feeds that
	// first; Version is the new version of a committed write.
	Written struct {
		Seq     uint64
		Outcome Outcome
		Version Version
		Cause   Cause         // why it wasn't committed
		After   time.Duration // how long the API server asked to wait before the next try, 0 if it didn't
	}
	// Warmed: the shard's caches are synced, as the last [Warm] effect asked. After a [Close] the driver drops answers to
	// what was asked before it.
	Warmed struct{ ID keyspace.ShardID }
	// Drained: no reconcile and no write of the shard is running, and none can start, as the last [Drain] effect asked.
	Drained struct{ ID keyspace.ShardID }
	// Measured: the shard's size and load, for the record.
	Measured struct {
		ID      keyspace.ShardID
		Objects int64
		Load    float64
	}
	// Health: a cluster's API server was looked at, as a [Probe] asked or because something speaks for a change. It can
	// be used from here, or it can't.
	Health struct {
		Cluster keyspace.ClusterName
		Usable  bool
	}
	// Counted: how many objects a cluster has, as a [Count] asked; negative where that can't be found out.
	Counted struct {
		Cluster keyspace.ClusterName
		UID     string // as the question had it
		Objects int64
	}
	// Leave: the process was told to stop.
	Leave struct{}
	// Tick: time passed.
	Tick struct{}
)

func (LeaseSeen) input()     {}
func (ContainerSeen) input() {}
func (LeaseGone) input()     {}
func (ShardSeen) input()     {}
func (ShardGone) input()     {}
func (LeadSeen) input()      {}
func (LeadFound) input()     {}
func (LeadGone) input()      {}
func (Viewed) input()        {}
func (Listing) input()       {}
func (WentBack) input()      {}
func (Synced) input()        {}
func (Clusters) input()      {}
func (Written) input()       {}
func (Warmed) input()        {}
func (Drained) input()       {}
func (Measured) input()      {}
func (Leave) input()         {}
func (Tick) input()          {}
func (Health) input()        {}
func (Counted) input()       {}
func (LayoutSeen) input()    {}
func (LayoutGone) input()    {}
func (LayoutRead) input()    {}
