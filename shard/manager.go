package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Manager is a multicluster-runtime manager whose "clusters" are the shards that this replica holds.
type Manager struct {
	mcmanager.Manager
	node *node
}

// cacheSyncTimeout is how long a controller waits for its caches, for example a provider's for that of the home
// cluster. A controller that gives up ends the process, by controller-runtime's default after two minutes. But home
// may be away for longer. A replica that starts meanwhile should wait for it, as a running one does. The log shows
// what keeps caches from being filled.
const cacheSyncTimeout = 365 * 24 * time.Hour

// NewManager returns the manager of one replica. It takes the place of mcmanager.New: home is the cluster of the
// coordination records, provider finds the workload clusters, and controllers built on the manager see one cluster
// per held shard, named "cluster/prefix". Leader election must be off: every replica works. The manager's options are
// for the home cluster. If home is a workload cluster, too ([Config].HomeCluster), its shards ignore the options of
// the cache and the client: options that would bound or change what is seen or written are refused. Controllers wait a
// year for their caches, unless Controller.CacheSyncTimeout is set.
func NewManager(home *rest.Config, provider multicluster.Provider, opts manager.Options, cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("shard.Config: %w", err)
	}
	if opts.LeaderElection {
		return nil, errors.New("manager.Options.LeaderElection: must be off with sharding, where every replica works")
	}
	if provider == nil {
		return nil, errors.New("a provider is needed: it finds the workload clusters")
	}
	if opts.Controller.CacheSyncTimeout == 0 {
		opts.Controller.CacheSyncTimeout = cacheSyncTimeout
	}
	if opts.Logger.GetSink() == nil {
		opts.Logger = log.Log
	}
	logger := opts.Logger.WithName("shard")
	failures := newHomeFailures(logger)
	opts.NewCache = liveCache(opts.NewCache, func(err error) { failures.report("List", err) })
	local, err := manager.New(home, opts)
	if err != nil {
		return nil, fmt.Errorf("building the manager of the home cluster: %w", err)
	}
	kinds, err := kindsOf(cfg.Kinds, local.GetScheme())
	if err != nil {
		return nil, err
	}
	if err := checkHomeCache(cfg, opts.Cache, local.GetScheme()); err != nil {
		return nil, err
	}
	if err := checkHomeClient(cfg, opts); err != nil {
		return nil, err
	}
	node := newNode(cfg.withDefaults(), kinds, home, logger, failures)
	if cfg.HomeCluster != "" {
		if err := node.clusters.add(context.Background(), keyspace.ClusterName(cfg.HomeCluster), local); err != nil {
			return nil, fmt.Errorf("home cluster as a workload cluster: %w", err)
		}
	}
	m := &Manager{node: node}
	wrapped := wrapProvider(provider, node, local.GetScheme())
	m.Manager, err = mcmanager.WithMultiCluster(local, wrapped, mcmanager.WithCoordinator(node))
	if err != nil {
		return nil, fmt.Errorf("building the multicluster manager: %w", err)
	}
	return m, nil
}

// Start runs until the context ends. Then the replica leaves in order: its shards are handed off to warm successors
// while its controllers still work, and only then everything stops. If Start fails, the process must end.
func (m *Manager) Start(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		select {
		case <-ctx.Done():
		case <-inner.Done():
			return
		}
		m.node.tellLeave()
		// The driver bounds leaving itself, by less (docs/tune.md has its sum); this bound is for one that never began.
		bound := time.NewTimer(m.node.cfg.DrainTimeout + 2*m.node.cfg.LeaseDuration + 15*time.Second)
		defer bound.Stop()
		select {
		case <-m.node.finished:
		case <-bound.C:
		case <-inner.Done():
		}
		stop()
	}()
	return m.Manager.Start(inner)
}

// Clusters returns the names of all clusters that the provider knows now, and the home cluster's if it is a workload
// cluster. It is safe for concurrent use.
func (m *Manager) Clusters() []multicluster.ClusterName {
	var names []multicluster.ClusterName
	for name := range m.node.clusters.all() {
		names = append(names, multicluster.ClusterName(name))
	}
	slices.Sort(names)
	return names
}

