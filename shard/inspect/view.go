package inspect

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/pkg/text"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// ClusterView is how a workload cluster stands at one replica, where that is worth a word.
type ClusterView struct {
	Cluster keyspace.ClusterName `json:"cluster"`
	// State and Cause are those of shard.ClusterStatus: closed, limited, open or half-open, and why.
	State string `json:"state"`
	Cause string `json:"cause,omitempty"`
	// Keys that workers have, and that wait for one, or for the cluster to serve them.
	Running int `json:"running,omitempty"`
	Ready   int `json:"ready,omitempty"`
	// Writes were sent and aren't answered, WaitingWrites wait for their turn by Limits, which are in words.
	Writes        int    `json:"writes,omitempty"`
	WaitingWrites int    `json:"waitingWrites,omitempty"`
	Limits        string `json:"limits,omitempty"`
	// WaitSeconds is for how long the key that waits longest has.
	WaitSeconds float64 `json:"waitSeconds,omitempty"`
	// Namespaces are the few that wait longest, that one first.
	Namespaces []Waiting `json:"namespaces,omitempty"`
}

// Waiting is one namespace whose keys wait for a worker.
type Waiting struct {
	Namespace   string  `json:"namespace"`
	Keys        int     `json:"keys"`
	WaitSeconds float64 `json:"waitSeconds"`
}

const (
	// MaxViews and MaxWaiting bound what a replica says: of how many clusters, and how many namespaces of each.
	MaxViews, MaxWaiting = 8, 5
	// longWait is from when on waiting is worth a word.
	longWait = time.Second
	// maxSaid bounds what is read of it, in bytes.
	maxSaid = 16 << 10
)

// Worse orders states: open, half-open, limited, all others.
func Worse(a, b string) int {
	rank := map[string]int{"open": 3, "half-open": 2, "limited": 1}
	return cmp.Compare(rank[b], rank[a])
}

// SayViews is what a replica's Lease says of the clusters that don't answer as they should or whose keys wait, the
// worst first; "" if all is well.
func SayViews(all []ClusterView) string {
	all = slices.DeleteFunc(slices.Clone(all), func(v ClusterView) bool {
		return Worse(v.State, "closed") == 0 && v.WaitSeconds < longWait.Seconds() && v.WaitingWrites == 0
	})
	if len(all) == 0 {
		return ""
	}
	slices.SortFunc(all, func(a, b ClusterView) int {
		return cmp.Or(Worse(a.State, b.State), cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Cluster, b.Cluster))
	})
	all = all[:min(len(all), MaxViews)]
	for i := range all {
		all[i].Namespaces = all[i].Namespaces[:min(len(all[i].Namespaces), MaxWaiting)]
	}
	said, err := json.Marshal(all)
	if err != nil {
		return ""
	}
	return string(said)
}

// readViews reads that. What no replica would say counts as nothing.
func readViews(said string) (all []ClusterView) {
	if said == "" || len(said) > maxSaid || json.Unmarshal([]byte(said), &all) != nil || len(all) > MaxViews {
		return nil
	}
	for i := range all {
		v := &all[i]
		v.State, v.Cause, v.Limits = text.Line(v.State, 16), text.Line(v.Cause, 32), text.Line(v.Limits, 100)
		v.Namespaces = v.Namespaces[:min(len(v.Namespaces), MaxWaiting)]
	}
	return all
}

// AddWaiting adds a namespace to those that wait longest, with the keys that it has elsewhere.
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
