package console

import (
	"time"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/plan"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Fleet is the state of everything, judged. It is the answer of `tenure status` and of the status page.
type Fleet struct {
	Home      string    `json:"home,omitempty"`
	Namespace string    `json:"namespace"`
	Taken     time.Time `json:"taken"`
	// Healthy is whether no finding is Wrong.
	Healthy  bool      `json:"healthy"`
	Totals   Totals    `json:"totals"`
	Replicas []Replica `json:"replicas"`
	Clusters []Cluster `json:"clusters"`
	Shards   []Shard   `json:"shards"`
	// Moves are under way; Recent are the latest changes of holder, newest first.
	Moves    []Move    `json:"moves"`
	Recent   []Change  `json:"recent"`
	Findings []Finding `json:"findings"`
	// Unread is what couldn't be read, and so isn't judged.
	Unread []string `json:"unread,omitempty"`
}

// Cluster returns the cluster of that name, a zero Cluster if there is none.
func (f Fleet) Cluster(name string) Cluster {
	for _, c := range f.Clusters {
		if string(c.Name) == name {
			return c
		}
	}
	return Cluster{}
}

// Totals over the fleet. Replicas counts live ones that aren't leaving.
type Totals struct {
	Replicas int     `json:"replicas"`
	Clusters int     `json:"clusters"`
	Shards   int     `json:"shards"`
	Held     int     `json:"held"`
	Moving   int     `json:"moving"`
	Objects  int64   `json:"objects"`
	Load     float64 `json:"load"`
}

// ReplicaState is how a replica's Lease looks.
type ReplicaState string

const (
	// Live: its Lease is renewed.
	Live ReplicaState = "live"
	// Leaving: it was told to stop and hands its shards over.
	Leaving ReplicaState = "leaving"
	// Quiet: its Lease wasn't renewed for its whole duration.
	Quiet ReplicaState = "quiet"
	// Sealed: a peer declared this incarnation dead; for ever.
	Sealed ReplicaState = "sealed"
	// Missing: records name it and it has no Lease.
	Missing ReplicaState = "missing"
)

// Replica is one incarnation.
type Replica struct {
	// Key is the letter that stands for it in maps, "#" if there are too many replicas.
	Key         string               `json:"key,omitempty"`
	Name        string               `json:"name"`
	Incarnation protocol.Incarnation `json:"incarnation"`
	State       ReplicaState         `json:"state"`
	Coordinator bool                 `json:"coordinator"`
	Build       string               `json:"build,omitempty"`
	Weight      int                  `json:"weight"`
	// RenewedAgo is measured on the replica's own clock, or on the watcher's if Watched is set.
	RenewedAgo    Seconds `json:"renewedAgoSeconds"`
	Watched       bool    `json:"watched"`
	LeaseDuration Seconds `json:"leaseDurationSeconds"`
	// ClockAhead is by how much its clock is ahead of that of whoever looks, as far as its Lease tells. It is 0 if that is
	// less than LeaseDuration either way, and negative only for one that was seen to renew.
	ClockAhead Seconds `json:"clockAheadSeconds,omitempty"`
	// Doubtful says that no renewal was seen and that the time in its Lease doesn't tell whether the replica lives: it is
	// ahead by more than LeaseDuration, or past by more while [Snapshot].Repeated. The replica is quiet once it should
	// have renewed while it was watched.
	Doubtful bool `json:"doubtful,omitempty"`
	// Young is whether its Lease was made less than two lease durations ago, by home's clock and that of whoever looks. In
	// that time it may not have said yet which clusters it doesn't know.
	Young   bool    `json:"-"`
	Shards  int     `json:"shards"`
	Objects int64   `json:"objects"`
	Load    float64 `json:"load"`
	// Unfit lists the clusters that it says it can't serve.
	Unfit plan.UnfitFor `json:"unfit,omitempty"`
	// Clusters is what it reports about clusters that don't answer as they should, or whose keys wait.
	Clusters []inspect.ClusterView `json:"clusters,omitempty"`
}

// Acts reports whether the replica may be holding shards and working.
func (r Replica) Acts() bool { return r.State == Live || r.State == Leaving }

// stuck counts the shards of a cluster that it holds and says it can't serve or watch.
func (r Replica) stuck(cluster keyspace.ClusterName) int {
	for _, said := range r.Clusters {
		if said.Cluster == cluster {
			return said.Stuck
		}
	}
	return 0
}

// Cluster is one workload cluster.
type Cluster struct {
	Name keyspace.ClusterName `json:"name"`
	// Reason and Note are those of the cluster's [Answer], or Reason is [ReasonNotFromHere], [ReasonAnother] or
	// [ReasonTwoNames].
	Reason string `json:"reason,omitempty"`
	Note   string `json:"note,omitempty"`
	// State and Cause are the worst that a live replica reports: limited, open or half-open, and why; "" if none
	// reports anything. A replica that can't serve the cluster doesn't count while others do.
	State protocol.ClusterState `json:"state,omitempty"`
	Cause string                `json:"cause,omitempty"`
	// Stuck counts the shards that live replicas hold and say they can't serve or watch.
	Stuck int `json:"stuck,omitempty"`
	// Waits sums up what replicas report about its keys and writes; nil if none reports anything.
	Waits *inspect.ClusterView `json:"waits,omitempty"`
	// Unfit is whether a live replica says that it can't serve it.
	Unfit bool `json:"-"`
	// Removed reports whether it isn't registered any more. Its records stay, without a holder, to keep their epochs.
	Removed bool  `json:"removed,omitempty"`
	Shards  int   `json:"shards"`
	Held    int   `json:"held"`
	Moving  int   `json:"moving"`
	Objects int64 `json:"objects"`
	// Map shows who serves which part of the hash space, in 32 equal columns: a replica's key, "." for nobody, "+" for
	// several.
	Map string `json:"map"`
}

// ReasonNotFromHere is the reason of a cluster whose API server can't be reached from here, as behind a private
// address, while replicas serve all of it.
const ReasonNotFromHere = "NotFromHere"

// Reasons of a cluster whose credentials lead to another one.
const (
	// ReasonAnother: they don't lead to that of the Secret's annotation.
	ReasonAnother = "AnotherCluster"
	// ReasonTwoNames: they lead to one that is served under another name. The replicas' events use the same word.
	ReasonTwoNames = "ClusterHasTwoNames"
)

// Astray reports whether the cluster's credentials lead to another one.
func (c Cluster) Astray() bool { return c.Reason == ReasonAnother || c.Reason == ReasonTwoNames }

// entry is that of the runbook about the cluster's Reason.
func (c Cluster) entry() string {
	if c.Reason == ReasonTwoNames {
		return AlertOdd
	}
	return AlertUnreachable
}

// Fails reports whether the cluster's Reason is a trouble.
func (c Cluster) Fails() bool {
	return c.Reason != "" && c.Reason != clusterhealth.ReasonUsable && c.Reason != ReasonNotFromHere
}

// Served reports whether replicas hold all of it, and none complains of it.
func (c Cluster) Served() bool {
	return c.Shards > 0 && c.Held == c.Shards && c.Stuck == 0 && c.State == "" && !c.Unfit && !c.Removed
}

// Trouble orders clusters: 2 is one that doesn't answer, 1 one that isn't served in full or answers badly, 0 means that
// all is well.
func (c Cluster) Trouble() int {
	switch {
	case c.Fails():
		return 2
	case c.Held < c.Shards && !c.Removed, c.Stuck > 0, c.State != "":
		return 1
	}
	return 0
}

// Shard is one record.
type Shard struct {
	ID       keyspace.ShardID     `json:"id"`
	Cluster  keyspace.ClusterName `json:"cluster"`
	Slots    string               `json:"slots"`
	Holder   protocol.Incarnation `json:"holder,omitempty"`
	Replica  string               `json:"replica,omitempty"`
	Key      string               `json:"key,omitempty"`
	Epoch    int64                `json:"epoch"`
	Served   bool                 `json:"served"`
	Moving   bool                 `json:"moving"`
	Objects  int64                `json:"objects"`
	Load     float64              `json:"load"`
	HeldFor  Seconds              `json:"heldForSeconds,omitempty"`
	Pin      string               `json:"pin,omitempty"`
	Assignee protocol.Incarnation `json:"assignee,omitempty"`
}

// Move is a planned change of holder under way.
type Move struct {
	Shard keyspace.ShardID     `json:"shard"`
	From  protocol.Incarnation `json:"from"`
	To    protocol.Incarnation `json:"to"`
	// Stage is "warming" until the assignee has filled its caches, then "draining" until the holder hands off.
	Stage string `json:"stage"`
	// AskedAgo is the time since the record was last given an assignee; negative if the record doesn't show it.
	AskedAgo Seconds `json:"askedAgoSeconds"`
}

// Change is a change of holder that happened.
type Change struct {
	Shard keyspace.ShardID     `json:"shard"`
	Kind  protocol.MoveKind    `json:"kind"`
	From  protocol.Incarnation `json:"from,omitempty"`
	To    protocol.Incarnation `json:"to,omitempty"`
	Epoch int64                `json:"epoch"`
	At    time.Time            `json:"at"`
}

// Severity of a finding.
type Severity string

const (
	// Wrong needs action.
	Wrong Severity = "wrong"
	// Note is good to know.
	Note Severity = "note"
)

// Finding is one thing that a reader should know, with what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Alert is the entry of config/RUNBOOK.md.
	Alert string `json:"alert,omitempty"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}
