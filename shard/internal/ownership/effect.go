package ownership

import (
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Effect is one thing that the driver must do. Effects on gates ([Activate], [Drain], [Close], [Lapse]) are to be done
// before the next input is fed; writes and warming run on their own and are answered by [Written], [Warmed], [Drained].
type Effect interface{ effect() }

// WriteKind says why a shard's record is written.
type WriteKind uint8

const (
	// AnnounceWarm: the assignee has warm caches.
	AnnounceWarm WriteKind = iota
	// HandOff: the holder gives the shard to its warm successor.
	HandOff
	// HandOffOnExit: as HandOff, by a replica that was told to stop.
	HandOffOnExit
	// Release: the holder gives the shard to nobody: it stops and there is no successor, or the cluster is gone.
	Release
	// ClaimFree: nobody held the shard.
	ClaimFree
	// ClaimDead: the holder's lease is sealed.
	ClaimDead
	// Report: the holder records the shard's size and load.
	Report
	// Retire: nobody will hold the record again. By its holder, or by the coordinator where that is dead.
	Retire
)

func (k WriteKind) String() string {
	if move := k.Move(); move != "" {
		return string(move)
	}
	return [...]string{AnnounceWarm: "AnnounceWarm", Release: "Release", Report: "Report", Retire: "Retire"}[k]
}

// Move returns how a write of the kind brings the shard to another holder; "" where it doesn't.
func (k WriteKind) Move() protocol.MoveKind {
	return [...]protocol.MoveKind{
		HandOff: protocol.Planned, HandOffOnExit: protocol.Exit,
		ClaimFree: protocol.Join, ClaimDead: protocol.Crash, Report: "", Retire: "",
	}[k]
}

// Claims reports whether the replica takes a shard for itself that nobody can be serving.
func (k WriteKind) Claims() bool { return k == ClaimFree || k == ClaimDead }

type (
	// WriteLease creates (Base 0) or renews the replica's own lease.
	WriteLease struct {
		Seq   uint64
		Base  Version
		Lease Lease
	}
	// DropLease deletes the replica's own lease: it has left. The last effect of a clean exit.
	DropLease struct{}
	// SealLease marks a peer's lease as dead: a compare-and-swap on Base, or the creation of a sealed lease where
	// there is none (Base 0).
	SealLease struct {
		Seq   uint64
		Base  Version
		ID    Incarnation
		Ended bool // its container's end proves it, whether or not its lease has run out
	}
	// ForgetLease deletes a sealed lease that no record names any more. Best effort, unanswered.
	ForgetLease struct{ ID Incarnation }
	// FindLease reads a peer's lease afresh, past every cache. Answered by [LeaseSeen] or [LeaseGone]; where it can't be
	// read it needs no answer.
	FindLease struct{ ID Incarnation }
	// FindLead reads the coordinator's record afresh, past every cache. Answered by [LeadFound] or [LeadGone]; where it
	// can't be read it needs no answer.
	FindLead struct{}
	// ListRecords reads all records afresh, past every cache. Answered by [Listing]; where they can't be read it needs no
	// answer.
	ListRecords struct{}
	// WriteLead takes the coordinator's role or raises the epoch floor.
	WriteLead struct {
		Seq  uint64
		Base Version
		Lead Lead
	}
	// CreateShard adds a record without holder.
	CreateShard struct {
		Seq      uint64
		ID       keyspace.ShardID
		Assignee Incarnation
		Floor    Epoch
	}
	// WriteLayout creates (Base 0) or replaces a cluster's layout.
	WriteLayout struct {
		Seq    uint64
		Base   Version
		Layout Layout
	}
	// FindLayout reads a cluster's layout afresh, past every cache. Answered by [LayoutRead]; where it can't be read it
	// needs no answer.
	FindLayout struct {
		Ask     uint64
		Cluster keyspace.ClusterName
	}
	// WriteAssignee changes a record's plan.
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
	// Probe: see whether the cluster's API server can be used from here, at once. Answered by [Health].
	Probe struct{ Cluster keyspace.ClusterName }
	// Count: count the objects of a cluster that is to be divided. Answered by [Counted], always and soon.
	Count struct {
		Cluster keyspace.ClusterName
		UID     string
	}
	// Warm: build and sync the shard's caches, with its gates closed.
	Warm struct{ ID keyspace.ShardID }
	// Activate: open the gates of the shard at this epoch and enqueue all its keys.
	Activate struct {
		ID    keyspace.ShardID
		Epoch Epoch
	}
	// Drain: start no new key, wait for running ones (bounded), close the fence, wait for writes in flight.
	Drain struct{ ID keyspace.ShardID }
	// Close: shut the gates at once if they are open, and drop the caches.
	Close struct{ ID keyspace.ShardID }
	// Lapse: the incarnation is over. Shut every gate at once and drop this machine.
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
