package coordinated

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

func RunBefore(ctx context.Context, home *rest.Config, provider multicluster.Provider, opts manager.Options,
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
