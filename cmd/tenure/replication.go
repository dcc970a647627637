package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mckubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// noSource is the value of --deployment-source without replication. Beside the names of workload clusters, it can also
// be [kubeconfig.HomeName].
const noSource = "none"

// replicationFlags are the flags of the replication of Deployments.
type replicationFlags struct {
	// source is the cluster whose Deployments are replicated, or noSource.
	source           string
	forbidden        []string
	createNamespaces bool
	// scalers are field managers whose spec.replicas is left alone, beside the default ones.
	scalers []string
}

func (f *replicationFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&f.source, "deployment-source", noSource, "`cluster` whose Deployments are replicated to the "+
		"others: home (the home cluster), the name of a workload cluster, or none")
	fs.StringSliceVar(&f.forbidden, "replication-forbidden-namespaces", nil,
		"`namespaces` from and to which no Deployment is "+
			"replicated in any cluster, beside kube-* and those of tenure: names, or beginnings of names and a *")
	fs.BoolVar(&f.createNamespaces, "create-namespaces", false,
		"make a namespace that a copy needs and that isn't there, "+
			"with the Pod Security labels of the source's")
	fs.StringSliceVar(&f.scalers, "replication-scalers", nil,
		"field `managers`, as kubectl get --show-managed-fields names them, that may set spec.replicas of a copy, beside "+
			strings.Join(replication.DefaultScalers, ", ")+" and who sets it by server-side apply")
}

// config returns the reconciler's configuration. namespace is that of Tenure's records in the home cluster.
func (f *replicationFlags) config(namespace string) replication.Config {
	// config/workload uses the default namespace in every cluster, whatever the namespace of the records is.
	own := []string{namespace, shard.DefaultNamespace}
	return replication.Config{
		Clock: clock.RealClock{}, CreateNamespaces: f.createNamespaces, ForbiddenNamespaces: slices.Concat(own, f.forbidden),
		Scalers: slices.Concat(replication.DefaultScalers, f.scalers),
	}
}

// validate reports a flag that makes no sense.
func (f *replicationFlags) validate() error {
	if problems := validation.IsDNS1123Subdomain(f.source); len(problems) > 0 {
		return fmt.Errorf("--deployment-source %q: must be home, none, or the name of a cluster: %s",
			f.source, strings.Join(problems, "; "))
	}
	if err := replication.ValidateForbidden(f.forbidden); err != nil {
		return fmt.Errorf("--replication-forbidden-namespaces: %w", err)
	}
	if f.source == noSource && (f.createNamespaces || len(f.forbidden) > 0 || len(f.scalers) > 0) {
		return errors.New("--create-namespaces, --replication-forbidden-namespaces and --replication-scalers: only with " +
			"--deployment-source, which names the cluster whose Deployments are replicated")
	}
	return nil
}

// copiesFrom reports whether the source of Deployments has shards here. Its copies may go to any cluster, so the state
// of all is needed then. A replica that takes the source over learns it within ten seconds.
func (o *options) copiesFrom(here func(cluster string) bool) bool {
	return o.replicates() && here(o.copying.source)
}

// replicates reports whether Deployments are replicated.
func (o *options) replicates() bool { return o.copying.source != noSource }

// isSource reports whether a cluster is the one whose Deployments are replicated.
func (o *options) isSource(cluster keyspace.ClusterName) bool {
	return o.replicates() && string(cluster) == o.copying.source
}

// homeCluster returns the home cluster's name among the workload clusters, "" if it isn't one.
func (o *options) homeCluster() multicluster.ClusterName {
	if o.copying.source == kubeconfig.HomeName {
		return kubeconfig.HomeName
	}
	return ""
}

// replicationKinds are what shards of the source cluster hold: its Deployments, and their copies in all the others.
func (o *options) replicationKinds() []shard.Kind {
	if !o.replicates() {
		return nil
	}
	source, copies := shard.Primary(&appsv1.Deployment{}), shard.Copies(&appsv1.Deployment{})
	source.In, copies.In = o.isSource, o.isSource
	source.Transform, copies.Transform = replication.TrimSource, replication.TrimCopy
	return []shard.Kind{source, copies}
}

// replicationReconciler builds the reconciler over these targets.
func (o *options) replicationReconciler(clusters replication.Clusters, to targets) (*replication.Reconciler, error) {
	config := o.copying.config(o.namespace)
	config.Clusters, config.Targets = clusters, to
	return replication.NewReconciler(config)
}

// allWorkers gives the source cluster all workers, since all Deployments belong to it. A target that answers late
// holds a worker for each of them.
const allWorkers = manyClusters * mostWorkers

func (o *options) replicationOptions() mccontroller.Options {
	return mccontroller.Options{MaxConcurrentReconciles: manyClusters * o.workers,
		RateLimiter: replication.NewRateLimiter()}
}

