package plan

import (
	"errors"
	"fmt"
	"math"

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
	// Version is what the replica runs; "" is never outgoing.
	Version string
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
	// Load is what the shard costs its holder, in any unit that is the same for
	// all shards. What isn't a positive finite number counts as 0.
	Load float64
	// Pin is the name of the replica that the shard shall be on, "" for any. While
	// no candidate has that name, the shard is placed as if it had no pin.
	Pin string
}

// Limits bound what a plan may do. The zero value balances counts without a limit.
type Limits struct {
	// MaxInMotion bounds how many shards are in motion at once, those that are
	// already so included; 0 is no limit. It holds back only moves that can wait:
	// orphans are placed, and leaving replicas emptied, whatever it says. Balancing
	// load exchanges shards by twos, which needs at least 2.
	MaxInMotion int
	// Imbalance is how far the most loaded replica may lie above the mean before
	// shards move for load: 0.2 is 20 % (per unit of weight). Once above, a plan
	// aims at half of it, so that a load that wavers around the limit doesn't move
	// shards each time. 0 balances counts only.
	Imbalance float64
	// Version is the newest version while a rollout is under way. Replicas of any
	// other are outgoing: they keep their part, but get nothing while a candidate
	// isn't outgoing. "" says that there is no rollout.
	Version string
}

// Validate reports every limit that makes no sense.
func (l Limits) Validate() error {
	var faults []error
	if l.MaxInMotion < 0 {
		faults = append(faults, fmt.Errorf("MaxInMotion is %d: want 0 (no limit) or more", l.MaxInMotion))
	}
	if math.IsNaN(l.Imbalance) || math.IsInf(l.Imbalance, 0) || l.Imbalance < 0 {
		faults = append(faults, fmt.Errorf("Imbalance is %v: want 0 (counts only) or a positive part of the mean", l.Imbalance))
	}
	return errors.Join(faults...)
}

// Reason says why a move is made. It doesn't bear on how the move is carried out.
type Reason string

const (
	// Orphan: nobody alive holds the shard.
	Orphan Reason = "orphan"
	// CalledOff: the assignee died or leaves before it took over, and the holder keeps the shard.
	CalledOff Reason = "called-off"
	// Leaving: the holder leaves.
	Leaving Reason = "leaving"
	// Pin: the shard is pinned to another replica.
	Pin Reason = "pin"
	// Balance: the holder has more shards than its part.
	Balance Reason = "balance"
	// Load: the holder is loaded above the limit.
	Load Reason = "load"
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
