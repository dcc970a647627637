package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// roster holds what controllers have registered, and the shards that are engaged for them. It is safe for concurrent
// use.
type roster struct {
	kinds           []Kind
	clientFiltering bool
	guards          atomic.Int64 // how many reconcilers are wrapped by Guard

	mu      sync.RWMutex // guards all below
	sources []*kindSource
	awares  []multicluster.Aware
	indexes []engage.Index
	engaged map[multicluster.ClusterName]*engagement
	at      map[keyspace.ClusterName]int // how many of them are of each cluster that has any
}

func newRoster(cfg Config) *roster {
	return &roster{
		kinds: cfg.Kinds, clientFiltering: cfg.ClientFiltering, engaged: map[multicluster.ClusterName]*engagement{},
		at: map[keyspace.ClusterName]int{},
	}
}

// get returns the engagement of a shard by its cluster name, nil if there is none.
func (r *roster) get(name multicluster.ClusterName) *engagement {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.engaged[name]
}

func (r *roster) all() []*engagement {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.engaged))
}

// interrupt ends what runs in all shards whose lease has run out.
func (r *roster) interrupt() {
	for _, e := range r.all() {
		e.gate.Interrupt()
	}
}

// engages reports whether any shard of a cluster is engaged.
func (r *roster) engages(cluster keyspace.ClusterName) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.at[cluster] > 0
}

func (r *roster) put(name multicluster.ClusterName, e *engagement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(name)
	r.engaged[name] = e
	r.at[e.id.Cluster]++
}

func (r *roster) remove(name multicluster.ClusterName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(name)
}

// drop forgets an engagement, if there is one. Call it with the lock held.
func (r *roster) drop(name multicluster.ClusterName) {
	e := r.engaged[name]
	if e == nil {
		return
	}
	delete(r.engaged, name)
	if r.at[e.id.Cluster]--; r.at[e.id.Cluster] == 0 {
		delete(r.at, e.id.Cluster)
	}
}

// dropKeys drops a removed shard's keys that wait for a time, from all queues that can do so, as package fairqueue's
// can. Call it before the shard is engaged again.
func (r *roster) dropKeys(name multicluster.ClusterName) {
	for _, s := range r.allSources() {
		if q, ok := s.queue.(interface{ Drop(part string) }); ok {
			q.Drop(string(name))
		}
	}
}

// addSource registers a source that feeds a queue, until the context ends. Shards that are engaged from now on feed it.
// It fails if the source is registered already, or if more controllers have sources than have guards.
func (r *roster) addSource(ctx context.Context, s *kindSource, q queue) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	queues := map[queue]bool{q: true}
	for _, other := range r.sources {
		if other == s {
			return errors.New("it feeds a controller's queue already: make one for each controller")
		}
		queues[other.queue] = true
	}
	if guards := int(r.guards.Load()); guards < len(queues) {
		return fmt.Errorf("keys of shards go to %d controller(s), and Manager.Guard was called %d time(s): without it a "+
			"move doesn't wait for a reconcile, and two replicas reconcile a key at a time; call it for each controller: "+
			"Complete(mgr.Guard(reconciler))", len(queues), guards)
	}
	s.queue = q
	r.sources = append(r.sources, s)
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// Readers hold the old slice.
		r.sources = slices.DeleteFunc(slices.Clone(r.sources), func(other *kindSource) bool { return other == s })
	})
	return nil
}

func (r *roster) allSources() []*kindSource {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clip(r.sources)
}

func (r *roster) addAware(a multicluster.Aware) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awares = append(r.awares, a)
}

func (r *roster) allAwares() []multicluster.Aware {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clip(r.awares)
}

// addIndex adds an index to the caches of all shards that are engaged from now on. A second one of the same field would
// keep all of them from opening.
func (r *roster) addIndex(i engage.Index) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.indexes {
		if other.Field == i.Field && sameKind(other.Object, i.Object) {
			return fmt.Errorf("index of %s of %T: there is one already", i.Field, i.Object)
		}
	}
	r.indexes = append(r.indexes, i)
	return nil
}

// reaches reports whether shards of a cluster look for any kind in other clusters.
func (r *roster) reaches(from keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.kinds, func(k Kind) bool { return k.remote && k.in(from) })
}

// options returns those of a cluster's shards: over their own cluster, or over all others (remote).
func (r *roster) options(cluster keyspace.ClusterName, remote bool) engage.Options {
	r.mu.RLock()
	indexes := slices.Clip(r.indexes)
	r.mu.RUnlock() // Kind.In is the program's, and may ask for what the lock guards
	opts := engage.Options{ClientFiltering: r.clientFiltering}
	for _, k := range r.kinds {
		if k.remote == remote && k.in(cluster) {
			opts.Kinds = append(opts.Kinds, k.engaged())
		}
	}
	if !remote {
		for _, i := range indexes {
			if !r.elsewhere(i.Object, cluster) {
				opts.Indexes = append(opts.Indexes, i)
			}
		}
	}
	return opts
}

// elsewhere reports whether a kind is declared, but only for shards of other clusters. An index of it would make a
// cache of it here, which is useless. If the cluster doesn't serve the kind, the shard couldn't even be opened.
func (r *roster) elsewhere(obj client.Object, cluster keyspace.ClusterName) bool {
	declared := false
	for _, k := range r.kinds {
		if !k.remote && sameKind(k.Object, obj) {
			if k.in(cluster) {
				return false
			}
			declared = true
		}
	}
	return declared
}

// primary returns the kinds of a cluster that are divided into shards.
func (r *roster) primary(cluster keyspace.ClusterName) (kinds []client.Object) {
	for _, k := range r.kinds {
		if !k.owned && k.in(cluster) {
			kinds = append(kinds, k.Object)
		}
	}
	return kinds
}

// sharded reports whether the cluster has any kind to divide into shards.
func (r *roster) sharded(cluster keyspace.ClusterName) bool {
	return slices.ContainsFunc(r.kinds, func(k Kind) bool { return !k.owned && k.in(cluster) })
}

// putOff returns the keys of a controller that are put off, for each shard that has any; nil for all controllers.
func (r *roster) putOff(of *guard) (all []fairqueue.Backlog) {
	for _, e := range r.all() {
		if b := e.putOff.backlog(string(e.id.Cluster), of); b.Ready > 0 {
			all = append(all, b)
		}
	}
	return all
}
