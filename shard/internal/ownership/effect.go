package ownership

import (
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Effect is one thing that the driver must do. Effects on gates ([Activate], [Drain], [Close], [Lapse]) must be carried
// out before the next input is fed. Writes and warming run concurrently, and [Written], [Warmed] and [Drained] answer
// them.
type Effect interface{ effect() }

// WriteKind says why a shard's record is written.
type WriteKind uint8

const (
	// AnnounceWarm: the assignee's caches are warm or, if the record's Warm becomes "", aren't any more.
	AnnounceWarm WriteKind = iota
	// HandOff: the holder gives the shard to its warm successor.
	HandOff
	// HandOffOnExit is HandOff by a replica that was told to stop.
	HandOffOnExit
	// Release: the holder leaves the shard without a holder: it stops and has no successor, or the cluster is gone.
	Release
	// ClaimFree: the shard had no holder.
	ClaimFree
	// ClaimDead: the holder's lease is sealed.
	ClaimDead
	// Report: the holder records the shard's size and load, or clears the Warm entry of a successor that has gone.
	Report
	// Retire: the record will never have a holder again. Written by its holder, or by the coordinator if no live
	// replica holds it.
	Retire
	// Clear: the coordinator removes a dead holder from the record of a removed cluster. The epoch stays.
	Clear
)

func (k WriteKind) String() string {
	if move := k.Move(); move != "" {
		return string(move)
	}
	return [...]string{
		AnnounceWarm: "AnnounceWarm", Release: "Release", Report: "Report", Retire: "Retire", Clear: "Clear",
	}[k]
}

// Move returns the kind of move that a write of this kind makes; "" if the shard goes to no other replica.
func (k WriteKind) Move() protocol.MoveKind {
	return [...]protocol.MoveKind{
		HandOff: protocol.Planned, HandOffOnExit: protocol.Exit,
		ClaimFree: protocol.Join, ClaimDead: protocol.Crash, Clear: "",
	}[k]
}

// Claims reports whether a write of this kind takes a shard that no replica can be serving.
func (k WriteKind) Claims() bool { return k == ClaimFree || k == ClaimDead }

type (
	// WriteLease creates (Base 0) or renews the replica's own lease.
	WriteLease struct {
		Seq   uint64
		Base  Version
		Lease Lease
	}
	// DropLease deletes the replica's own lease after a clean exit. It is the last effect.
	DropLease struct{}
	// SealLease marks a peer's lease as dead: a compare-and-swap on Base or, if the lease is missing (Base 0), the
	// creation of a sealed one.
	SealLease struct {
		Seq   uint64
		Base  Version
		ID    Incarnation
		Ended bool // a Pod proved that the incarnation has ended; its lease need not have run out
	}
	// ForgetLease deletes a sealed lease that no record names. It gets no answer, and is emitted again while the lease is
	// there.
	ForgetLease struct{ ID Incarnation }
	// FindLease reads a peer's lease live, not from a cache. [LeaseSeen] or [LeaseGone] answers it; a failed read needs
	// no answer.
	FindLease struct{ ID Incarnation }
	// FindLead reads the lead record live. [LeadFound] or [LeadGone] answers it; a failed read needs no answer.
	FindLead struct{}
	// ListRecords lists all records live. [Listing] answers it; a failed list needs no answer.
	ListRecords struct{}
	// WriteLead takes the coordinator's role or raises the epoch floor.
	WriteLead struct {
		Seq  uint64
		Base Version
		Lead Lead
	}
	// CreateShard creates a shard record without a holder.
	CreateShard struct {
		Seq      uint64
		ID       keyspace.ShardID
		Assignee Incarnation
		Floor    Epoch
	}
	// WriteLayout creates (Base 0) or replaces a cluster's layout.
	WriteLayout struct {
		Seq     uint64
		Base    Version
		Layout  Layout
		OnlyUID bool // all but its UID stays as it is
	}
	// FindLayout reads a cluster's layout live. [LayoutRead] answers it; a failed read needs no answer.
	FindLayout struct {
		Ask     uint64
		Cluster keyspace.ClusterName
	}
	// WriteAssignee changes the assignee of a shard.
	WriteAssignee struct {
		Seq      uint64
		Base     Version
		ID       keyspace.ShardID
		Assignee Incarnation
	}
	// WriteShard changes a record's status.
	WriteShard struct {
		Seq   uint64
		Kind  WriteKind
		From  Incarnation // the holder it replaces
		Shard Shard       // what to write; Shard.Version is the version it replaces
	}
	// Probe checks at once whether the cluster's API server can be used from here. [Health] answers it.
	Probe struct{ Cluster keyspace.ClusterName }
	// Count counts the objects of a cluster before it is divided. [Counted] answers it, always and soon.
	Count struct {
		Cluster keyspace.ClusterName
		UID     string
	}
	// Warm builds and syncs the shard's caches, with its gates closed.
	Warm struct{ ID keyspace.ShardID }
	// Activate opens the shard's gates at this epoch and enqueues all its keys.
	Activate struct {
		ID    keyspace.ShardID
		Epoch Epoch
	}
	// Drain starts no new key, waits for running ones (bounded), closes the fence, and waits for writes in flight.
	Drain struct{ ID keyspace.ShardID }
	// Close shuts the gates at once if they are open, and drops the caches.
	Close struct{ ID keyspace.ShardID }
	// Lapse says that the incarnation is over: shut every gate at once and drop this state machine.
	Lapse struct{ Reason string }
)

func (WriteLease) effect()    {}
func (DropLease) effect()     {}
func (SealLease) effect()     {}
func (ForgetLease) effect()   {}
func (FindLease) effect()     {}
func (FindLead) effect()      {}
func (ListRecords) effect()   {}
func (WriteLead) effect()     {}
func (CreateShard) effect()   {}
func (WriteLayout) effect()   {}
func (FindLayout) effect()    {}
func (WriteAssignee) effect() {}
func (WriteShard) effect()    {}
func (Probe) effect()         {}
func (Count) effect()         {}
func (Warm) effect()          {}
func (Activate) effect()      {}
func (Drain) effect()         {}
func (Close) effect()         {}
func (Lapse) effect()         {}
