// Package elected has the example of docs/library.md that works on one cluster. RunBefore uses leader election: only
// the leader reconciles. RunAfter is the same program without it: package shard divides the cluster's objects among all
// replicas.
package elected

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

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
