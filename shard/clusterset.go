package shard

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// clusterSet holds the real workload clusters, and decides which connection is used for each. The provider only offers
// connections. If a cluster has a connection, an offer replaces it once the offer is known to work; see [judgeOffer]. A
// cluster that the provider takes away is gone after a grace. It is safe for concurrent use.
type clusterSet struct {
	log     logr.Logger
	grace   time.Duration
	primary func(keyspace.ClusterName) []client.Object // the kinds that credentials should be able to list

	mu       sync.Mutex // guards all below
	clusters map[keyspace.ClusterName]*entry
	// last is the number of the last connection. A real cluster has that of the first connection to it.
	last    uint64
	traffic map[keyspace.ClusterName]*engage.Traffic // also of a few removed clusters: see maxGone
	removed map[keyspace.ClusterName]time.Time       // when a cluster was last removed, for removed ones with traffic
	limits  kubeconfig.Limits                        // of clusters that have none of their own
	own     map[keyspace.ClusterName]kubeconfig.Limits
	changed func()          // called after every change, without the lock
	ctx     context.Context // bounds the requests to clusters; nil: none are sent
	spawn   func(func())
}

// realCluster is a workload cluster with one connection to it. It is never changed, only replaced.
type realCluster struct {
	cluster.Cluster // as the provider gave it
	via             *engage.Connection
	clusterNo       uint64    // of the real cluster: stays while only its server or credentials change
	connection      uint64    // of the connection in use
	uid             types.UID // of the cluster, "" while it isn't known
	identified      bool      // uid is known, or the cluster refuses to give it
	unknown         error     // why it isn't identified although it was asked
	expires         time.Time // when the credentials do, zero where that isn't known
	refused         string    // why what the provider gave last is refused, "" while it isn't
}

// entry is what the set has of one cluster.
type entry struct {
	realCluster        // in use
	offer       *offer // what the provider gave last, nil if that is in use
	given       uint64 // the connection that the provider gave last, in use or not
}

// offer is a connection that the provider gave and that isn't in use yet.
type offer struct {
	realCluster
	ctx context.Context // ends when the provider takes it back
}

func newClusterSet(log logr.Logger, grace time.Duration, limits kubeconfig.Limits) *clusterSet {
	return &clusterSet{
		log: log, grace: grace, limits: limits, own: map[keyspace.ClusterName]kubeconfig.Limits{},
		clusters: map[keyspace.ClusterName]*entry{},
		traffic:  map[keyspace.ClusterName]*engage.Traffic{},
		removed:  map[keyspace.ClusterName]time.Time{},
		changed:  func() {},
		primary:  func(keyspace.ClusterName) []client.Object { return nil },
	}
}

// add takes a cluster from the provider, until the context ends. A new cluster's connection is used at once. For a
// known cluster it is an offer; see [clusterSet].
func (cs *clusterSet) add(ctx context.Context, name keyspace.ClusterName, cl cluster.Cluster) error {
	via, err := engage.Connect(cl)
	if err != nil {
		return err
	}
	cs.mu.Lock()
	cs.last++
	connection := cs.last
	c := realCluster{
		Cluster: cl, via: via, clusterNo: connection, connection: connection, expires: kubeconfig.Expiry(cl.GetConfig()),
	}
	s := cs.clusters[name]
	known := s != nil
	if known {
		s.offer, s.given, s.refused = &offer{c, ctx}, connection, ""
	} else {
		cs.clusters[name] = &entry{realCluster: c, given: connection}
		cs.trafficOf(name).Breaker.Reset()
	}
	cs.mu.Unlock()
	context.AfterFunc(ctx, func() { cs.takeBack(name, connection) })
	cs.identify(name, connection)
	if !known {
		cs.notify()
	}
	return nil
}

// takeBack is called when the provider takes a connection back. If it gives no other one within the grace, the
// cluster is removed.
func (cs *clusterSet) takeBack(name keyspace.ClusterName, connection uint64) {
	cs.mu.Lock()
	s := cs.clusters[name]
	last, stopped := s != nil && s.given == connection, cs.ctx == nil
	cs.mu.Unlock()
	switch {
	case !last: // there is a newer one
	case cs.grace > 0 && !stopped:
		time.AfterFunc(cs.grace, func() { cs.remove(name, connection) })
	default:
		cs.remove(name, connection)
	}
}

// remove forgets a cluster, unless the provider gave another connection after this one.
func (cs *clusterSet) remove(name keyspace.ClusterName, connection uint64) {
	cs.mu.Lock()
	s := cs.clusters[name]
	gone, stopped := s != nil && s.given == connection, cs.ctx == nil
	if gone {
		delete(cs.clusters, name)
		cs.removed[name] = time.Now()
		cs.forget(name)
	}
	cs.mu.Unlock()
	if gone && !stopped {
		cs.log.Info("cluster was taken away", "cluster", string(name))
	}
	if gone {
		cs.notify()
	}
}

// maxGone is how many removed clusters keep their traffic counters, and goneFor for how long. A cluster that comes back
// soon, as with a new kubeconfig, finds its counters as they were. Names that never come back don't fill the memory and
// the metrics.
const (
	maxGone = 100
	goneFor = time.Hour
)

