package shard

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// node is this process's part in the fleet. To multicluster-runtime it is the coordinator that decides which clusters a
// controller is engaged with.
type node struct {
	cfg      Config
	kinds    string // the kinds that are sharded, as Leases have them
	home     *rest.Config
	log      logr.Logger
	failures *homeFailures
	clusters *clusterSet
	roster   *roster
	clock    clock

	leaving  chan struct{} // closed to make the process leave
	leave    sync.Once
	finished chan struct{} // closed when Start has returned
	status   atomic.Pointer[Status]
	turned   atomic.Int64 // when the loop last turned, on the monotonic clock
	records  atomic.Pointer[cache.Cache]
	judge    atomic.Pointer[clusterJudge] // nil before the start
}

var (
	_ mcmanager.Coordinator          = (*node)(nil)
	_ manager.LeaderElectionRunnable = (*node)(nil)
)

func newNode(cfg Config, kinds string, home *rest.Config, log logr.Logger, failures *homeFailures) *node {
	n := &node{
		cfg: cfg, kinds: kinds, home: home, log: log, failures: failures, roster: newRoster(cfg),
		clusters: newClusterSet(log, cfg.RemovalGrace, cfg.Limits), clock: clock{time.Now()},
		leaving: make(chan struct{}), finished: make(chan struct{}),
	}
	n.clusters.primary = n.roster.primary
	n.status.Store(&Status{Replica: cfg.Replica, validity: &validity{clock: n.clock}})
	return n
}

// AddAware registers an unmodified multicluster-runtime controller. It is engaged with every shard while the shard is
// active. Sources of [Manager] do the same faster.
func (n *node) AddAware(a multicluster.Aware) { n.roster.addAware(a) }

// Engage takes a workload cluster from the provider. It refuses one whose scheme lacks a kind: no shard of it could
// ever be served.
func (n *node) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("cluster %q: %w", name, err)
	}
	if name == n.cfg.HomeCluster {
		return fmt.Errorf("cluster %q: that is the home cluster's own name: rename the one or the other", name)
	}
	for _, k := range n.cfg.Kinds {
		here := k.in(keyspace.ClusterName(name)) != k.remote // copies are in the clusters that aren't their sources
		if _, err := apiutil.GVKForObject(k.Object, cl.GetScheme()); err != nil && here {
			return fmt.Errorf("cluster %s: its scheme lacks %T of shard.Config.Kinds: register the kind in the scheme that "+
				"the provider gives its clusters: %w", name, k.Object, err)
		}
	}
	if err := n.clusters.add(ctx, keyspace.ClusterName(name), cl); err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	return nil
}

// checkName returns why records can't have a cluster's name; nil if they can.
func checkName(name multicluster.ClusterName) error {
	switch {
	case name == mcmanager.LocalCluster:
		return errors.New("the empty name is that of the manager's own cluster: give each cluster a name")
	case len(name) > maxClusterName || !utf8.ValidString(string(name)):
		return fmt.Errorf("the name must be valid UTF-8 of at most %d bytes, or no record could have it: shorten it in the "+
			"provider", maxClusterName)
	case strings.ContainsFunc(string(name), unicode.IsControl):
		return errors.New("the name must have no control characters, since the User-Agent of requests has it: choose " +
			"another in the provider")
	}
	return nil
}

// maxClusterName is the most that the CRD of Shard admits.
const maxClusterName = 253

// Runnable returns the loop that takes part in the coordination.
func (n *node) Runnable() manager.Runnable { return n }

// NeedLeaderElection says that every replica takes part.
func (n *node) NeedLeaderElection() bool { return false }

// Start takes part in the fleet until the process has left, when asked to, or the context ends. If it fails, the
// process should end, so that a supervisor starts it anew.
func (n *node) Start(ctx context.Context) error {
	defer close(n.finished)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenurev1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme of the records: %w", err)
	}
	mail := newMailbox[driver.Event]()
	cacheCtx, stopCaches := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stopCaches()
	stop := func() {}
	list := func() (cache.Cache, error) {
		stop()
		records, err := newRecordCache(n.cfg, n.home, scheme, n.log, n.failures, func() { mail.put(driver.Reconnected{}) })
		if err != nil {
			return nil, err
		}
		var one context.Context
		one, stop = context.WithCancel(cacheCtx)
		wg.Go(func() { _ = records.Start(one) })
		n.records.Store(&records)
		return records, nil
	}
	peers, err := newPodWatch(n.cfg, n.home, n.log)
	if err != nil {
		return err
	}
	if peers != nil {
		wg.Go(func() { peers.Run(cacheCtx) })
	}
	l := &loop{
		cfg: n.cfg, homeConfig: n.home, scheme: scheme, log: n.log, failures: n.failures, clock: n.clock,
		driver: driver.New(n.protocolConfig()), mail: mail, list: list, pods: peers, clusters: n.clusters, roster: n.roster,
		report: &report{replica: n.cfg.Replica, status: &n.status}, turned: &n.turned,
		validity: &validity{clock: n.clock},
	}
	if l.entrance, err = newEntrance(n.cfg, n.kinds, n.home, scheme, n.log, l.beside.Go); err != nil {
		return err
	}
	l.surveyor.kinds, l.surveyor.warner = n.kinds, l.entrance.warner
	if n.roster.guards.Load() == 0 {
		n.log.Error(nil, "no reconciler is wrapped by Manager.Guard, so a move wouldn't wait for one: no controller gets "+
			"keys of shards; use Complete(mgr.Guard(reconciler))")
	}
	l.judge = newJudge(n.clusters, n.roster, n.cfg.LeaseDuration, n.log, l.mail.put, l.beside.Go)
	n.judge.Store(l.judge)
	l.say = n.say
	return l.run(ctx, n.leaving)
}

// tellLeave asks the process to leave in order.
func (n *node) tellLeave() { n.leave.Do(func() { close(n.leaving) }) }

// protocolConfig returns the driver's configuration.
func (n *node) protocolConfig() driver.Config {
	cfg := driver.Config{
		Protocol: ownership.DefaultConfig("", n.cfg.Replica, n.cfg.LeaseDuration), DrainTimeout: n.cfg.DrainTimeout,
		Name: n.newIncarnation,
	}
	cfg.Protocol.Random = rand.Float64
	cfg.Protocol.Build, cfg.Protocol.Weight = n.cfg.Version, n.cfg.Weight
	cfg.Protocol.Container, cfg.Protocol.Kinds = n.cfg.Pod.Container, n.kinds
	cfg.Protocol.ObjectsPerShard = n.cfg.ObjectsPerShard
	return cfg
}

// newIncarnation makes a name that was never used before.
func (n *node) newIncarnation() protocol.Incarnation {
	return protocol.Incarnation(n.cfg.Replica + "-" + strings.ToLower(cryptorand.Text()[:6]))
}
