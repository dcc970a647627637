// Package after is the program of package before without the coordinator: package shard divides the objects of each
// cluster among all replicas.
package after

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/shard"
)

func Run(ctx context.Context, home *rest.Config, provider multicluster.Provider, opts manager.Options,
	pod string) error {
	mgr, err := shard.NewManager(home, provider, opts, shard.Config{
		Replica: pod,
		Kinds:   []shard.Kind{shard.Primary(&corev1.ConfigMap{})},
	})
	if err != nil {
		return err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("signer").
		WatchesRawSource(mgr.For(&corev1.ConfigMap{}, nil)).
		Complete(mgr.Guard(&signer{mgr, pod}))
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
