package shard

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// provider resolves the names of shards beside those of real clusters.
type provider struct {
	multicluster.Provider
	node   *node
	scheme *runtime.Scheme
}

// runnableProvider is a provider that multicluster-runtime has to start.
type runnableProvider struct {
	*provider
	multicluster.ProviderRunnable
}

func wrapProvider(inner multicluster.Provider, node *node, scheme *runtime.Scheme) multicluster.Provider {
	p := &provider{Provider: inner, node: node, scheme: scheme}
	if r, ok := inner.(multicluster.ProviderRunnable); ok {
		return &runnableProvider{provider: p, ProviderRunnable: r}
	}
	return p
}

// Get returns the cluster of a shard that this replica holds or warms, by the shard's name. By a real cluster's name
// it returns that cluster as the reconciled key's shard sees it, behind the shard's gate. Outside of a guarded
// reconcile, a real cluster's name fails.
func (p *provider) Get(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if e := p.node.roster.get(name); e != nil {
		if v := e.cluster(); v != nil {
			return v, nil
		}
		return nil, fmt.Errorf("shard %s isn't warm yet: %w", name, multicluster.ErrClusterNotFound)
	}
	if e := reconciling(ctx); e != nil {
		return p.seenBy(e, keyspace.ClusterName(name))
	}
	if c, _ := p.node.clusters.known(keyspace.ClusterName(name)); c.Cluster != nil {
		return nil, fmt.Errorf("cluster %s outside of a guarded reconcile: no shard fences what is written there: "+
			"wrap the reconciler with Manager.Guard and pass on its context, or ask for Manager.Unfenced", name)
	}
	return nil, fmt.Errorf("shard or cluster %s: not here: %w", name, multicluster.ErrClusterNotFound)
}

// seenBy returns a cluster as a shard sees it.
func (p *provider) seenBy(e *engagement, name keyspace.ClusterName) (cluster.Cluster, error) {
	remote, err := e.remote(name)
	if c, _ := p.node.clusters.known(name); err != nil && c.Cluster != nil &&
		(name == e.id.Cluster || !p.node.roster.reaches(e.id.Cluster)) {
		// Not ErrClusterNotFound: controllers drop a key for that, and there will be no event that enqueues it again.
		return nil, fmt.Errorf("cluster %s in a reconcile of shard %s: its own cluster goes by the request's ClusterName, "+
			"and it reaches others only if what it owns there is declared with shard.Copies; or ask for Manager.Unfenced",
			name, e.id)
	}
	return remote, err
}

// IndexField indexes a field in the caches of all shards engaged from now on. Where clusters are divided, it fails
// for a kind that isn't declared, since shards have no cache of it.
func (p *provider) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if p.node.cfg.divides() {
		same, err := ofKind(p.node.cfg.Kinds, obj, p.scheme)
		if err != nil {
			return fmt.Errorf("index of %s of %T: %w", field, obj, err)
		}
		if !slices.ContainsFunc(same, func(k Kind) bool { return !k.remote }) {
			return fmt.Errorf("index of %s of %T: the kind isn't declared, so it would hold an arbitrary part of the objects "+
				"where clusters are divided: declare it in shard.Config.Kinds, with Owned or Primary",
				field, obj)
		}
	}
	return p.node.roster.addIndex(engage.Index{Object: obj, Field: field, Extract: extract})
}
