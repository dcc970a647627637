package driver

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Event is one thing that happened to the process, as [Driver.Handle] takes it.
type Event interface{ event() }

type (
	// Start: the process takes part from now on. The known clusters are fed before.
	Start struct{}
	// Clusters: the workload clusters that exist now and have kinds to divide, a new one into at most 2^Bits shards.
	// ClusterNos distinguishes each from earlier ones of its name: a number stays while only the cluster's server or
	// credentials change. A cluster without an entry is never replaced. UIDs distinguishes a cluster from others that had
	// or have its name; "" if that isn't known. Unmet has others that exist: they aren't identified yet, or have no kinds
	// to divide. The maps are never changed afterwards.
	Clusters struct {
		Bits       map[keyspace.ClusterName]int
		UIDs       map[keyspace.ClusterName]string
		ClusterNos map[keyspace.ClusterName]uint64
		Unmet      map[keyspace.ClusterName]bool
	}
	// Seen: a watch, or its first listing, shows a record, or that one was deleted. By is the incarnation that the watch
	// belongs to. The driver reads most records live before it believes that they were deleted.
	Seen struct {
		What ownership.Input
		By   ownership.Incarnation
	}
	// Reconnected: a watch of records was interrupted and goes on. It may go on in another history.
	Reconnected struct{}
	// Listed: everything that existed when the incarnation began to watch the records has been fed.
	Listed struct{ By ownership.Incarnation }
	// Written answers a [Write].
	Written struct {
		Number  uint64
		Outcome ownership.Outcome
		Version ownership.Version // the new one, of a committed write
		Cause   ownership.Cause   // why the write wasn't committed
		After   time.Duration     // how long the API server asked to wait; 0 if it didn't
		At      ownership.Instant // when the answer came; zero: when it is handled
	}
	// Found answers a [Read]. What is nil if the read failed. At is when the answer came; zero: when it is handled.
	Found struct {
		Number uint64
		What   ownership.Input
		At     ownership.Instant
	}
	// Opened: the caches that a [Warm] asked for are being built over the cluster of this number; see [Clusters].
	Opened struct {
		Number    uint64
		ID        keyspace.ShardID
		ClusterNo uint64
	}
	// Warmed: the caches are synced.
	Warmed struct {
		Number uint64
		ID     keyspace.ShardID
	}
	// Drained answers a [Drain]: no work of the tenure can write any more. Ended is when its last work ended, by the
	// wall clock.
	Drained struct {
		Number uint64
		ID     keyspace.ShardID
		Ended  time.Time
	}
	// Stopped answers a [Stop]. Quiet says that no work of the incarnation can write any more.
	Stopped struct {
		Number uint64
		Quiet  bool
	}
	// Measured: a shard's size and load.
	Measured ownership.Measured
	// Health says whether a cluster's API server can be used from here. It answers a [Probe], and is also sent when that
	// changes.
	Health ownership.Health
	// Counted: a cluster has this many objects, or a negative number if they couldn't be counted. It answers a [Count].
	Counted ownership.Counted
	// Leave: the process was told to stop.
	Leave struct{}
	// Quit: the process must end now, without time to hand anything off.
	Quit struct{}
	// Tick: time passed; see [Driver.Wake].
	Tick struct{}
)

// Tenure describes a tenure for traces of a move.
type Tenure struct {
	Record string // UID of the record
	Epoch  ownership.Epoch
	Ended  time.Time // by the wall clock; zero if it isn't known
}

func (Start) event()       {}
func (Clusters) event()    {}
func (Seen) event()        {}
func (Reconnected) event() {}
func (Listed) event()      {}
func (Written) event()     {}
func (Found) event()       {}
func (Opened) event()      {}
func (Warmed) event()      {}
func (Drained) event()     {}
func (Stopped) event()     {}
func (Measured) event()    {}
func (Health) event()      {}
func (Counted) event()     {}
func (Leave) event()       {}
func (Quit) event()        {}
func (Tick) event()        {}

// Request is one thing that the process must do. [Open], [Drain], [Close] and [Stop] change gates before the next event
// is handled. All other requests run concurrently. A request with a number is answered once, by an event with that
// number.
type Request interface{ request() }

