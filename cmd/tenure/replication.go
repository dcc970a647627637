package main

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mckubeconfig "sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tenure-dev/tenure/pkg/clusterhealth"
	"github.com/tenure-dev/tenure/pkg/replication"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Values of --deployment-source that aren't the name of a workload cluster.
const (
	homeName = "home" // also the home cluster's name then
	noSource = "none"
)

// replicates reports whether Deployments are replicated.
func (o *options) replicates() bool { return o.deploymentSource != noSource }

// isSource tells the cluster whose Deployments are replicated.
func (o *options) isSource(cluster keyspace.ClusterName) bool {
	return o.replicates() && string(cluster) == o.deploymentSource
}

// homeCluster is the home cluster's name among the workload clusters, "" if it isn't one.
func (o *options) homeCluster() multicluster.ClusterName {
	if o.deploymentSource == homeName {
		return homeName
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
	copies.Transform = replication.TrimCopy
	return []shard.Kind{source, copies}
}

// replicationReconciler builds the reconciler over the clusters that names lists.
func (o *options) replicationReconciler(clusters replication.Clusters, names func() []multicluster.ClusterName, health *clusterhealth.Health) (*replication.Reconciler, error) {
	return replication.NewReconciler(replication.Config{
		Clusters: clusters, Targets: targets{names, health, o}, Clock: clock.RealClock{},
	})
}

func (o *options) replicationOptions() mccontroller.Options {
	return mccontroller.Options{MaxConcurrentReconciles: o.workers, RateLimiter: replication.NewRateLimiter()}
}

// addReplication adds the replication of Deployments to a sharded manager.
func (o *options) addReplication(mgr *shard.Manager, health *clusterhealth.Health, see *sight) error {
	if !o.replicates() {
		return nil
	}
	r, err := o.replicationReconciler(see.Clusters(mgr), mgr.Clusters, health)
	if err != nil {
		return err
	}
	seen := see.Controller("replication", "Deployment")
	err = mcbuilder.ControllerManagedBy(mgr).Named("replication").
		WithOptions(seen.Options(o.replicationOptions(), o.workers)).
		WatchesRawSource(mgr.For(&appsv1.Deployment{}, nil)).
		WatchesRawSource(mgr.WatchesCopies(&appsv1.Deployment{}, sourceOf)).
		WatchesRawSource(mgr.Sweep(&appsv1.Deployment{}, health.Changed())).
		Complete(mgr.Guard(seen.Traced(r)))
	if err != nil {
		return fmt.Errorf("setting up replication: %w", err)
	}
	return nil
}

// addStockReplication adds it to a leader-elected manager.
func (o *options) addStockReplication(mgr mcmanager.Manager, provider *mckubeconfig.Provider, health *clusterhealth.Health, see *sight) error {
	if !o.replicates() {
		return nil
	}
	r, err := o.replicationReconciler(see.Clusters(mgr), provider.ListClusters, health)
	if err != nil {
		return err
	}
	source := multicluster.ClusterName(o.deploymentSource)
	if source == homeName {
		source = mcmanager.LocalCluster
	}
	seen := see.Controller("replication", "Deployment")
	return replication.SetupUnsharded(mgr, seen.Traced(r), source, health.Changed(), seen.Options(o.replicationOptions(), o.workers))
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
	health *clusterhealth.Health
	o      *options
}

func (t targets) Names() []multicluster.ClusterName {
	return slices.DeleteFunc(t.names(), func(name multicluster.ClusterName) bool { return t.o.isSource(keyspace.ClusterName(name)) })
}

func (t targets) Usable(name multicluster.ClusterName) (bool, time.Time) {
	return t.health.Usable(string(name))
}
