// Package before is the example of docs/library.md that works on many clusters with multicluster-runtime's sharded
// coordinator: each cluster belongs to one replica as a whole. Package after is the same program with package shard.
package before

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

func Run(ctx context.Context, home *rest.Config, provider multicluster.Provider, opts manager.Options,
	pod string) error {
	leases, err := client.New(home, client.Options{})
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(home, provider, opts, mcmanager.WithCoordinator(sharded.New(leases, opts.Logger)))
	if err != nil {
		return err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("signer").
		For(&corev1.ConfigMap{}).
		Complete(&signer{mgr, pod})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// signer writes a name on ConfigMaps.
type signer struct {
	clusters mcmanager.Manager
	name     string
}

func (s *signer) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	cl, err := s.clusters.GetCluster(ctx, req.ClusterName)
	if err != nil {
		return reconcile.Result{}, err
	}
	cm := &corev1.ConfigMap{}
	if err := cl.GetClient().Get(ctx, req.NamespacedName, cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cm.Namespace != "default" || cm.Data["signed-by"] == s.name {
		return reconcile.Result{}, nil
	}
	cm.Data = map[string]string{"signed-by": s.name}
	return reconcile.Result{}, cl.GetClient().Update(ctx, cm)
}
