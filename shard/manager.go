package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/inspect"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/memory"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Manager is a multicluster-runtime manager whose "clusters" are the shards that this replica holds.
type Manager struct {
	mcmanager.Manager
	node *Node
}

// cacheSyncTimeout is how long a controller waits for its caches, such as a provider's for that of the home cluster.
// One that waits in vain ends the process, by controller-runtime's default after two minutes. But home may be away for
// longer, and a replica that starts meanwhile waits for it, as one that runs does. What keeps caches from being filled
// is in the log.
const cacheSyncTimeout = 365 * 24 * time.Hour

// NewManager returns the manager of one replica. It takes the place of mcmanager.New: home is the cluster of the
// coordination records, provider finds the workload clusters, and controllers built on the manager see one cluster per
// held shard, named "cluster/prefix". Leader election must be off: every replica works. The manager's options are for
// the home cluster. Where that is worked on ([Config].HomeCluster), its shards don't go by the options of the cache:
// those that would bound or change what is seen are refused. Controllers wait a year for their caches, unless
// Controller.CacheSyncTimeout says otherwise.
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
	opts.NewCache = liveCache(opts.NewCache)
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
	node := newNode(cfg.withDefaults(), kinds, home, local.GetLogger().WithName("shard"))
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

// Start runs until the context ends; then the replica leaves in order: its shards are handed off to warm successors
// while its controllers still work, and only then everything stops. It fails when something can't go on, and then the
// process must end.
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
		// The driver bounds leaving itself; this bound is for one that never began.
		bound := time.NewTimer(m.node.cfg.DrainTimeout + 2*m.node.cfg.LeaseDuration)
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

// Clusters returns the names of all clusters that the provider knows now, and the home cluster's if it is one of them.
func (m *Manager) Clusters() []multicluster.ClusterName {
	var names []multicluster.ClusterName
	for name := range m.node.clusters.all() {
		names = append(names, multicluster.ClusterName(name))
	}
	slices.Sort(names)
	return names
}

// Unfenced returns a cluster of [Manager.Clusters] as the provider gave it: no gate stops what is written through its
// client, whoever holds the object's shard. Ask anew each time, since the provider replaces it with the credentials. It
// is for what no shard is about. Inside a guarded reconcile, GetCluster gives what to write through. It fails with
// multicluster.ErrClusterNotFound, and is safe for concurrent use.
func (m *Manager) Unfenced(name multicluster.ClusterName) (cluster.Cluster, error) {
	if cl := m.node.clusters.all()[keyspace.ClusterName(name)].Cluster; cl != nil {
		return cl, nil
	}
	return nil, fmt.Errorf("cluster %s: %w", name, multicluster.ErrClusterNotFound)
}

// Connection is how a cluster is reached.
type Connection struct {
	// Config is for clients that share the connection, and follow when its credentials are replaced. Like those of
	// [Manager.Unfenced] they have no fence.
	Config *rest.Config
	// Given is what the provider made of the credentials that are in use.
	Given *rest.Config
	// Refused says why those that the provider gave last aren't in use; "" if they are, or may yet be.
	Refused string
	// Engaged is whether this replica holds or warms a shard of the cluster.
	Engaged bool
}

// Connection returns how a cluster of [Manager.Clusters] is reached now; ok is false for other names. It is safe for
// concurrent use.
func (m *Manager) Connection(name multicluster.ClusterName) (_ Connection, ok bool) {
	cluster := keyspace.ClusterName(name)
	c, refused := m.node.clusters.inUse(cluster)
	if c.via == nil {
		return Connection{}, false
	}
	return Connection{Config: c.via.Config(), Given: c.GetConfig(), Refused: refused,
		Engaged: m.node.roster.engages(cluster)}, true
}

// SetLimits has one cluster go by limits of its own from now on, in place of [Config].Limits; nil takes them away. They
// hold for all shards of the cluster together, those that it has and those that come, and no connection is made anew.
// The cluster needn't be known yet. Limits that make no sense, by their Validate, are logged, and change nothing. It is
// safe for concurrent use.
func (m *Manager) SetLimits(name multicluster.ClusterName, own *kubeconfig.Limits) {
	if own != nil {
		if err := own.Validate(); err != nil { // hardly anything would be sent
			m.node.log.Error(err, "limits make no sense; the cluster keeps those that it has", "cluster", string(name))
			return
		}
	}
	m.node.clusters.setLimits(keyspace.ClusterName(name), own)
}

// Ask says why a cluster of [Manager.Clusters] can't be used from this replica, nil if it can. Where the replica works
// in the cluster it knows, and otherwise it asks, over the connection in use. It is safe for concurrent use.
func (m *Manager) Ask(ctx context.Context, name multicluster.ClusterName) error {
	judge := m.node.judge.Load()
	if judge == nil {
		return ErrNotStarted
	}
	return judge.usable(ctx, keyspace.ClusterName(name))
}

