// Package protocol has the types and constants that the ownership protocol shares with logs, metrics, traces and
// tools: who holds a shard, in which tenure, by what kind of move it got the shard, and how its cluster answers. It
// imports nothing. The protocol itself is in shard/internal/ownership, and shard/DESIGN.md describes it.
package protocol

// Version is the version of the protocol that each replica states in its Lease. A Lease that states none is of version
// 1. From version 3 on a cluster has a layout, and a replica doesn't join a fleet with a later version than its own.
const Version = 3

// Incarnation names one life of one replica: the replica's name and a random suffix, as in "web-0-x7k2p". It is new at
// every start and after every lapse, and never used again. So an incarnation that isn't alive is dead for good.
type Incarnation string

// Epoch is a number that grows with each new holder of a shard, by one or more. It never falls, and no two holders
// of a shard have the same one.
type Epoch int64

// Outcome is the result of a write.
type Outcome uint8

const (
	// Committed: the record is now what was written.
	Committed Outcome = iota
	// Rejected: the record had changed, existed already, or was gone. The write will never be committed.
	Rejected
	// Unknown: there was no answer, or one that leaves the result open. The write may have been committed, or may still
	// be.
	Unknown
)

func (o Outcome) String() string {
	return [...]string{"committed", "rejected", "unknown"}[o]
}

// MoveKind is the way by which a holder got its shard. Logs, metrics and traces use these names. So do records,
// which never show Resumed.
type MoveKind string

const (
	// Join: the shard had no holder before.
	Join MoveKind = "Join"
	// Planned: the holder handed it off because the coordinator planned that.
	Planned MoveKind = "Planned"
	// Exit: the holder handed it off because it was told to stop.
	Exit MoveKind = "Exit"
	// Crash: the holder's Lease was sealed, and another replica claimed the shard.
	Crash MoveKind = "Crash"
	// Resumed: no move. The holder had begun to drain and then kept the shard, in the same epoch.
	Resumed MoveKind = "Resumed"
)

// ClusterState is the state of a workload cluster, as its answers to one replica's requests show it.
type ClusterState string

const (
	// ClusterClosed: keys of its shards go through.
	ClusterClosed ClusterState = "closed"
	// ClusterLimited: keys go through, but it refuses a part of the requests, or answers late.
	ClusterLimited ClusterState = "limited"
	// ClusterOpen: keys are put off.
	ClusterOpen ClusterState = "open"
	// ClusterHalfOpen: keys are put off, but one is on trial.
	ClusterHalfOpen ClusterState = "half-open"
)
