package shard

import (
	"context"
	"maps"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// fleet is the real workload clusters that the provider knows now. It is safe for concurrent use.
type fleet struct {
	mu       sync.Mutex // guards all below
	clusters map[keyspace.ClusterName]connection
	last     uint64                                   // number of the last connection
	traffic  map[keyspace.ClusterName]*engage.Traffic // of a few clusters that went, too: see maxGone
	changed  func()                                   // told after every change, without the lock
}

// connection is a real cluster, as the provider connected to it.
type connection struct {
	cluster.Cluster
	number uint64 // tells it from earlier and later ones, of whatever cluster
}

func newFleet() *fleet {
	return &fleet{
		clusters: map[keyspace.ClusterName]connection{},
		traffic:  map[keyspace.ClusterName]*engage.Traffic{},
		changed:  func() {},
	}
}

// add registers a cluster until the context ends. Another of the same name is replaced.
func (f *fleet) add(ctx context.Context, name keyspace.ClusterName, cl cluster.Cluster) {
	f.mu.Lock()
	f.last++
	number := f.last
	f.clusters[name] = connection{cl, number}
	f.trafficOf(name)
	f.mu.Unlock()
	context.AfterFunc(ctx, func() { f.remove(name, number) })
	f.tell()
}

func (f *fleet) remove(name keyspace.ClusterName, number uint64) {
	f.mu.Lock()
	gone := f.clusters[name].number == number
	if gone {
		delete(f.clusters, name)
		f.forget(name)
	}
	f.mu.Unlock()
	if gone {
		f.tell()
	}
}

// maxGone is of how many clusters that went the traffic is kept. A cluster that comes back soon, as with a new kubeconfig,
// finds its counters as they were. Names that come once and never again don't fill the memory and the metrics.
const maxGone = 100

// forget drops traffic of clusters that went, but for that of name, while it is too much. Call it with the lock held.
func (f *fleet) forget(name keyspace.ClusterName) {
	left := len(f.traffic) - len(f.clusters) - maxGone
	for other := range f.traffic {
		if left <= 0 {
			return
		}
		if _, there := f.clusters[other]; !there && other != name {
			delete(f.traffic, other)
			left--
		}
	}
}

func (f *fleet) tell() {
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	changed()
}

// notify sets who is told of changes; nil for nobody.
func (f *fleet) notify(changed func()) {
	if changed == nil {
		changed = func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = changed
}

// get returns a cluster, which is nil if it isn't there, and its traffic counters.
func (f *fleet) get(name keyspace.ClusterName) (connection, *engage.Traffic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[name], f.trafficOf(name)
}

// trafficOf returns the counters of a cluster, new ones if it was never seen. Call it with the lock held.
func (f *fleet) trafficOf(name keyspace.ClusterName) *engage.Traffic {
	if f.traffic[name] == nil {
		f.traffic[name] = &engage.Traffic{}
	}
	return f.traffic[name]
}

func (f *fleet) all() map[keyspace.ClusterName]connection {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.clusters)
}

// status is what each cluster has sent up to now, a few that went included.
func (f *fleet) status() map[keyspace.ClusterName]ClusterStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[keyspace.ClusterName]ClusterStatus, len(f.traffic))
	for name, traffic := range f.traffic {
		_, engaged := f.clusters[name]
		c := ClusterStatus{
			Engaged: engaged, FencedWrites: traffic.FencedWrites.Load(),
			UnansweredWrites: traffic.UnansweredWrites.Load(), Abandoned: traffic.Abandoned.Load(),
			ListWatchBytes: traffic.ListWatchBytes.Load(), Kept: traffic.Kept.Load(), Discarded: traffic.Discarded.Load(), WatchMode: "server",
		}
		if !traffic.ServerSide() {
			c.WatchMode = "client"
		}
		all[name] = c
	}
	return all
}