// addReplication adds the replication of Deployments to a sharded manager.
func (o *options) addReplication(mgr *shard.Manager, health *clusterhealth.Health, obs *observability) error {
	if !o.replicates() {
		return nil
	}
	r, err := o.replicationReconciler(obs.Clusters(mgr),
		targets{names: mgr.Clusters, putOff: mgr.PutOff, health: health, o: o, mgr: mgr})
	if err != nil {
		return err
	}
	seen := obs.Controller("replication", "Deployment")
	err = mcbuilder.ControllerManagedBy(mgr).Named("replication").
		WithOptions(seen.Options(o.replicationOptions(), allWorkers)).
		WatchesRawSource(mgr.For(&appsv1.Deployment{}, nil)).
		WatchesRawSource(mgr.WatchesCopies(&appsv1.Deployment{}, sourceOf)).
		WatchesRawSource(mgr.Sweep(&appsv1.Deployment{}, health.Changed())).
		Complete(mgr.Guard(seen.Traced(r)))
	if err != nil {
		return fmt.Errorf("setting up replication: %w", err)
	}
	return nil
}

// addStockReplication adds the replication to a leader-elected manager. breakers judge the provider's clusters.
func (o *options) addStockReplication(mgr mcmanager.Manager, provider *mckubeconfig.Provider, breakers *shard.Breakers,
	health *clusterhealth.Health, obs *observability) error {
	if !o.replicates() {
		return nil
	}
	putOff := func(name multicluster.ClusterName, namespace string) (time.Duration, bool) {
		cl, err := provider.Get(context.Background(), name) // it only looks it up
		if err != nil {
			return 0, false // the reconciler finds out when it works there
		}
		return breakers.PutOff(cl.GetConfig(), namespace)
	}
	source := multicluster.ClusterName(o.copying.source)
	var clusters replication.Clusters = obs.Clusters(mgr)
	if source == kubeconfig.HomeName {
		source, clusters = mcmanager.LocalCluster, homeByName{clusters}
	}
	r, err := o.replicationReconciler(clusters,
		targets{names: provider.ListClusters, putOff: putOff, health: health, o: o})
	if err != nil {
		return err
	}
	seen := obs.Controller("replication", "Deployment")
	return replication.SetupUnsharded(mgr, seen.Traced(fromHome(r)), source, health.Changed(),
		seen.Options(o.replicationOptions(), allWorkers))
}

// homeByName finds the home cluster by its name. A plain manager's own cluster has no name, but copies name the
// cluster of their source. Without the name, copies made without sharding wouldn't be known with sharding, and the
// other way round.
type homeByName struct{ replication.Clusters }

func (c homeByName) GetCluster(ctx context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	if name == kubeconfig.HomeName {
		name = mcmanager.LocalCluster
	}
	return c.Clusters.GetCluster(ctx, name)
}

// fromHome gives the home cluster its name in requests that come from it.
func fromHome(r mcreconcile.Reconciler) reconcile.TypedReconciler[mcreconcile.Request] {
	return reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.ClusterName == mcmanager.LocalCluster {
				req.ClusterName = kubeconfig.HomeName
			}
			return r.Reconcile(ctx, req)
		})
}

// sourceOf maps a copy to the key of its source.
func sourceOf(copied client.Object) []types.NamespacedName {
	if key, ok := replication.SourceOf(copied); ok {
		return []types.NamespacedName{key}
	}
	return nil
}

// targets are the clusters that Deployments can be copied to.
type targets struct {
	names  func() []multicluster.ClusterName
	putOff func(name multicluster.ClusterName, namespace string) (wait time.Duration, trial bool)
	health *clusterhealth.Health
	o      *options
	// mgr knows which names are of one cluster; nil without sharding, where each name counts as a cluster of its own.
	mgr *shard.Manager
}

func (t targets) Aliases() map[multicluster.ClusterName]multicluster.ClusterName {
	if t.mgr == nil {
		return nil
	}
	return t.mgr.Aliases()
}

func (t targets) Names() []multicluster.ClusterName {
	return slices.DeleteFunc(t.names(), func(name multicluster.ClusterName) bool {
		return t.o.isSource(keyspace.ClusterName(name))
	})
}

func (t targets) KeepsCopies(name multicluster.ClusterName) (keeps, known bool) {
	return t.health.KeepsCopies(string(name))
}

func (t targets) Usable(name multicluster.ClusterName) (bool, time.Time) {
	return t.health.Usable(string(name))
}

func (t targets) PutOff(name multicluster.ClusterName, namespace string) (time.Duration, bool) {
	return t.putOff(name, namespace)
}

func (t targets) RetryAfter(ctx context.Context, name multicluster.ClusterName) time.Duration {
	if t.mgr == nil {
		return 0 // the client has waited by itself
	}
	return t.mgr.RetryAfter(ctx, name)
}