type (
	// Begin: go on as this incarnation and watch the records. Feed what exists as [Seen], then [Listed], then changes.
	// Afresh: list live first, since caches may show another history.
	Begin struct {
		ID     ownership.Incarnation
		Afresh bool
	}
	// Write carries the effect out at the home cluster, as one compare-and-swap, within Patience. Number 0 needs no
	// answer.
	Write struct {
		Number   uint64
		Effect   ownership.Effect
		Patience time.Duration
		Of       *Tenure // the tenure that a change of plan leads to, or that a handoff ends; nil for other writes
	}
	// Read reads a record live, not from a cache, within Patience.
	Read struct {
		Number   uint64
		Of       Subject
		Patience time.Duration
	}
	// Warm builds and syncs the shard's caches behind a shut gate. It retries until that succeeds or the shard is
	// closed.
	Warm struct {
		Number uint64
		ID     keyspace.ShardID
		Record string // its UID
	}
	// Open opens the shard's gate and enqueues its keys.
	Open struct {
		ID     keyspace.ShardID
		Epoch  ownership.Epoch
		Record string // its UID
		// Kind is the kind of the move by which the shard came here, From its holder before; "" if that isn't known.
		Kind protocol.MoveKind
		From ownership.Incarnation
		// Since is when the old tenure ended, perhaps by another machine's wall clock; zero if the shard wasn't served
		// before.
		Since time.Time
	}
	// Drain starts no new key, lets running ones end within bounds, closes the fence, and waits for writes in flight.
	Drain struct {
		Number uint64
		ID     keyspace.ShardID
		Record string // its UID
	}
	// Close shuts the gate at once and drops the caches.
	Close struct{ ID keyspace.ShardID }
	// Stop: the incarnation is over. Shut every gate at once, cancel every request, and wait, within bounds, until no
	// work of the incarnation can write any more. Blank says that it ended because an earlier one's Lease was missing,
	// and had held nothing.
	Stop struct {
		Number uint64
		ID     ownership.Incarnation
		Reason string
		Blank  bool
	}
	// Measure samples the open shards' size and load.
	Measure struct{}
	// Probe checks whether a cluster's API server can be used from here. [Health] answers it.
	Probe ownership.Probe
	// Count: count the objects of a cluster. A [Counted] must answer it soon, even if counting fails.
	Count ownership.Count
	// Renewed: the lease was renewed when it had this much time left, for metrics.
	Renewed struct{ Left time.Duration }
	// End: the process is done, in order if Err is nil. No request follows.
	End struct {
		Err error
		// Took is how long leaving took, 0 if there was nothing to leave.
		Took time.Duration
	}
)

func (Begin) request()   {}
func (Write) request()   {}
func (Read) request()    {}
func (Warm) request()    {}
func (Open) request()    {}
func (Drain) request()   {}
func (Close) request()   {}
func (Stop) request()    {}
func (Measure) request() {}
func (Probe) request()   {}
func (Count) request()   {}
func (Renewed) request() {}
func (End) request()     {}

// Subject is the record that a request is about: a lease, a shard's record, a cluster's layout or, if all fields are
// empty, the lead record. All means all records, and [ownership.Listing] answers it.
type Subject struct {
	Lease  ownership.Incarnation
	Shard  keyspace.ShardID
	Layout keyspace.ClusterName
	All    bool
}

// About returns the subject of a write.
func About(e ownership.Effect) Subject {
	subject, _, _ := about(e)
	return subject
}

// about also returns the machine's number for the write (0 for none) and the write's name in logs and metrics.
func about(e ownership.Effect) (of Subject, seq uint64, name string) {
	switch e := e.(type) {
	case ownership.WriteLease:
		return Subject{Lease: e.Lease.ID}, e.Seq, "Renew"
	case ownership.SealLease:
		if e.Ended {
			return Subject{Lease: e.ID}, e.Seq, "SealEnded"
		}
		return Subject{Lease: e.ID}, e.Seq, "Seal"
	case ownership.ForgetLease:
		return Subject{Lease: e.ID}, 0, "Forget"
	case ownership.WriteLead:
		return Subject{}, e.Seq, "Coordinate"
	case ownership.WriteLayout:
		return Subject{Layout: e.Layout.Cluster}, e.Seq, "Divide"
	case ownership.CreateShard:
		return Subject{Shard: e.ID}, e.Seq, "Create"
	case ownership.WriteAssignee:
		return Subject{Shard: e.ID}, e.Seq, "Assign"
	case ownership.WriteShard:
		return Subject{Shard: e.Shard.ID}, e.Seq, e.Kind.String()
	}
	return Subject{}, 0, "Drop"
}

// What names a write in logs and metrics.
func What(e ownership.Effect) string {
	_, _, name := about(e)
	return name
}
