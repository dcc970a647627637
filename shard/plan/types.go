package plan

import (
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Incarnation names one life of a replica. One that isn't among the replicas given to [Plan] is dead for good.
type Incarnation = protocol.Incarnation

// Replica is a live controller process, as its Lease shows it.
type Replica struct {
	ID Incarnation
	// Name is the process's name, which is the same for all its incarnations. Shards are pinned to it.
	Name string
	// Weight is the replica's share of the shards relative to the others'. 0 means 1; values outside 1..MaxWeight are
	// clamped.
	Weight int
	// Leaving says that the replica is about to exit, or that the caller treats it so, for instance because it may be
	// dead. It gets no shards, and those that it has move away at once.
	Leaving bool
	// Unfit says which clusters the replica can't serve.
	Unfit UnfitFor
}

// MaxWeight keeps the arithmetic of shares within 64 bits.
const MaxWeight = 1000

// Shard is what the records say about one shard.
type Shard struct {
	ID keyspace.ShardID
	// Holder and Assignee are "" for none. A shard is an orphan if it has no holder or a dead one. It is in motion if
	// holder and assignee are alive and differ.
	Holder, Assignee Incarnation
	// Pin is the name of the replica that the shard should be on, "" for any. While no candidate has that name, the pin
	// is ignored.
	Pin string
}

// Reason says why a move is made. It doesn't change how the move is carried out.
type Reason string

const (
	// Orphan: no live replica holds the shard.
	Orphan Reason = "orphan"
	// CalledOff: the assignee died, is leaving, or can't serve the cluster, and hasn't taken over. The holder keeps the
	// shard.
	CalledOff Reason = "called-off"
	// Leaving: the holder is leaving.
	Leaving Reason = "leaving"
	// Elsewhere: the holder can't serve the shard's cluster, and another replica can.
	Elsewhere Reason = "elsewhere"
	// Pin: the shard is pinned to another replica.
	Pin Reason = "pin"
	// Balance: the holder has more shards than its share.
	Balance Reason = "balance"
)

// Move is one change of a shard's assignee.
type Move struct {
	Shard keyspace.ShardID
	// From is the live holder, "" if there is none. A move whose From and To are equal calls off one that was under
	// way.
	From Incarnation
	// To is the new assignee.
	To     Incarnation
	Reason Reason
}