// Unfenced returns a cluster of [Manager.Clusters] as the provider gave it. No gate stops writes through its client,
// whoever holds the object's shard. So use it only for objects that belong to no shard; inside a guarded reconcile,
// write through GetCluster. Call it anew each time, since the provider replaces the cluster with its credentials. If it
// has a cache, that stands still while the provider's latest credentials don't work: read with GetAPIReader. It fails
// with multicluster.ErrClusterNotFound, and by another error for a shard's name. It is safe for concurrent use.
func (m *Manager) Unfenced(name multicluster.ClusterName) (cluster.Cluster, error) {
	if c, _ := m.node.clusters.known(keyspace.ClusterName(name)); c.Cluster != nil {
		return c.Cluster, nil
	}
	if id, err := keyspace.ParseShardID(string(name)); err == nil {
		// Not ErrClusterNotFound: controllers drop a key for that.
		return nil, fmt.Errorf("%s is a shard: ask for its cluster, Manager.Unfenced(%q); keyspace.ParseShardID and "+
			"TenureOf name it", name, id.Cluster)
	}
	return nil, fmt.Errorf("cluster %s: %w", name, multicluster.ErrClusterNotFound)
}

// Connection is how a cluster is reached.
type Connection struct {
	// Given is the provider's configuration for the credentials that are in use.
	Given *rest.Config
	// Refused says why the credentials that the provider gave last aren't in use; "" if they are, or may yet be.
	Refused string
	// Engaged is whether this replica holds or warms a shard of the cluster.
	Engaged bool
	// Proven is whether recent answers over the connection show that the cluster can be used.
	Proven bool
}

// Connection returns how a cluster of [Manager.Clusters] is reached now; ok is false for other names. It is safe for
// concurrent use.
func (m *Manager) Connection(name multicluster.ClusterName) (_ Connection, ok bool) {
	cluster := keyspace.ClusterName(name)
	c, _ := m.node.clusters.known(cluster)
	if c.via == nil {
		return Connection{}, false
	}
	judge := m.node.judge.Load()
	return Connection{
		Given: c.GetConfig(), Refused: c.refused, Engaged: m.node.roster.engages(cluster),
		Proven: judge != nil && judge.proven(cluster),
	}, true
}

// Aliases returns the one name for each other name of a cluster that the provider knows by several: that under which it
// is served. An object in such a cluster is found under each of them, so use only the one. A cluster that isn't
// identified yet counts as a cluster of its own. It is safe for concurrent use.
func (m *Manager) Aliases() map[multicluster.ClusterName]multicluster.ClusterName {
	return aliases(m.node.clusters.all(), m.node.status.Load().Aliases)
}

// aliases implements [Manager.Aliases]. decided is what the protocol has decided, perhaps before the last changes of
// the clusters: where it says nothing that holds, the alphabetically first name counts until it does.
func aliases(all map[keyspace.ClusterName]realCluster,
	decided map[keyspace.ClusterName]keyspace.ClusterName) map[multicluster.ClusterName]multicluster.ClusterName {
	first := make(map[types.UID]keyspace.ClusterName, len(all))
	several := map[types.UID][]keyspace.ClusterName{} // hardly any: this is computed for each source
	for name, c := range all {
		switch other, known := first[c.uid]; {
		case c.uid == "":
		case !known:
			first[c.uid] = name
		case several[c.uid] == nil:
			several[c.uid] = []keyspace.ClusterName{other, name}
		default:
			several[c.uid] = append(several[c.uid], name)
		}
	}
	found := map[multicluster.ClusterName]multicluster.ClusterName{}
	for _, of := range several {
		one := slices.Min(of)
		for _, name := range of {
			if served, ok := decided[name]; ok && slices.Contains(of, served) {
				one = served
			}
		}
		for _, name := range of {
			if name != one {
				found[multicluster.ClusterName(name)] = multicluster.ClusterName(one)
			}
		}
	}
	return found
}

// SetLimits gives one cluster limits of its own from now on, in place of [Config].Limits; nil takes them away. They
// hold for all present and future shards of the cluster together, and need no new connection. The cluster needn't be
// known yet. Invalid limits are logged, and change nothing. It is safe for concurrent use.
func (m *Manager) SetLimits(name multicluster.ClusterName, own *kubeconfig.Limits) {
	if own != nil {
		if err := own.Validate(); err != nil { // with such limits hardly any request would be sent
			m.node.log.Error(err, "limits make no sense; the cluster keeps those that it has", "cluster", string(name))
			return
		}
	}
	m.node.clusters.setLimits(keyspace.ClusterName(name), own)
}

