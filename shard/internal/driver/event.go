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
	// Start: the process takes part from now on. What is known of the clusters is fed before.
	Start struct{}
	// Clusters: the workload clusters that exist now and are to be divided, a new one into 2^Bits shards. Connections tells
	// the present connection of each from earlier ones, where that matters. The maps are never changed afterwards.
	// UIDs tell each from others that had or have its name, "" where that can't be known.
	Clusters struct {
		Bits        map[keyspace.ClusterName]int
		UIDs        map[keyspace.ClusterName]string
		Connections map[keyspace.ClusterName]uint64
	}
	// Seen: a watch, or the listing that it begins with, shows a lease, a shard's record or the coordinator's, or
	// that a lease has gone. By is the incarnation that it is shown to, "" where there is only one watch for all.
	Seen struct {
		What ownership.Input
		By   ownership.Incarnation
	}
	// Deleted: a watch shows that a shard's record has gone. That is read live before it is believed.
	Deleted struct {
		ID keyspace.ShardID
		By ownership.Incarnation
	}
	// Reconnected: a watch of records was broken, and goes on. What it goes on with may be another history.
	Reconnected struct{}
	// Listed: all that there was when the incarnation began to follow the records has been fed.
	Listed struct{ By ownership.Incarnation }
	// Written answers a [Write].
	Written struct {
		Number  uint64
		Outcome ownership.Outcome
		Version ownership.Version // the new one, of a committed write
		Cause   ownership.Cause   // why it wasn't committed
		After   time.Duration     // how long the API server asked to wait before the next try, 0 if it didn't
	}
	// Found answers a [Read]; What is nil where it failed.
	Found struct {
		Number uint64
		What   ownership.Input
	}
	// Opened: the caches that a [Warm] asked for are built over this connection to their cluster.
	Opened struct {
		Number     uint64
		ID         keyspace.ShardID
		Connection uint64
	}
	// Warmed: they are synced.
	Warmed struct {
		Number uint64
		ID     keyspace.ShardID
	}
	// Drained answers a [Drain]: nothing of the tenure can write any more. Ended is when its last work did, by the wall
	// clock.
	Drained struct {
		Number uint64
		ID     keyspace.ShardID
		Ended  time.Time
	}
	// Stopped answers a [Stop]. Quiet is whether nothing of the incarnation can write any more.
	Stopped struct {
		Number uint64
		Quiet  bool
	}
	// Measured: a shard's size and load.
	Measured struct {
		ID      keyspace.ShardID
		Objects int64
		Load    float64
	}
	// Leave: the process was told to stop.
	Leave struct{}
	// Quit: the process has to end now, without time to hand anything over.
	Quit struct{}
	// Tick: time passed; see [Driver.Wake].
	Tick struct{}
)

// Tenure is what those who follow a move want to know of it.
type Tenure struct {
	Record string // UID of the record
	Epoch  ownership.Epoch
	Ended  time.Time // by the wall clock; zero where that isn't known
}

func (Start) event()       {}
func (Clusters) event()    {}
func (Seen) event()        {}
func (Deleted) event()     {}
func (Reconnected) event() {}
func (Listed) event()      {}
func (Written) event()     {}
func (Found) event()       {}
func (Opened) event()      {}
func (Warmed) event()      {}
func (Drained) event()     {}
func (Stopped) event()     {}
func (Measured) event()    {}
func (Leave) event()       {}
func (Quit) event()        {}
func (Tick) event()        {}

// Request is one thing that the process is to do. [Open], [Drain], [Close] and [Stop] change gates before the next
// event is handled; all else runs beside the loop. What has a number is answered once, by an event with that number.
type Request interface{ request() }

type (
	// Begin: go on as this incarnation. Follow the records: show what there is as [Seen], then [Listed], then what
	// changes. Afresh: list them anew first, since no cache of them is of any use.
	Begin struct {
		ID     ownership.Incarnation
		Afresh bool
	}
	// Write: carry the effect out at the home cluster, a compare-and-swap each, within Patience. Number 0 needs no
	// answer.
	Write struct {
		Number   uint64
		Effect   ownership.Effect
		Patience time.Duration
		Of       *Tenure // that a change of plan leads to, or that is given away; nil where it is neither
	}
	// Read: read a record live, past every cache, within Patience.
	Read struct {
		Number   uint64
		Of       Subject
		Patience time.Duration
	}
	// Warm: build and sync the shard's caches behind a shut gate, trying until that is done or the shard is closed.
	Warm struct {
		Number uint64
		ID     keyspace.ShardID
		Record string // its UID
	}
	// Open: open the shard's gate and enqueue its keys.
	Open struct {
		ID     keyspace.ShardID
		Epoch  ownership.Epoch
		Record string // its UID
		// How the shard came here, "" where that isn't known, and from whom.
		Kind protocol.MoveKind
		From ownership.Incarnation
		// Since is when the old tenure ended, by another machine's wall clock perhaps; zero where nobody served
		// before.
		Since time.Time
	}
	// Drain: start no new key, let running ones end within bounds, close the fence, wait for writes in flight.
	Drain struct {
		Number uint64
		ID     keyspace.ShardID
		Record string // its UID
	}
	// Close: shut the gate at once and drop the caches.
	Close struct{ ID keyspace.ShardID }
	// Stop: the incarnation is over. Shut every gate at once, cancel all that was asked for, and wait, within bounds,
	// until nothing of it can write any more.
	Stop struct {
		Number uint64
		ID     ownership.Incarnation
		Reason string
	}
	// Measure: sample the open shards' size and load.
	Measure struct{}
	// Renewed: tell that the lease was renewed with so much time left.
	Renewed struct{ Left time.Duration }
	// End: the process is done, in order if Err is nil. Nothing is asked for afterwards.
	End struct {
		ID  ownership.Incarnation
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
func (Renewed) request() {}
func (End) request()     {}

// Subject is the record that a request is about: a lease, a shard's record, a cluster's layout or, if none of these, the
// coordinator's. All is a read of all records, answered by [ownership.Listing].
type Subject struct {
	Lease  ownership.Incarnation
	Shard  keyspace.ShardID
	Layout keyspace.ClusterName
	All    bool
}

// About tells what a write is about.
func About(e ownership.Effect) Subject {
	subject, _, _ := about(e)
	return subject
}

// about tells also the number by which the machine knows the write, 0 for none, and its name in logs and metrics.
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
