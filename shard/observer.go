package shard

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Observer receives what happens to a replica's shards. Its methods are called from the loop that drives the protocol
// and from concurrent writes, several at a time. They must return at once and not call back.
type Observer interface {
	// Activated: the replica serves a shard from now on.
	Activated(Activation)
	// Closed: the replica doesn't serve the shard any more.
	Closed(shard keyspace.ShardID, epoch protocol.Epoch)
	// Renewed: the lease was renewed, with so much time left before the replica would have lapsed.
	Renewed(margin time.Duration)
	// Lapsed: the incarnation has ended, and with it all that it held. It isn't called for a next one that ends because
	// the Lease of this one is missing, and that has held nothing yet: that is still the same trouble.
	Lapsed(incarnation protocol.Incarnation, reason string)
	// Wrote: a write of a coordination record, named by what, ended with this outcome.
	Wrote(what string, outcome protocol.Outcome)
	// Stepped: one step on a shard's way to a new tenure is over at this replica.
	Stepped(Step)
}

// Step is one replica's part in a change of holder. The steps that all replicas see of one change have shard, epoch and
// record in common.
type Step struct {
	Name  StepName
	Shard keyspace.ShardID
	// Epoch is that of the tenure that the step leads to; 0 while warming, when it isn't known yet.
	Epoch protocol.Epoch
	// Record is the UID of the shard's record: it distinguishes this fleet's shard from another's of the same name.
	Record types.UID
	// Incarnation took the step. Peer is the incarnation that the shard comes from or goes to, "" if there is none.
	Incarnation, Peer protocol.Incarnation
	Start, End        time.Time
	// Outcome of the step's write; steps without one are committed.
	Outcome protocol.Outcome
}

// StepName says what was done in a [Step].
type StepName string

// The steps, in the order of a planned move.
const (
	StepPlan     StepName = "plan"          // coordinator: the record names the assignee
	StepWarm     StepName = "warm"          // assignee: its caches are built and synced
	StepAnnounce StepName = "announce warm" // assignee: the record says so
	StepDrain    StepName = "drain"         // holder: what ran has ended, its fence is closed
	StepHandOff  StepName = "hand off"      // holder: the record names the successor, or no holder
	StepClaim    StepName = "claim"         // a shard without a live holder is taken
	StepActivate StepName = "activate"      // new holder: its gate is open, its keys are enqueued
)

// Activation is the beginning of a tenure at its holder.
type Activation struct {
	Shard       keyspace.ShardID
	Epoch       protocol.Epoch
	Incarnation protocol.Incarnation
	// Kind is the kind of the move that led to the tenure, "" if it isn't known. It is Resumed if the replica had
	// begun to drain and kept the shard, in the same epoch.
	Kind protocol.MoveKind
	From protocol.Incarnation
	// Record is the UID of the shard's record, "" if the record couldn't be read.
	Record types.UID
	// Gap is the time since the old holder's last work ended. For Planned and Exit it compares two machines' wall
	// clocks. For Resumed the old holder is this replica. For other kinds it is 0.
	Gap time.Duration
	// Objects is how many objects of primary kinds the warm caches held.
	Objects int64
}

// NopObserver ignores everything. Embed it to implement only a part of [Observer].
type NopObserver struct{}

func (NopObserver) Activated(Activation)                    {}
func (NopObserver) Closed(keyspace.ShardID, protocol.Epoch) {}
func (NopObserver) Renewed(time.Duration)                   {}
func (NopObserver) Lapsed(protocol.Incarnation, string)     {}
func (NopObserver) Wrote(string, protocol.Outcome)          {}
func (NopObserver) Stepped(Step)                            {}
