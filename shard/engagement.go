package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard/internal/engage"
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
	// traffic is that of the cluster that the shard is a part of.
	traffic *engage.Traffic
	home    view // over the cluster that the shard is a part of

	// Only the loop touches these.
	awareEnd context.CancelFunc
	reaching map[keyspace.ClusterName]*outpost

	mu      sync.Mutex                     // guards remotes
	remotes map[keyspace.ClusterName]*view // the synced ones of what is being reached
}

// outpost is the engagement's view over another cluster, where what its objects own lives.
type outpost struct {
	view   view
	cancel context.CancelFunc
}

func (e *engagement) name() multicluster.ClusterName { return multicluster.ClusterName(e.id.String()) }

// cluster returns the shard's cluster, nil before it is open.
func (e *engagement) cluster() *engage.Cluster { return e.home.cluster() }

// over returns the real cluster that the shard's cluster was opened over, nil before.
func (e *engagement) over() cluster.Cluster { return e.home.over() }

func (e *engagement) epoch() protocol.Epoch { return e.gate.Epoch() }

// remote returns another cluster as this shard sees it.
func (e *engagement) remote(name keyspace.ClusterName) (cluster.Cluster, error) {
	e.mu.Lock()
	v := e.remotes[name]
	e.mu.Unlock()
	if v == nil {
		return nil, fmt.Errorf("cluster %s as seen by shard %s: not there or not synced: %w", name, e.id, multicluster.ErrClusterNotFound)
	}
	return v.cluster(), nil
}

func (e *engagement) setRemote(name keyspace.ClusterName, v *view) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if v == nil {
		delete(e.remotes, name)
		return
	}
	if e.remotes == nil {
		e.remotes = map[keyspace.ClusterName]*view{}
	}
	e.remotes[name] = v
}

// views are where the shard's objects of a kind are found: in its own cluster, or in the synced ones of all others.
func (e *engagement) views(k Kind) []*view {
	if !k.in(e.id.Cluster) {
		return nil
	}
	if !k.Remote {
		return []*view{&e.home}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.remotes))
}

// attach connects the sources' queues to the shard's caches, each once. That is done while the shard is warmed, since
// it takes the longer the more objects there are: nothing comes of an event before the gate is open.
func (e *engagement) attach(sources []*kindSource, log logr.Logger) {
	for _, s := range sources {
		for _, v := range e.views(s.kind) {
			if err := v.attach(e, s); err != nil && e.ctx.Err() == nil {
				log.Error(err, "shard's events can't be had", "shard", e.id.String(), "kind", fmt.Sprintf("%T", s.obj))
			}
		}
	}
}

// backfill enqueues all that the caches hold for the sources, behind what is live. What changed before the gate was
// opened is in the caches by then, and what changes afterwards comes as an event.
func (e *engagement) backfill(sources []*kindSource) {
	for _, s := range sources {
		for _, v := range e.views(s.kind) {
			s.backfill(e, v.cluster().Cached(e.ctx, s.obj))
		}
	}
}

// endAwares disengages unmodified controllers.
func (e *engagement) endAwares() {
	if e.awareEnd != nil {
		e.awareEnd()
		e.awareEnd = nil
	}
}

// shut ends the engagement at once: nothing passes its gate any more, its caches stop.
func (e *engagement) shut() {
	e.gate.Shut()
	e.endAwares()
	e.cancel()
}

// reach keeps one outpost per other cluster, for a shard whose kinds have remote ones. An outpost that isn't synced
// yet, or never will be, delays nothing else; when it is, the shard's keys are looked at again.
func (s *session) reach(e *engagement) {
	opts := s.node.engageOptions(e.id.Cluster, true)
	if len(opts.Kinds) == 0 {
		return
	}
	all := s.node.fleet.all()
	for name, o := range e.reaching {
		if over := o.view.over(); all[name] == nil || (over != nil && over != all[name]) {
			e.setRemote(name, nil)
			o.cancel()
			delete(e.reaching, name)
		}
	}
	for name := range all {
		if name == e.id.Cluster || e.reaching[name] != nil {
			continue
		}
		o := &outpost{}
		ctx, cancel := context.WithCancel(e.ctx)
		o.cancel = cancel
		if e.reaching == nil {
			e.reaching = map[keyspace.ClusterName]*outpost{}
		}
		e.reaching[name] = o
		find := func() (cluster.Cluster, *engage.Traffic) { return s.node.fleet.get(name) }
		s.spawn(func() {
			if o.view.warm(ctx, e.gate, find, opts, s.log, s.spawn) {
				s.mail.put(message{do: func() { s.reached(e, name, o) }, from: e})
			}
		})
	}
}

// reached puts a synced outpost to use. Its coming may matter to any key of the shard, so all are enqueued again.
func (s *session) reached(e *engagement, name keyspace.ClusterName, o *outpost) {
	if s.shards[e.id] != e || e.reaching[name] != o {
		return
	}
	e.setRemote(name, &o.view)
	s.spawn(func() {
		sources := s.node.allSources()
		e.attach(sources, s.log)
		if e.gate.IsOpen() {
			e.backfill(sources)
		}
	})
}
