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
	// LeaseGone: the lease doesn't exist, or no longer exists.
	LeaseGone struct{ ID Incarnation }
	// ShardSeen: a version of a shard record was read or watched.
	ShardSeen struct{ Shard Shard }
	// ShardGone: a read that was sent at Asked didn't find the record. A version seen after that may be newer.
	ShardGone struct {
		ID    keyspace.ShardID
		Asked Instant
	}
	// LayoutSeen: the watch shows a version of a cluster's layout. All earlier changes of records have been fed.
	LayoutSeen struct{ Layout Layout }
	// LayoutGone: the watch shows that the layout was deleted, and a live read didn't find it.
	LayoutGone struct{ Cluster keyspace.ClusterName }
	// LayoutRead answers [FindLayout] and repeats its Ask. Ask 0 marks a read that followed a write of the layout. The
	// layout's Version is 0 if there is none.
	LayoutRead struct {
		Ask     uint64
		Cluster keyspace.ClusterName
		Layout  Layout
	}
	// LeadSeen: a version of the lead record was read or watched.
	LeadSeen struct{ Lead Lead }
	// ContainerSeen: a kubelet reports on a container. Ended lists the incarnations that ran in it and have ended, by
	// their termination messages. It is empty if the kubelet reports none, or no longer does.
	ContainerSeen struct {
		Container string
		Ended     []Incarnation
	}
	// LeadFound: the lead record, from the live read that a [FindLead] requested.
	LeadFound struct{ Lead Lead }
	// LeadGone: the lead record was deleted, or doesn't exist.
	LeadGone struct{}
	// CaughtUp: a watch has shown everything that was committed before that instant.
	CaughtUp struct {
		Watch Watch
		At    Instant
	}
	// Listing: all records, from a live list that was sent at Asked.
	Listing struct {
		Leases  []Lease
		Lead    Lead // Version 0: there is none
		Shards  []Shard
		Layouts []Layout // of the same version as the shards
		// Unreadable are the UIDs of records that exist but can't be parsed: their last readable version counts.
		// UnreadableLayouts are the clusters whose layouts exist but can't be parsed.
		Unreadable        map[string]bool
		UnreadableLayouts map[keyspace.ClusterName]bool
		Asked             Instant
	}
	// WentBack: a live read doesn't show what was seen before it was sent, or an earlier incarnation's Lease is
	// missing.
	WentBack struct{ Reason string }
	// Synced: the first listing of all records has been fed. Before it, nothing follows from a record's absence.
	Synced struct{}
	// Clusters: the workload clusters that exist now. Bits has those that may be served, with the most prefix bits by
	// which each may be divided if it is new. UIDs has their UIDs; "" if one isn't known. Unmet has the others' names.
	Clusters struct {
		Bits  map[keyspace.ClusterName]int
		UIDs  map[keyspace.ClusterName]string
		Unmet map[keyspace.ClusterName]bool
	}
	// Written answers a write. If the write wasn't committed, the driver reads the record live, if it can, and feeds
	// that first. Version is that of the committed record.
	Written struct {
		Seq     uint64
		Outcome Outcome
		Version Version
		Cause   Cause         // why it wasn't committed
		After   time.Duration // how long the API server asked to wait; 0 if it didn't
	}
	// Warmed: the shard's caches are synced, as the last [Warm] effect asked. After a [Close], the driver drops answers
	// to earlier effects.
	Warmed struct{ ID keyspace.ShardID }
	// Drained: no reconcile and no write of the shard is running, and none can start, as the last [Drain] effect asked.
	Drained struct{ ID keyspace.ShardID }
	// Measured: the shard's size and load, for its record. Load is in seconds of reconciling per second.
	Measured struct {
		ID      keyspace.ShardID
		Objects int64
		Load    float64
	}
	// Health: whether the cluster's API server can be used from here. It answers a [Probe], or the driver found out by
	// itself.
	Health struct {
		Cluster keyspace.ClusterName
		Usable  bool
	}
	// Counted answers [Count]: how many objects the cluster has, or a negative number if they can't be counted.
	Counted struct {
		Cluster keyspace.ClusterName
		UID     string // as in the Count
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
func (CaughtUp) input()      {}
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
