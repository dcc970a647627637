package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/informer"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// engagement is what one shard needs at this replica while it is warm or held: gate, caches, handlers.
type engagement struct {
	id     keyspace.ShardID
	gate   *engage.Gate
	ctx    context.Context // ends with the engagement
	cancel context.CancelFunc
	busy   atomic.Int64 // nanoseconds spent in reconciles, for the load
	// traffic is that of the shard's own cluster.
	traffic *engage.Traffic
	putOff  putOff       // its keys that wait for its cluster
	own     shardCluster // over the shard's own cluster

	// Only the loop touches it.
	sample   loadSample
	unserved time.Time // when it was last seen not to be served

	mu       sync.Mutex // guards all below
	awareEnd context.CancelFunc
	reaching map[keyspace.ClusterName]*outpost
	waiting  map[*kindSource]*alarms
}

// outpost is the shard's cluster over another real cluster, which holds objects that the shard's objects own.
type outpost struct {
	cluster shardCluster
	synced  bool            // it may be read; guarded by the engagement's lock
	ctx     context.Context // ends when the cluster is given up
	cancel  context.CancelFunc
}

func (e *engagement) name() multicluster.ClusterName { return clusterName(e.id) }

// clusterName is the name of the cluster that controllers see for a shard.
func clusterName(id keyspace.ShardID) multicluster.ClusterName {
	return multicluster.ClusterName(id.String())
}

// cluster returns the shard's cluster, nil before it is open.
func (e *engagement) cluster() *engage.Cluster { return e.own.opened() }

// isClusterScoped reports whether objects of a kind have no namespaces. For a kind without a cache, it asks the
// cluster once.
func (e *engagement) isClusterScoped(kind schema.GroupVersionKind) bool {
	c := e.cluster()
	if c == nil {
		return false
	}
	mapping, err := c.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	return err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot
}

func (e *engagement) epoch() protocol.Epoch { return e.gate.Epoch() }

// remote returns another cluster as this shard sees it.
func (e *engagement) remote(name keyspace.ClusterName) (cluster.Cluster, error) {
	e.mu.Lock()
	o := e.reaching[name]
	synced := o != nil && o.synced
	e.mu.Unlock()
	if !synced {
		return nil, fmt.Errorf("cluster %s as seen by shard %s: not there or not synced: %w", name, e.id,
			multicluster.ErrClusterNotFound)
	}
	return o.cluster.opened(), nil
}

// unreach drops the outposts in clusters that are gone, or that were replaced by another cluster of the same name.
func (e *engagement) unreach(all map[keyspace.ClusterName]realCluster) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, o := range e.reaching {
		over := o.cluster.openedOver()
		if now, there := all[name]; there && (over == 0 || over == now.clusterNo) {
			continue
		}
		o.cancel()
		delete(e.reaching, name)
	}
}

// reach adds an outpost for a cluster, or returns the existing one (begun is true).
func (e *engagement) reach(name keyspace.ClusterName) (_ *outpost, begun bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.reaching[name]; o != nil {
		return o, true
	}
	o := &outpost{}
	o.ctx, o.cancel = context.WithCancel(e.ctx)
	if e.reaching == nil {
		e.reaching = map[keyspace.ClusterName]*outpost{}
	}
	e.reaching[name] = o
	return o, false
}

// reached puts a synced outpost to use. It returns false if the outpost was dropped meanwhile.
func (e *engagement) reached(name keyspace.ClusterName, o *outpost) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	o.synced = true
	return e.reaching[name] == o
}

// clustersOf returns what holds the shard's objects of a kind: its own cluster or, for a remote kind, the synced
// outposts in all other clusters.
func (e *engagement) clustersOf(k Kind) (all []*shardCluster) {
	if !k.in(e.id.Cluster) {
		return nil
	}
	if !k.remote {
		return []*shardCluster{&e.own}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.reaching {
		if o.synced {
			all = append(all, &o.cluster)
		}
	}
	return all
}

// attach connects the sources' workqueues to the shard's caches, each once. It is done during warm-up, since it takes
// longer the more objects there are. Events are dropped until the gate is open.
func (e *engagement) attach(sources []*kindSource, log logr.Logger) {
	for _, s := range sources {
		for _, c := range e.clustersOf(s.kind) {
			if err := c.attach(e, s); err != nil && e.ctx.Err() == nil {
				log.Error(err, "shard's events can't be had", "shard", e.id.String(), "kind", fmt.Sprintf("%T", s.obj))
			}
		}
	}
}

// backfill enqueues everything that the caches hold for the sources, behind live events. Changes from before the gate
// was opened are in the caches by then. Later changes come as events.
func (e *engagement) backfill(sources []*kindSource) {
	for _, s := range sources {
		for _, c := range e.clustersOf(s.kind) {
			if informer, err := c.opened().Informer(s.obj); err == nil {
				s.backfill(e, informer.All())
			}
		}
	}
}

// beginAwares returns the context to engage unmodified controllers with.
func (e *engagement) beginAwares() context.Context {
	ctx, cancel := context.WithCancel(e.ctx)
	e.replaceAwares(cancel) // a change of caches may have engaged them while the shard drained
	return ctx
}

// endAwares disengages unmodified controllers, and reports whether any were engaged.
func (e *engagement) endAwares() bool { return e.replaceAwares(nil) }

func (e *engagement) replaceAwares(next context.CancelFunc) (ended bool) {
	e.mu.Lock()
	last := e.awareEnd
	e.awareEnd = next
	e.mu.Unlock()
	if last == nil {
		return false
	}
	last()
	return true
}

// alarms returns the alarms of the shard's objects for one source, and makes them at the first call.
func (e *engagement) alarms(s *kindSource) *alarms {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.waiting[s]
	if a != nil {
		return a
	}
	a = &alarms{ctx: e.ctx, due: s.dueTime}
	a.store = func() *informer.Store {
		if c := e.cluster(); c != nil {
			store, _ := c.Informer(s.obj) // no error: the kind is declared, which every source checks
			return store
		}
		return nil
	}
	a.enqueue = func(o client.Object, due time.Time) {
		if e.gate.IsOpen() {
			s.enqueueFor(e, o, due)
		}
	}
	if e.waiting == nil {
		e.waiting = map[*kindSource]*alarms{}
	}
	e.waiting[s] = a
	return a
}

// forgetAlarms clears all alarms. The backfill after the gate opens sets them again.
func (e *engagement) forgetAlarms() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.waiting {
		a.clear()
	}
}

// shut ends the engagement at once: nothing passes its gate any more, and its caches stop.
func (e *engagement) shut() {
	e.gate.Shut()
	e.endAwares()
	e.cancel()
	e.forgetAlarms() // after the context has ended: none is set any more
}
