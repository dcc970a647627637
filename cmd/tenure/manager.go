package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mckubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/pkg/at"
	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/onboard"
	"github.com/tenure-dev/tenure/pkg/statuspage"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// replica is a manager, and what belongs to it.
type replica struct {
	mcmanager.Manager
	provider    *mckubeconfig.Provider
	health      *clusterhealth.Health
	live, ready healthz.Checker
	owner       func() bool // whether this replica renews tokens first; nil leaves that to the manager's leader election
}

// runManager runs one replica until the context ends.
func runManager(ctx context.Context, o *options, logTo io.Writer) error {
	log := logr.FromSlogHandler(o.hooks.Handler(newLog(logTo, o.logLevel))).WithValues("replica", o.replica)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	o.logEnvironment(log)
	clientmetrics.RequestResult = newFewHosts(clientmetrics.RequestResult)

	home, err := homeConfig(o)
	if err != nil {
		return err
	}
	obs, err := newObservability(ctx, o, log)
	if err != nil {
		return err
	}
	if o.namesHome() {
		if err := metrics.Registry.Register(homeCredentials{home}); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	defer obs.start(ctx)()
	go o.hooks.Run(ctx, obs.SetSampling, o.traceSlow)
	go spareProcessors(ctx)
	limitMemory(ctx, log)
	_ = obs.wrap(home) // never fails
	policy, err := o.kubeconfigs.policy()
	if err != nil {
		return err
	}
	r, err := o.newReplica(home, policy, obs)
	if err != nil {
		return err
	}
	if err := o.setUpClusters(ctx, r, policy, log); err != nil {
		return err
	}
	if err := errors.Join(r.AddHealthzCheck("loop", r.live), r.AddReadyzCheck("member", r.ready)); err != nil {
		return fmt.Errorf("setting up probes: %w", err)
	}
	log.Info("starting", "version", version, "sharding", o.sharding, "workers", o.workers)
	if err := r.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return o.hooks.Close()
}

// logEnvironment logs the environment variables that look like those of flags and have no effect.
func (o *options) logEnvironment(log logr.Logger) {
	for _, v := range o.overridden {
		log.Info("an environment variable has no effect, since its flag is given", "flag", v.Flag, "value", v.Value,
			"variable", v.Variable, "ignored", v.Ignored)
	}
	for _, name := range o.unknown {
		log.Info("an environment variable has no effect, since there is no flag of that name", "variable", name)
	}
}

// newReplica builds the manager with its controllers, with or without sharding.
func (o *options) newReplica(home *rest.Config, policy kubeconfig.Policy, obs *observability) (*replica, error) {
	scheme, err := console.Scheme()
	if err != nil {
		return nil, err
	}
	breakers, connected := &shard.Breakers{}, []func(*rest.Config) error{kubeconfig.Pin, tune, obs.wrap}
	if !o.sharding && o.replicates() {
		connected = append(connected, breakers.Watch)
	}
	r := &replica{live: alive, ready: alive, provider: mckubeconfig.New(mckubeconfig.Options{
		Namespace: o.namespace,
		ClusterOptions: []cluster.Option{func(co *cluster.Options) {
			co.Scheme, co.Cache.DefaultTransform = scheme, at.Trim
			if o.sharding {
				bare(co)
			}
		}},
		RESTOptions: connected,
	})}
	watched := clusterhealth.Config{Namespace: o.namespace, Replica: o.replica, Policy: policy}
	if !o.sharding {
		if r.Manager, err = newStock(home, r.provider, managerOptions(o, scheme), o, obs); err != nil {
			return nil, err
		}
		watched.Kept = keptBy(r.provider)
		r.health = clusterhealth.New(watched)
		return r, o.addStockReplication(r.Manager, r.provider, breakers, r.health, obs)
	}
	sharded, err := newSharded(home, r.provider, managerOptions(o, scheme), o, obs)
	if err != nil {
		return nil, err
	}
	o.watchThrough(sharded, &watched)
	r.Manager, r.health = sharded, clusterhealth.New(watched)
	r.live, r.ready, r.owner = sharded.Alive, sharded.Ready, sharded.Coordinates
	return r, errors.Join(o.addStatusPage(sharded), o.addReplication(sharded, r.health, obs))
}

// setUpClusters makes the workload clusters those of Secrets and files, watches them, and renews their tokens.
func (o *options) setUpClusters(ctx context.Context, r *replica, policy kubeconfig.Policy, log logr.Logger) error {
	from, err := o.kubeconfigs.join(r.Manager, o.namespace, log)
	if err != nil {
		return err
	}
	fenced := kubeconfig.Fence(from, policy, o.removalGrace)
	renewer := onboard.NewRenewer(onboard.RenewerConfig{Namespace: o.namespace, Replica: o.replica, Policy: policy,
		Owner: r.owner})
	if err := errors.Join(r.provider.SetupWithManager(ctx, r.health.Noting(fenced)), r.health.SetupWithManager(from),
		renewer.SetupWithManager(r.Manager)); err != nil {
		return fmt.Errorf("setting up the workload clusters: %w", err)
	}
	return nil
}

// keptBy returns which connection a provider keeps to a cluster whose Secret is refused, see [kubeconfig.Fence].
func keptBy(provider multicluster.Provider) func(cluster string) *rest.Config {
	return func(name string) *rest.Config {
		c, err := provider.Get(context.Background(), multicluster.ClusterName(name)) // it only looks it up
		if err != nil {
			return nil
		}
		return c.GetConfig()
	}
}

// watchThrough has clusters watched over the connections that their shards use, and passes on the limits in their
// Secrets. Trouble is reported anew by each of the replica's incarnations.
func (o *options) watchThrough(sharded *shard.Manager, watched *clusterhealth.Config) {
	here := func(name string) bool {
		c, _ := sharded.Connection(multicluster.ClusterName(name))
		return c.Engaged
	}
	watched.InUse = func(name string) (clusterhealth.Use, bool) {
		c, ok := sharded.Connection(multicluster.ClusterName(name))
		ask := func(ctx context.Context) error { return sharded.Ask(ctx, multicluster.ClusterName(name)) }
		needed := c.Engaged || o.copiesFrom(here)
		return clusterhealth.Use{Ask: ask, Given: c.Given, Refused: c.Refused, Proven: c.Proven, Needed: needed}, ok
	}
	watched.Incarnation = func() string { return string(sharded.Membership()) }
	watched.Limit = func(name string, secret *corev1.Secret) error {
		if secret == nil {
			sharded.SetLimits(multicluster.ClusterName(name), nil)
			return nil
		}
		limits, err := kubeconfig.LimitsOf(secret, o.limits)
		sharded.SetLimits(multicluster.ClusterName(name), &limits)
		return err
	}
}

// addStatusPage serves the fleet's state beside the metrics.
func (o *options) addStatusPage(mgr *shard.Manager) error {
	page := statuspage.New(statuspage.Config{Replica: o.replica, Namespace: o.namespace, Records: mgr.Records,
		Metrics: metrics.Registry})
	return page.SetupWithManager(mgr.GetLocalManager())
}

func alive(*http.Request) error { return nil }

// tune sets what all our connections have in common.
func tune(c *rest.Config) error {
	c.UserAgent = "tenure/" + version
	c.QPS = -1 // the API servers' own priority and fairness decides
	// A warning comes with each answer that it is about, and from API servers that may send any number.
	c.WarningHandlerWithContext = rest.NoWarnings{}
	return nil
}

func managerOptions(o *options, scheme *runtime.Scheme) manager.Options {
	return manager.Options{
		Scheme:                 scheme,
		Metrics:                o.metricsOptions(),
		HealthProbeBindAddress: o.healthAddress,
		PprofBindAddress:       o.pprofAddress,
		NewCache:               cacheOf(o.namespace),
	}
}

// cacheOf returns the constructor of the manager's own cache. It holds the Secrets of clusters, in one namespace;
// for its watchers, one that loses the label is deleted. manager.Options.Cache can't say this, since it would hold
// for all caches of home. Home may be the source of copies, and then its shards hold Deployments of all namespaces.
func cacheOf(namespace string) cache.NewCacheFunc {
	return func(home *rest.Config, opts cache.Options) (cache.Cache, error) {
		clusters := labels.SelectorFromSet(labels.Set{kubeconfig.Label: "true"})
		opts.DefaultNamespaces = map[string]cache.Config{namespace: {LabelSelector: clusters}}
		opts.DefaultTransform = kubeconfig.Trim
		return cache.New(home, opts)
	}
}

// shardConfig returns the configuration of this replica in the fleet.
func (o *options) shardConfig() shard.Config {
	return shard.Config{
		Namespace:       o.namespace,
		Fleet:           keyspace.Fleet(o.fleet),
		Replica:         o.replica,
		Kinds:           append(o.atKinds(), o.replicationKinds()...),
		HomeCluster:     o.homeCluster(),
		ShardBits:       o.shardBits(),
		WholeClusters:   o.shards == 1,
		ObjectsPerShard: o.perShard,
		LeaseDuration:   o.leaseDuration,
		DrainTimeout:    o.drainTimeout,
		RemovalGrace:    o.removalGrace,
		Weight:          o.weight,
		Limits:          o.limits,
		Version:         version,
		ClientFiltering: !o.serverFilter,
		Pod:             o.seenPod(),
	}
}

// seenPod returns what peers may see of our Pod, and we of theirs. Outside of a container there is no termination
// log.
func (o *options) seenPod() shard.Pod {
	pod := o.pod
	if _, err := os.Stat(pod.TerminationLog); err != nil {
		pod.TerminationLog = ""
	}
	return pod
}

// atKinds are what shards of the workload clusters hold: Ats and their Pods.
func (o *options) atKinds() []shard.Kind {
	ats, pods := shard.Primary(&cnatv1alpha1.At{}), shard.Owned(&corev1.Pod{})
	notHome := func(cluster keyspace.ClusterName) bool { return string(cluster) != string(o.homeCluster()) }
	ats.In, pods.In = notHome, notHome
	ats.Transform, pods.Transform, ats.Pack = at.Trim, at.Trim, atPacked
	ats.Fields, pods.Fields, pods.Finished = at.UnfinishedAts, at.UnfinishedPods, at.FinishedPod
	return []shard.Kind{ats, pods}
}

// newSharded wires the reconcilers so that the replicas share the keys.
func newSharded(home *rest.Config, provider *mckubeconfig.Provider, opts manager.Options, o *options,
	obs *observability) (*shard.Manager, error) {
	cfg := o.shardConfig()
	cfg.Observer, cfg.Backlogs = obs.moves, obs.Backlogs
	mgr, err := shard.NewManager(home, provider, opts, cfg)
	if err != nil {
		return nil, err
	}
	if err := obs.observe(mgr); err != nil {
		return nil, err
	}
	r, err := o.atReconciler(obs.Clusters(mgr))
	if err != nil {
		return nil, err
	}
	seen := obs.Controller("at", "At")
	err = mcbuilder.ControllerManagedBy(mgr).Named("at").
		WithOptions(seen.Options(o.controllerOptions(), o.workers)).
		WatchesRawSource(mgr.For(&cnatv1alpha1.At{}, o.atDue, r.AtEvents())).
		WatchesRawSource(mgr.Owns(&corev1.Pod{}, &cnatv1alpha1.At{}, at.PodEvents())).
		Complete(mgr.Guard(seen.Traced(r)))
	return mgr, err
}

// atPacked returns a smaller form of an At that waits, see [at.Pack].
func atPacked(obj client.Object) shard.Packed {
	if p := at.Pack(obj); p != nil {
		return p
	}
	return nil // not a nil *at.Packed, which wouldn't be nil as an interface
}

// atDue returns when an At is due, see [at.Due].
func (o *options) atDue(obj client.Object) time.Time {
	a, ok := obj.(*cnatv1alpha1.At)
	if !ok {
		return time.Time{}
	}
	return o.hooks.Due(at.Due(a))
}

// newStock wires the same reconcilers without sharding: an elected leader works, the others wait.
func newStock(home *rest.Config, provider *mckubeconfig.Provider, opts manager.Options, o *options,
	obs *observability) (mcmanager.Manager, error) {
	mgr, err := mcmanager.New(home, provider, stockOptions(opts, o))
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	r, err := o.atReconciler(obs.Clusters(mgr))
	if err != nil {
		return nil, err
	}
	seen := obs.Controller("at", "At")
	err = mcbuilder.ControllerManagedBy(mgr).Named("at").
		WithOptions(seen.Options(o.controllerOptions(), o.workers)).
		For(&cnatv1alpha1.At{}, mcbuilder.WithPredicates(r.AtEvents())).
		Owns(&corev1.Pod{}, mcbuilder.WithPredicates(at.PodEvents())).
		Complete(seen.Traced(r))
	return mgr, err
}

// stockOptions returns the options of a manager without sharding.
func stockOptions(opts manager.Options, o *options) manager.Options {
	opts.LeaderElection = true
	opts.LeaderElectionID = "tenure-leader"
	opts.LeaderElectionNamespace = o.namespace
	opts.Controller.CacheSyncTimeout = 365 * 24 * time.Hour // as sharded replicas wait for home
	if o.homeCluster() != "" {
		// Unlike a sharded replica, this one watches home's Deployments through the manager's own cache. With this option,
		// a manager can be built only while home answers.
		opts.Cache.ByObject = map[client.Object]cache.ByObject{
			&appsv1.Deployment{}: {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}},
		}
	}
	return opts
}

// manyClusters is how many clusters may have all their workers at a time before they have to share. A worker that waits
// for a slow cluster costs a few KiB.
const manyClusters = 8

func (o *options) controllerOptions() mccontroller.Options {
	return mccontroller.Options{MaxConcurrentReconciles: manyClusters * o.workers, RateLimiter: at.NewRateLimiter()}
}

func (o *options) atReconciler(clusters at.Clusters) (*at.Reconciler, error) {
	pods, err := o.pods.defaults()
	if err != nil {
		return nil, err
	}
	return at.NewReconciler(at.Config{Clusters: o.hooks.Clusters(clusters), Clock: o.hooks.Clock(), Pods: &pods,
		Unread: shard.AnswerUnread{}})
}
