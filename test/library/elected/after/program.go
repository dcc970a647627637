// Package after is the program of package before without leader election: package shard divides the cluster's objects
// among all replicas.
package after

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	nop "sigs.k8s.io/multicluster-runtime/providers/nop"

	"github.com/tenure-dev/tenure/shard"
)

func Run(ctx context.Context, config *rest.Config, opts manager.Options, pod string) error {
	mgr, err := shard.NewManager(config, nop.New(), opts, shard.Config{
		Replica:     pod,
		Kinds:       []shard.Kind{shard.Primary(&corev1.ConfigMap{})},
		HomeCluster: "home", // the cluster of the records is the one that is worked on
	})
	if err != nil {
		return err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("signer").
		WatchesRawSource(mgr.For(&corev1.ConfigMap{}, nil)).
		Complete(mgr.Guard(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			cl, err := mgr.GetCluster(ctx, req.ClusterName)
			if err != nil {
				return reconcile.Result{}, err
			}
			return (&signer{cl.GetClient(), pod}).Reconcile(ctx, req.Request)
		})))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// signer writes a name on ConfigMaps.
type signer struct {
	client.Client
	name string
}

func (s *signer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cm := &corev1.ConfigMap{}
	if err := s.Get(ctx, req.NamespacedName, cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cm.Namespace != "default" || cm.Data["signed-by"] == s.name {
		return reconcile.Result{}, nil
	}
	cm.Data = map[string]string{"signed-by": s.name}
	return reconcile.Result{}, s.Update(ctx, cm)
}
