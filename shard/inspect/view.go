package inspect

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// ClusterView describes a workload cluster as one replica sees it. The replica's Lease carries it if something is
// wrong.
type ClusterView struct {
	Cluster keyspace.ClusterName `json:"cluster"`
	// Cause is why State isn't closed, as in shard.ClusterStatus.
	State protocol.ClusterState `json:"state"`
	Cause string                `json:"cause,omitempty"`
	// Stuck counts the shards that the replica has held for [LongStuck] and can't serve or keep up to date: its caches
	// of them aren't filled, the lists or watches of a kind fail, or it can't use the cluster. StuckSeconds is for how
	// long it has held the first of them so.
	Stuck        int     `json:"stuck,omitempty"`
	StuckSeconds float64 `json:"stuckSeconds,omitempty"`
	// Running counts the keys that workers have. Ready counts those that wait for a worker or for the cluster.
	Running int `json:"running,omitempty"`
	Ready   int `json:"ready,omitempty"`
	// Writes counts the writes that were sent and aren't answered yet. WaitingWrites counts those that wait because of
	// the cluster's limits. Limits describes these; "" if there are none.
	Writes        int    `json:"writes,omitempty"`
	WaitingWrites int    `json:"waitingWrites,omitempty"`
	Limits        string `json:"limits,omitempty"`
	// WaitSeconds is how long the key that has waited longest has waited.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
	// Namespaces are those whose keys have waited longest, the longest wait first.
	Namespaces []Waiting `json:"namespaces,omitempty"`
}

// Waiting is one namespace whose keys wait for a worker.
type Waiting struct {
	Namespace   string  `json:"namespace"`
	Keys        int     `json:"keys"`
	WaitSeconds float64 `json:"waitSeconds"`
}

const (
	// MaxViews is the most clusters that a Lease describes. Only the worst maxDetailed of them come with namespaces,
	// MaxWaiting for each at most.
	MaxViews, maxDetailed, MaxWaiting = 24, 8, 5
	// longWait is the shortest wait that is reported.
	longWait = time.Second
	// LongStuck is for how long a shard that is held isn't served, or isn't kept up to date, before it is reported.
	// After a crash, caches are filled within seconds.
	LongStuck = 10 * time.Second
	// maxSaid is the longest annotation that is read, in bytes.
	maxSaid = 16 << 10
)

// Worse compares two states. The result is negative if a is worse than b. The order, worst first, is open,
// half-open, limited, all others.
func Worse(a, b protocol.ClusterState) int { return cmp.Compare(badness[b], badness[a]) }

var badness = map[protocol.ClusterState]int{
	protocol.ClusterOpen: 3, protocol.ClusterHalfOpen: 2, protocol.ClusterLimited: 1,
}

// EncodeViews returns the annotation that describes, in a replica's Lease, the clusters that don't answer as they
// should, that it can't serve, or whose keys or writes wait. The worst clusters come first. It returns "" if all is
// well.
func EncodeViews(all []ClusterView) string {
	all = slices.DeleteFunc(slices.Clone(all), func(v ClusterView) bool {
		return Worse(v.State, protocol.ClusterClosed) == 0 && v.WaitSeconds < longWait.Seconds() && v.WaitingWrites == 0 &&
			v.Stuck == 0
	})
	if len(all) == 0 {
		return ""
	}
	slices.SortFunc(all, func(a, b ClusterView) int {
		return cmp.Or(Worse(a.State, b.State), cmp.Compare(b.Stuck, a.Stuck), cmp.Compare(b.WaitSeconds, a.WaitSeconds),
			cmp.Compare(a.Cluster, b.Cluster))
	})
	all = all[:min(len(all), MaxViews)]
	for i := range all {
		if i >= maxDetailed {
			all[i].Namespaces = nil
		}
		all[i].Namespaces = all[i].Namespaces[:min(len(all[i].Namespaces), MaxWaiting)]
	}
	said, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	return string(said)
}

// decodeViews parses what EncodeViews writes. It returns nil for anything that no replica would write.
func decodeViews(said string) (all []ClusterView) {
	if said == "" || len(said) > maxSaid || json.Unmarshal([]byte(said), &all) != nil || len(all) > MaxViews {
		return nil
	}
	for i := range all {
		v := &all[i]
		v.State = protocol.ClusterState(text.Line(string(v.State), 16))
		v.Stuck = max(0, v.Stuck)
		v.Cause, v.Limits = text.Line(v.Cause, 32), text.Line(v.Limits, 100)
		v.Namespaces = v.Namespaces[:min(len(v.Namespaces), MaxWaiting)]
	}
	return all
}

// AddWaiting adds a namespace to a list that is sorted by waiting time, and sorts it again. If the list has the
// namespace already, it adds the keys and keeps the longer wait. It may change the list in place.
func AddWaiting(all []Waiting, one Waiting) []Waiting {
	if i := slices.IndexFunc(all, func(w Waiting) bool { return w.Namespace == one.Namespace }); i >= 0 {
		all[i].Keys += one.Keys
		all[i].WaitSeconds = max(all[i].WaitSeconds, one.WaitSeconds)
	} else {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Namespace, b.Namespace))
	})
	return all
}
