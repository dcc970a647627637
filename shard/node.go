package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// errLapsed ends a session whose incarnation is over; the process goes on under a new one.
var errLapsed = errors.New("incarnation lapsed")

// Node is this process's part in the fleet: one session after the other, each under an incarnation of its own. To
// multicluster-runtime it is the coordinator that decides which clusters a controller is engaged with.
type Node struct {
	cfg   Config
	home  *rest.Config
	log   logr.Logger
	fleet *fleet
	start time.Time // origin of the monotonic clock

	leaving  chan struct{} // closed when the process is to leave
	leave    sync.Once
	finished chan struct{} // closed when Start has returned
	status   atomic.Pointer[Status]
	turned   atomic.Int64 // when the loop last turned, on the monotonic clock
	records  atomic.Pointer[cache.Cache]

	mu      sync.RWMutex // guards all below
	sources []*kindSource
	awares  []multicluster.Aware
	indexes []engage.Index
	shards  map[multicluster.ClusterName]*engagement
	stopped []protocol.Incarnation // have lapsed and write nothing any more, and no peer was told
}

var (
	_ mcmanager.Coordinator          = (*Node)(nil)
	_ manager.LeaderElectionRunnable = (*Node)(nil)
)

func newNode(cfg Config, home *rest.Config, log logr.Logger) *Node {
	n := &Node{
		cfg: cfg, home: home, log: log, fleet: newFleet(), start: time.Now(),
		leaving: make(chan struct{}), finished: make(chan struct{}),
		shards: map[multicluster.ClusterName]*engagement{},
	}
	n.status.Store(&Status{Replica: cfg.Replica})
	return n
}

// AddAware registers an unmodified multicluster-runtime controller: it is engaged with every shard while that is
// active. Sources of [Manager] do the same faster.
func (n *Node) AddAware(a multicluster.Aware) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.awares = append(n.awares, a)
}

// Engage takes a workload cluster from the provider.
func (n *Node) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if name == n.cfg.HomeCluster {
		return fmt.Errorf("cluster %q: that is the home cluster's own name: rename the one or the other", name)
	}
	n.fleet.add(ctx, keyspace.ClusterName(name), cl)
	return nil
}

// Runnable returns the loop that takes part in the coordination.
func (n *Node) Runnable() manager.Runnable { return n }

// NeedLeaderElection says that every replica takes part.
func (n *Node) NeedLeaderElection() bool { return false }

// Start takes part in the fleet until it was told to leave and has, or the context ends. It fails when the incarnation
// had to be given up for good: the process should end then, so that a supervisor starts it anew.
func (n *Node) Start(ctx context.Context) error {
	defer close(n.finished)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme of the records: %w", err)
	}
	records, err := n.recordCache(scheme)
	if err != nil {
		return err
	}
	cacheCtx, stopCache := context.WithCancel(ctx)
	defer stopCache()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stopCache()
	wg.Go(func() { _ = records.Start(cacheCtx) })
	n.records.Store(&records)

	var memory ownership.Memory
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, n.cfg.LeaseDuration) {
		began := time.Now()
		s, err := newSession(n, scheme, records, memory)
		if err != nil {
			return err
		}
		err = s.run(ctx)
		if !errors.Is(err, errLapsed) {
			return err
		}
		memory = s.machine.Memory()
		if time.Since(began) > n.cfg.LeaseDuration {
			pause = 100 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		case <-n.leaving:
			return nil
		}
	}
}

// recordCache watches the Leases and Shard records of the home cluster.
func (n *Node) recordCache(scheme *runtime.Scheme) (cache.Cache, error) {
	tenures, err := labels.Parse(tenurev1alpha1.RoleLabel)
	if err != nil {
		return nil, fmt.Errorf("selector of leases: %w", err)
	}
	config := rest.CopyConfig(n.home)
	config.UserAgent = n.agent() + " (coordination)"
	namespaces := map[string]cache.Config{n.cfg.Namespace: {}}
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: recordMapper(), DefaultWatchErrorHandler: n.cantWatch,
		ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Label: tenures, Namespaces: namespaces},
			&tenurev1alpha1.Shard{}: {Namespaces: namespaces},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the records in namespace %s of the home cluster: %w", n.cfg.Namespace, err)
	}
	return c, nil
}