// PutOff returns for how long work of a namespace in a cluster is better put off, by what that answered to the requests
// of this replica's shards; 0 if it needn't be, and for names that no cluster has. When a pause is over one caller for
// all is let through, on trial: it should send a request. Guard asks for each key's own cluster; ask for those that a
// reconcile works in beside it. It is safe for concurrent use.
func (m *Manager) PutOff(name multicluster.ClusterName, namespace string) (wait time.Duration, trial bool) {
	_, traffic := m.node.clusters.known(keyspace.ClusterName(name))
	if traffic == nil {
		return 0, false
	}
	return traffic.Breaker.PutOff(namespace, false)
}

// Status returns what the replica holds and does now. It is safe for concurrent use.
func (m *Manager) Status() Status {
	st := *m.node.status.Load()
	st.Clusters, st.MemoryNeeded = m.node.clusterStatus(), memory.Now().Share()
	return st
}

// ErrNotStarted says that the manager doesn't watch the records yet, or not any more.
var ErrNotStarted = errors.New("the records of the home cluster aren't watched yet")

// Records returns what this replica's cache shows of the fleet, at the cost of no request. A cache may be behind; where
// the home cluster is away it shows the last that was seen. It waits for the cache to be filled, within the context.
func (m *Manager) Records(ctx context.Context) (inspect.Records, error) {
	records := m.node.records.Load()
	if records == nil {
		return inspect.Records{}, ErrNotStarted
	}
	return inspect.Read(ctx, *records, m.node.cfg.Namespace, m.node.cfg.Fleet)
}

// Ready is a readiness check: the replica is a member of the fleet, so it can be given shards.
func (m *Manager) Ready(*http.Request) error {
	if st := m.Status(); !st.Member {
		return fmt.Errorf("replica %s isn't a member of the fleet: no valid lease in namespace %s of the home cluster",
			st.Replica, m.node.cfg.Namespace)
	}
	return nil
}

// Alive is a liveness check: the loop that drives the protocol turns. While the home cluster is away it still does.
func (m *Manager) Alive(*http.Request) error {
	turned := time.Duration(m.node.turned.Load())
	if still := m.node.clock.now().Mono - turned; turned != 0 && still > 2*m.node.cfg.LeaseDuration {
		return fmt.Errorf("the protocol's loop has stood still for %v", still)
	}
	return nil
}

// provider resolves the names of shards beside those of real clusters.
type provider struct {
	multicluster.Provider
	node   *Node
	scheme *runtime.Scheme
}

// runnableProvider is a provider that multicluster-runtime is to start.
type runnableProvider struct {
	*provider
	multicluster.ProviderRunnable
}

func wrapProvider(inner multicluster.Provider, node *Node, scheme *runtime.Scheme) multicluster.Provider {
	p := &provider{Provider: inner, node: node, scheme: scheme}
	if r, ok := inner.(multicluster.ProviderRunnable); ok {
		return &runnableProvider{provider: p, ProviderRunnable: r}
	}
	return p
}

// Get returns the cluster of a shard that this replica holds or warms, by the shard's name. By a real cluster's name it
// returns that cluster as the shard sees it whose key is reconciled, behind the shard's gate; outside of a guarded
// reconcile it fails.
func (p *provider) Get(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if e := p.node.roster.get(name); e != nil {
		if v := e.cluster(); v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("shard %s isn't warm yet: %w", name, multicluster.ErrClusterNotFound)
	}
	if e := reconciling(ctx); e != nil {
		return e.remote(keyspace.ClusterName(name))
	}
	if p.node.clusters.all()[keyspace.ClusterName(name)].Cluster != nil {
		return nil, fmt.Errorf("cluster %s outside of a guarded reconcile: no shard fences what is written there: "+
			"wrap the reconciler with Manager.Guard and pass on its context, or ask for Manager.Unfenced", name)
	}
	return nil, fmt.Errorf("shard or cluster %s: not here: %w", name, multicluster.ErrClusterNotFound)
}

// IndexField indexes a field in the caches of all shards engaged from now on. Where clusters are divided it fails for a
// kind that isn't declared, of which a shard has no cache.
func (p *provider) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if p.node.cfg.ShardBits > 0 {
		same, err := ofKind(p.node.cfg.Kinds, obj, p.scheme)
		if err != nil {
			return fmt.Errorf("index of %s of %T: %w", field, obj, err)
		}
		if !slices.ContainsFunc(same, func(k Kind) bool { return !k.Remote }) {
			return fmt.Errorf("index of %s of %T: the kind isn't declared, so it would hold an arbitrary part of the objects "+
				"where clusters are divided: declare it in shard.Config.Kinds, with Owned or Primary",
				field, obj)
		}
	}
	p.node.roster.addIndex(engage.Index{Object: obj, Field: field, Extract: extract})
	return nil
}
