package statuspage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

const (
	// maxShards is how many shards a view has, and maxRows how much of any other list.
	maxShards = 2048
	maxRows   = 200
	// window is what the quantiles of a queue are taken over.
	window = time.Minute
	// forgetAfter is after how long without a view the quantiles of queues start over.
	forgetAfter = 5 * time.Second
)

// watch keeps what has to be remembered from view to view.
type watch struct {
	last     time.Time
	leases   console.Renewals
	clusters map[keyspace.ClusterName]time.Time // first seen
	queues   map[string][]sample
}

// sample is a queue's histogram at one time.
type sample struct {
	at time.Time
	histogram
}

func newWatch() watch {
	return watch{clusters: map[keyspace.ClusterName]time.Time{}, queues: map[string][]sample{}}
}

// see makes a view.
func (w *watch) see(cfg Config, records inspect.Records, m metrics, now time.Time) View {
	if now.Sub(w.last) > max(forgetAfter, 2*cfg.Every) {
		w.queues = map[string][]sample{}
	}
	w.last = now
	s := console.Snapshot{
		Namespace: cfg.Namespace, Now: now, Records: records, Registered: len(m.clusters) > 0,
		Seen: w.leases.See(records.Leases, now), Repeated: true,
	}
	first := make(map[keyspace.ClusterName]time.Time, len(m.clusters))
	for _, a := range m.clusters {
		if a.Since = w.clusters[a.Cluster]; a.Since.IsZero() {
			a.Since = now
		}
		first[a.Cluster], a.Reported = a.Since, true
		s.Clusters = append(s.Clusters, a)
	}
	w.clusters = first
	v := View{By: cfg.Replica, Fleet: console.Assess(s), Queues: w.seeQueues(m, now)}
	v.cut()
	return v
}

// cut shortens lists that are too long for a page. Where clusters or shards are left out, those with trouble come
// first.
func (v *View) cut() {
	f := &v.Fleet
	if len(f.Clusters) > maxRows || len(f.Shards) > maxShards {
		v.cutClusters()
	}
	v.LeftReplicas = max(0, len(f.Replicas)-maxRows)
	f.Replicas = f.Replicas[:len(f.Replicas)-v.LeftReplicas]
	v.LeftMoves = max(0, len(f.Moves)-maxRows)
	f.Moves = f.Moves[:len(f.Moves)-v.LeftMoves] // those that take longest come first
	v.LeftFindings = max(0, len(f.Findings)-maxRows)
	f.Findings = f.Findings[:len(f.Findings)-v.LeftFindings] // those that are wrong come first
}

// cutClusters orders clusters by their trouble and shards by their clusters, and leaves out the last.
func (v *View) cutClusters() {
	f := &v.Fleet
	slices.SortStableFunc(f.Clusters, func(a, b console.Cluster) int { return cmp.Compare(b.Trouble(), a.Trouble()) })
	v.LeftClusters = max(0, len(f.Clusters)-maxRows)
	f.Clusters = f.Clusters[:len(f.Clusters)-v.LeftClusters]
	place := make(map[keyspace.ClusterName]int, len(f.Clusters))
	for i, c := range f.Clusters {
		place[c.Name] = i
	}
	all := len(f.Shards)
	f.Shards = slices.DeleteFunc(f.Shards, func(s console.Shard) bool { _, shown := place[s.Cluster]; return !shown })
	slices.SortStableFunc(f.Shards, func(a, b console.Shard) int {
		return cmp.Compare(place[a.Cluster], place[b.Cluster])
	})
	f.Shards = f.Shards[:min(len(f.Shards), maxShards)]
	v.Left = all - len(f.Shards)
}

// seeQueues takes quantiles over the last minute, or over what was seen of it.
func (w *watch) seeQueues(m metrics, now time.Time) []Queue {
	queues := make([]Queue, 0, len(m.queues))
	for _, name := range slices.Sorted(maps.Keys(m.queues)) {
		q := m.queues[name]
		past := append(w.queues[name], sample{now, q.wait})
		for len(past) > 1 && now.Sub(past[1].at) >= window {
			past = past[1:]
		}
		w.queues[name] = past
		recent := q.wait.minus(past[0].histogram)
		queues = append(queues, Queue{
			Controller: name, Waiting: q.depth, Oldest: q.oldest, Reconciles: recent.count,
			Over: now.Sub(past[0].at).Seconds(), P50: recent.quantile(0.5), P99: recent.quantile(0.99),
		})
	}
	return queues
}