// Ask returns why a cluster of [Manager.Clusters] can't be used from this replica, nil if it can, [ErrNotStarted]
// before the start. It sends a request over the connection in use, unless the cluster's recent answers show enough.
// It is safe for concurrent use.
func (m *Manager) Ask(ctx context.Context, name multicluster.ClusterName) error {
	judge := m.node.judge.Load()
	if judge == nil {
		return ErrNotStarted
	}
	return judge.usable(ctx, keyspace.ClusterName(name))
}

// PutOff returns for how long work for a namespace of a cluster should be put off, judged by the cluster's answers to
// this replica's shards. It returns 0 if it shouldn't be, and for names that no cluster has. When a pause is over,
// one caller is let through on trial: it should send a request. Guard does this for each key's own cluster; call
// PutOff for the other clusters that a reconcile works in. It is safe for concurrent use.
func (m *Manager) PutOff(name multicluster.ClusterName, namespace string) (wait time.Duration, trial bool) {
	_, traffic := m.node.clusters.known(keyspace.ClusterName(name))
	if traffic == nil {
		return 0, false
	}
	return traffic.Breaker.PutOff(namespace, false)
}

// RetryAfter returns for how long a cluster asked, by Retry-After, that the requests of this reconcile wait; 0 if it
// didn't, or if the context isn't that of a reconcile under Guard. Guard obeys the key's own cluster; call RetryAfter
// for the others. It is safe for concurrent use.
func (m *Manager) RetryAfter(ctx context.Context, name multicluster.ClusterName) time.Duration {
	_, traffic := m.node.clusters.known(keyspace.ClusterName(name))
	if traffic == nil {
		return 0
	}
	return engage.AskedToWait(ctx, &traffic.Breaker)
}

// Status returns what the replica holds and does now. It is safe for concurrent use.
func (m *Manager) Status() Status {
	st := m.published()
	st.Clusters, st.MemoryNeeded = m.node.clusterStatus(), memory.Now().Share()
	return st
}

// published is what the protocol's loop published last. If the loop stands still, the lease may have ended since: so
// whether the replica is a member is judged now.
func (m *Manager) published() Status {
	st := *m.node.status.Load()
	st.Member = st.validity.holds()
	return st
}

// Coordinates reports whether the replica is a member of the fleet and its coordinator. Unlike [Manager.Status], it
// costs nothing. It is safe for concurrent use.
func (m *Manager) Coordinates() bool {
	st := m.published()
	return st.Coordinator && st.Member
}

// Membership returns the incarnation as which the replica is a member of the fleet now, "" if it is none. Unlike
// [Manager.Status], it costs nothing. It is safe for concurrent use.
func (m *Manager) Membership() protocol.Incarnation {
	if st := m.published(); st.Member {
		return st.Incarnation
	}
	return ""
}

// ErrNotStarted says that the manager doesn't watch the records yet.
var ErrNotStarted = errors.New("the records of the home cluster aren't watched yet")

// Records returns the fleet's records as this replica's cache shows them, without a request. The cache may be behind;
// while the home cluster is away, it shows the last state that was seen. Records waits until the cache is filled or
// the context ends. It fails with [ErrNotStarted] before the start. What the records point to is the cache's own: don't
// change it. Of a record that doesn't move, the cache keeps no managed fields.
func (m *Manager) Records(ctx context.Context) (inspect.Records, error) {
	records := m.node.records.Load()
	if records == nil {
		return inspect.Records{}, ErrNotStarted
	}
	return inspect.Read(ctx, *records, m.node.cfg.Namespace, m.node.cfg.Fleet, client.UnsafeDisableDeepCopy)
}

// Ready is a readiness check: the replica is a member of the fleet, so it can be given shards.
func (m *Manager) Ready(*http.Request) error {
	if st := m.published(); !st.Member {
		return fmt.Errorf("replica %s isn't a member of the fleet: no valid lease in namespace %s of the home cluster",
			st.Replica, m.node.cfg.Namespace)
	}
	return nil
}

// Alive is a liveness check: it fails if the loop that drives the protocol has stood still for two lease durations.
// The loop goes on while the home cluster is away.
func (m *Manager) Alive(*http.Request) error {
	turned := time.Duration(m.node.turned.Load())
	if still := m.node.clock.now().Mono - turned; turned != 0 && still > 2*m.node.cfg.LeaseDuration {
		return fmt.Errorf("the protocol's loop has stood still for %v", still)
	}
	return nil
}
