package coordinated

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/tenure-dev/tenure/shard"
)

func RunAfter(ctx context.Context, home *rest.Config, provider multicluster.Provider, opts manager.Options,
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
