// Package before is the example of docs/library.md that works on one cluster with leader election: only the leader
// reconciles. Package after is the same program, sharded.
package before

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func Run(ctx context.Context, config *rest.Config, opts manager.Options, pod string) error {
	opts.LeaderElection, opts.LeaderElectionID = true, "signer"
	mgr, err := manager.New(config, opts)
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("signer").
		For(&corev1.ConfigMap{}).
		Complete(&signer{mgr.GetClient(), pod})
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