// forget drops the traffic of clusters that were removed goneFor ago, and that of others, but not of name, while there
// are more than maxGone. Call it with the lock held.
func (cs *clusterSet) forget(name keyspace.ClusterName) {
	maps.DeleteFunc(cs.removed, func(other keyspace.ClusterName, at time.Time) bool {
		_, there := cs.clusters[other]
		if old := !there && time.Since(at) > goneFor; old {
			delete(cs.traffic, other)
		}
		return there || cs.traffic[other] == nil
	})
	left := len(cs.traffic) - len(cs.clusters) - maxGone
	for other := range cs.traffic {
		if left <= 0 {
			return
		}
		if _, there := cs.clusters[other]; !there && other != name {
			delete(cs.traffic, other)
			left--
		}
	}
}

func (cs *clusterSet) notify() {
	cs.mu.Lock()
	changed := cs.changed
	cs.mu.Unlock()
	changed()
}

// start makes the set call changed after every change, and identify its clusters, until the context ends.
func (cs *clusterSet) start(ctx context.Context, spawn func(func()), changed func()) {
	cs.mu.Lock()
	cs.ctx, cs.spawn, cs.changed = ctx, spawn, changed
	given := map[keyspace.ClusterName]uint64{}
	for name, s := range cs.clusters {
		given[name] = s.given
	}
	cs.mu.Unlock()
	for name, connection := range given {
		cs.identify(name, connection)
	}
}

// stop undoes start. Spawned goroutines end with start's context.
func (cs *clusterSet) stop() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.ctx, cs.spawn, cs.changed = nil, nil, func() {}
}

// get returns a cluster as it is reached now, and its traffic counters. Its Cluster is nil if it isn't there.
func (cs *clusterSet) get(name keyspace.ClusterName) (realCluster, *engage.Traffic) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	traffic := cs.trafficOf(name)
	if s := cs.clusters[name]; s != nil {
		return s.realCluster, traffic
	}
	return realCluster{}, traffic
}

// known is get for names from anywhere. Unlike get it makes no traffic counters for a cluster that isn't there.
func (cs *clusterSet) known(name keyspace.ClusterName) (realCluster, *engage.Traffic) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if s := cs.clusters[name]; s != nil {
		return s.realCluster, cs.trafficOf(name)
	}
	return realCluster{}, nil
}

// trafficOf returns the counters of a cluster, and makes them at the first call. Call it with the lock held.
func (cs *clusterSet) trafficOf(name keyspace.ClusterName) *engage.Traffic {
	if cs.traffic[name] == nil {
		cs.traffic[name] = &engage.Traffic{}
		cs.traffic[name].SetLimits(cs.limitsOf(name))
	}
	return cs.traffic[name]
}

func (cs *clusterSet) limitsOf(name keyspace.ClusterName) kubeconfig.Limits {
	if own, found := cs.own[name]; found {
		return own
	}
	return cs.limits
}

// setLimits gives a cluster limits of its own; nil takes them away.
func (cs *clusterSet) setLimits(name keyspace.ClusterName, own *kubeconfig.Limits) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	before := cs.limitsOf(name)
	delete(cs.own, name)
	if own != nil {
		cs.own[name] = *own
	}
	if traffic := cs.traffic[name]; traffic != nil && cs.limitsOf(name) != before {
		traffic.SetLimits(cs.limitsOf(name))
	}
}

// each calls f for every cluster, with the lock held: f mustn't call the set.
func (cs *clusterSet) each(f func(keyspace.ClusterName, *realCluster, *engage.Traffic)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for name, s := range cs.clusters {
		f(name, &s.realCluster, cs.trafficOf(name))
	}
}

func (cs *clusterSet) all() map[keyspace.ClusterName]realCluster {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	all := make(map[keyspace.ClusterName]realCluster, len(cs.clusters))
	for name, s := range cs.clusters {
		all[name] = s.realCluster
	}
	return all
}

// status returns the traffic of each cluster up to now, and that of a few removed ones.
func (cs *clusterSet) status() map[keyspace.ClusterName]ClusterStatus {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.forget("")
	all := make(map[keyspace.ClusterName]ClusterStatus, len(cs.traffic))
	for name, traffic := range cs.traffic {
		c := ClusterStatus{
			FencedWrites:     traffic.FencedWrites.Load(),
			UnansweredWrites: traffic.UnansweredWrites.Load(), Abandoned: traffic.Abandoned.Load(),
			ListWatchBytes: traffic.ListWatchBytes.Load(), Kept: traffic.Kept.Load(), Discarded: traffic.Discarded.Load(),
			WatchMode: "server",
		}
		if s := cs.clusters[name]; s != nil {
			c.Known, c.Refused, c.CredentialsExpire = true, s.refused, s.expires
		}
		c.Writes, c.WaitingWrites, c.Limits = traffic.Writes()
		state, cause := traffic.Breaker.State()
		c.State, c.Cause = state, string(cause)
		if !traffic.ServerSide() {
			c.WatchMode = "client"
		}
		all[name] = c
	}
	return all
}
