package elected

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	nop "sigs.k8s.io/multicluster-runtime/providers/nop"

	"github.com/tenure-dev/tenure/shard"
)

func RunAfter(ctx context.Context, config *rest.Config, opts manager.Options, pod string) error {
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
