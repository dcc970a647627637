// Package protocol has the words that the ownership protocol shares with logs, metrics, traces and tools: who holds a
// shard, in which tenure, and how it came there. It is pure; the protocol itself is in shard/internal/ownership, and
// shard/DESIGN.md describes it.
package protocol

// Version of the protocol, as each replica's Lease tells it. A Lease that tells none is of version 1. From version 3 on, a
// cluster has a layout, and a replica refuses to join those whose version is above its own.
const Version = 3

// Incarnation names one life of one replica: the replica's name and a random suffix, as in "web-0-x7k2p". It is new at
// every start and after every lapse, and never used again. So an incarnation that isn't alive is dead for good.
type Incarnation string

// Epoch counts the changes of holder of one shard. It never goes down.
type Epoch int64

// Outcome is what became of a write.
type Outcome uint8

const (
	// Committed: the record now is what was written.
	Committed Outcome = iota
	// Rejected: the record had changed (or was there already, or is gone). The write will never happen.
	Rejected
	// Unknown: no answer, or one that doesn't tell. The write may have happened, or may still happen.
	Unknown
)

func (o Outcome) String() string {
	return [...]string{"committed", "rejected", "unknown"}[o]
}

// MoveKind says how a shard came to its holder. Records, logs, metrics and traces show it as it is written here.
type MoveKind string

const (
	// Join: nobody held the shard before.
	Join MoveKind = "Join"
	// Planned: its holder handed it off, as the coordinator asked.
	Planned MoveKind = "Planned"
	// Exit: its holder handed it off because it was told to stop.
	Exit MoveKind = "Exit"
	// Crash: its holder's Lease ran out and was sealed.
	Crash MoveKind = "Crash"
	// Resumed: no move at all. Its holder had begun to drain and kept the shard, in the same epoch.
	Resumed MoveKind = "Resumed"
)
