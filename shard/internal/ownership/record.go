package ownership

import (
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// The types that the protocol shares with its observers.
type (
	Incarnation = protocol.Incarnation
	Epoch       = protocol.Epoch
	Outcome     = protocol.Outcome
)

// The outcomes of a write.
const (
	Committed = protocol.Committed
	Rejected  = protocol.Rejected
	Unknown   = protocol.Unknown
)

// Version is a record's resourceVersion. Versions of one record are ordered (KEP-5504); 0 means that there is none.
type Version uint64

// Lease is the record by which an incarnation shows that it is alive.
type Lease struct {
	ID       Incarnation
	Replica  string        // the process's configured name, stable over restarts
	Duration time.Duration // how long it may stand still before others seal it
	Weight   int           // share of the work, relative to the others'; 0 means 1
	Build    string        // version of the program, shown by tenure status
	Protocol int           // version of the protocol that it speaks; 0 means 1
	Kinds    string        // the kinds of objects it shards, sorted and separated by commas; "" if not stated
	Unfit    plan.UnfitFor // the clusters that it can't serve
	Renewal  uint64        // number of the write that made this version, as its owner counts
	// Fresh: the replica hasn't watched this home cluster for a lease duration yet, so it doesn't claim what it found
	// there.
	Fresh   bool
	Leaving bool // the replica was told to stop, and takes nothing new
	Sealed  bool // declared dead by a peer, for ever
	// Unreadable: the lease doesn't say how long it may stand still, or its protocol version is invalid. Its owner's
	// silence is never taken for death.
	Unreadable bool
	// Container identifies the container that the incarnation runs in, whose end its kubelet reports; "" if it isn't
	// known.
	Container string
	Version   Version
}

// Shard is the record that says who should hold a shard and who does.
type Shard struct {
	ID       keyspace.ShardID
	Assignee Incarnation // the replica that the plan wants as holder
	Holder   Incarnation // the replica that holds it; "" for none
	Epoch    Epoch
	Warm     Incarnation // the replica whose caches are ready to take over
	Load     float64     // as last reported
	Objects  int64       // as last reported
	Pin      string      // replica name that the operator pinned the shard to
	Floor    Epoch       // the record's first epoch is at least this; 0 if no coordinator made the record
	Retired  bool        // no replica will ever hold it again
	UID      string      // distinguishes the record from others of its name; "" if it isn't known
	Moved    *Move       // how it came to its holder, for people only; nil if it isn't known
	Version  Version
}

// Layout lists the shards that a cluster is divided into. It excludes, and never grants: a shard that the newest layout
// doesn't list isn't claimed, and its holder gives it up.
type Layout struct {
	Cluster    keyspace.ClusterName
	Generation uint32            // counts the cluster's layouts from 1 on
	Prefixes   []keyspace.Prefix // of its shards, sorted; together they cover each slot once
	UID        string            // distinguishes the cluster from others that had or have its name; "" if it isn't known
	Version    Version
}

// Move is a finished change of holder.
type Move struct {
	Kind     protocol.MoveKind
	From, To Incarnation
	At       time.Time // when the old holder's last work ended, by its wall clock
}

// Lead is the record of the coordinator.
type Lead struct {
	Holder  Incarnation
	Floor   Epoch // new records start above it, so that epochs rise across deleted records too
	Version Version
}
