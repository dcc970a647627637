package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// The words that the protocol shares with those who look at it.
type (
	Incarnation = protocol.Incarnation
	Epoch       = protocol.Epoch
	Outcome     = protocol.Outcome
)

// What became of a write.
const (
	Committed = protocol.Committed
	Rejected  = protocol.Rejected
	Unknown   = protocol.Unknown
)

// Version is a record's resourceVersion. Versions of one record are ordered (KEP-5504); 0 means that there is none.
type Version uint64

// Lease is the record by which an incarnation shows that it lives.
type Lease struct {
	ID       Incarnation
	Replica  string        // the process's configured name, stable over restarts
	Duration time.Duration // how long it may stand still before others seal it
	Weight   int           // share of the work, relative to the others'; 0 means 1
	Build    string        // version of the program, for rollouts
	Protocol int           // version of the protocol that it speaks; 0 means 1
	Kinds    string        // the kinds it shards, sorted and separated by commas; "" if it hasn't said
	Unfit    plan.UnfitFor // the clusters that it can't serve
	Renewal  uint64        // number of the write that made this version, as its owner counts
	Leaving  bool          // the replica was told to stop: it takes nothing new
	Sealed   bool          // declared dead by a peer; for ever
	// Unreadable: it doesn't say how long it may stand still, or what it says of its protocol makes no sense. Its owner is
	// never taken for dead by its silence.
	Unreadable bool
	// Container is the one that the incarnation runs in, as its Pod's kubelet reports on it; "" where that isn't known.
	Container string
	Version   Version
}

// Shard is the record of who should hold a shard and who does.
type Shard struct {
	ID       keyspace.ShardID
	Assignee Incarnation // whom the plan wants as holder
	Holder   Incarnation // who holds it; "" is nobody
	Epoch    Epoch
	Warm     Incarnation // who has caches ready to take over
	Load     float64     // as last reported
	Objects  int64       // as last reported
	Pin      string      // replica name that the operator pinned the shard to
	Floor    Epoch       // the record's first epoch, at least; 0 if no coordinator made the record
	Retired  bool        // nobody will ever hold it again
	UID      string      // tells the record from others of its name; "" where that isn't known
	Moved    *Move       // how it came to its holder, as the record tells; for people alone, nil where it isn't known
	Version  Version
}

// Layout lists the shards that a cluster is divided into. It excludes, and never grants: a shard that the newest layout
// doesn't list isn't claimed, and is held no longer than it takes to end that in order.
type Layout struct {
	Cluster    keyspace.ClusterName
	Generation uint32            // counts the cluster's layouts from 1 on
	Prefixes   []keyspace.Prefix // of its shards, sorted; together they cover each slot once
	UID        string            // tells the cluster from others that had or have its name; "" where that isn't known
	Version    Version
}

// Move is a change of holder that is over.
type Move struct {
	Kind     protocol.MoveKind
	From, To Incarnation
	At       time.Time // when the old holder's last work ended, by its wall clock
}

// Lead is the record of the coordinator.
type Lead struct {
	Holder  Incarnation
	Floor   Epoch // new records start above it: keeps epochs rising across deleted ones
	Version Version
}
