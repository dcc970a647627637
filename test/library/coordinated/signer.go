// Package coordinated has the example of docs/library.md that works on many clusters. RunBefore uses
// multicluster-runtime's sharded coordinator: each cluster belongs to one replica as a whole. RunAfter is the same
// program without it: package shard divides the objects of each cluster among all replicas.
package coordinated

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

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