// recordMapper knows the kinds of the records by itself: taking part needs no discovery, so a replica that is started while
// the home cluster is away waits for it.
func recordMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Lease", "LeaseList"} { // a cache of namespaces looks lists up, too
		m.Add(coordinationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Shard", "ShardList"} {
		m.Add(tenurev1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// cantWatch says why the records can't be seen; it is tried again.
func (n *Node) cantWatch(ctx context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsNotFound(err) {
		n.log.Error(err, "the home cluster doesn't know the kind Shard: install config/crd there")
		return
	}
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

// tellLeave asks the running session to leave in order.
func (n *Node) tellLeave() { n.leave.Do(func() { close(n.leaving) }) }

func (n *Node) agent() string { return "tenure/" + n.cfg.Version }

// now reads the process's clocks.
func (n *Node) now() ownership.Instant {
	now := time.Now()
	return ownership.Instant{Mono: now.Sub(n.start), Wall: time.Duration(now.UnixNano())}
}

// newIncarnation makes a name that was never used before.
func (n *Node) newIncarnation() protocol.Incarnation {
	return protocol.Incarnation(n.cfg.Replica + "-" + strings.ToLower(rand.Text()[:6]))
}

// engaged returns the engagement of a shard by its cluster name, nil if there is none.
func (n *Node) engaged(name multicluster.ClusterName) *engagement {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shards[name]
}

func (n *Node) allEngaged() []*engagement {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Collect(maps.Values(n.shards))
}

// allStopped returns the incarnations whose Leases are to be sealed by this process.
func (n *Node) allStopped() []protocol.Incarnation {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Clone(n.stopped)
}

// setStopped notes whether an incarnation's Lease is to be sealed by this process.
func (n *Node) setStopped(id protocol.Incarnation, stopped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = slices.DeleteFunc(n.stopped, func(other protocol.Incarnation) bool { return other == id })
	if stopped {
		n.stopped = append(n.stopped, id)
	}
}

func (n *Node) setEngaged(name multicluster.ClusterName, e *engagement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e == nil {
		delete(n.shards, name)
	} else {
		n.shards[name] = e
	}
}

// addSource registers a source until the context ends, and attaches it to the shards that are warm or held already.
func (n *Node) addSource(ctx context.Context, s *kindSource) {
	n.mu.Lock()
	n.sources = append(n.sources, s)
	n.mu.Unlock()
	context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for i := range n.sources {
			if n.sources[i] == s {
				n.sources = append(n.sources[:i:i], n.sources[i+1:]...)
				return
			}
		}
	})
	for _, e := range n.allEngaged() {
		e.attach([]*kindSource{s}, n.log)
	}
}

func (n *Node) allSources() []*kindSource {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return append([]*kindSource(nil), n.sources...)
}

func (n *Node) allAwares() []multicluster.Aware {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return append([]multicluster.Aware(nil), n.awares...)
}

// engageOptions are those of a cluster's shards: for their own cluster, or for all the others (remote).
func (n *Node) engageOptions(cluster keyspace.ClusterName, remote bool) engage.Options {
	n.mu.RLock()
	defer n.mu.RUnlock()
	opts := engage.Options{ClientFiltering: n.cfg.ClientFiltering}
	for _, k := range n.cfg.Kinds {
		if k.Remote == remote && k.in(cluster) {
			opts.Kinds = append(opts.Kinds, k.engaged())
		}
	}
	if !remote {
		opts.Indexes = n.indexes
	}
	return opts
}

// sharded reports whether the cluster has anything that is to be divided into shards.
func (n *Node) sharded(cluster keyspace.ClusterName) bool {
	return slices.ContainsFunc(n.cfg.Kinds, func(k Kind) bool { return !k.Owned && k.in(cluster) })
}

// addIndex adds an index to the caches of all shards that are engaged from now on.
func (n *Node) addIndex(i engage.Index) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.indexes = append(n.indexes, i)
}
