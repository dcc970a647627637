package elected

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func RunBefore(ctx context.Context, config *rest.Config, opts manager.Options, pod string) error {
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
