package plan

import (
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Incarnation names one life of a replica. One that isn't among the replicas is
// dead for good.
type Incarnation = protocol.Incarnation

// Replica is a live controller process, as its Lease shows it.
type Replica struct {
	ID Incarnation
	// Name is what stays the same across incarnations; shards are pinned to it.
	Name string
	// Weight is the replica's part of the shards relative to the others'. 0 means
	// 1; what is outside 1..MaxWeight counts as the nearer of the two.
	Weight int
	// Leaving says that the replica is about to exit, or is drained by an
	// administrator: it gets nothing new, and what it has moves away at once.
	Leaving bool
	// Unfit is what the replica says of the clusters that it can't serve.
	Unfit UnfitFor
}

// MaxWeight keeps the arithmetic of shares within 64 bits.
const MaxWeight = 1000

// Shard is what the records say about one shard.
type Shard struct {
	ID keyspace.ShardID
	// Holder and Assignee are "" for none. A shard whose holder is none or dead is
	// an orphan. One whose holder lives, and whose assignee lives and is another
	// replica, is in motion.
	Holder, Assignee Incarnation
	// Pin is the name of the replica that the shard shall be on, "" for any. While
	// no candidate has that name, the shard is placed as if it had no pin.
	Pin string
}

// Reason says why a move is made. It doesn't bear on how the move is carried out.
type Reason string

const (
	// Orphan: nobody alive holds the shard.
	Orphan Reason = "orphan"
	// CalledOff: the assignee died, leaves or can't serve the cluster, before it took over, and the holder keeps the
	// shard.
	CalledOff Reason = "called-off"
	// Leaving: the holder leaves.
	Leaving Reason = "leaving"
	// Elsewhere: the holder can't serve the shard's cluster, and another replica can.
	Elsewhere Reason = "elsewhere"
	// Pin: the shard is pinned to another replica.
	Pin Reason = "pin"
	// Balance: the holder has more shards than its part.
	Balance Reason = "balance"
)

// Move is one change of a shard's assignee.
type Move struct {
	Shard keyspace.ShardID
	// From is the live holder, "" if nobody alive holds the shard. A move whose From
	// and To are equal calls off one that was under way.
	From Incarnation
	// To is the new assignee.
	To     Incarnation
	Reason Reason
}
