package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// podRuns is how long a Pod of the load runs.
const podRuns = 500 * time.Millisecond

// playKubelets ends each Pod of the load after podRuns, with one write, until the context ends. A scheduler and KWOK
// need four writes, which one machine's API servers can't bear beside the load. In clusters that a fleet serves they
// run elsewhere.
func (r *run) playKubelets(ctx context.Context, wait *sync.WaitGroup) error {
	for _, cluster := range r.fleet.Workloads() {
		config := r.fleet.Planes.Cluster(cluster).RESTConfig()
		config.UserAgent, config.QPS = "chaos kubelets", -1
		mgr, err := newKubelets(config)
		if err != nil {
			return fmt.Errorf("playing the kubelets of %s: %w", cluster, err)
		}
		wait.Go(func() {
			if err := mgr.Start(ctx); err != nil {
				r.blame(fmt.Errorf("playing the kubelets of %s: %w", cluster, err))
			}
		})
	}
	return nil
}

func newKubelets(config *rest.Config) (manager.Manager, error) {
	mgr, err := manager.New(config, manager.Options{
		Scheme: clientgoscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{atNamespace: {}}},
	})
	if err != nil {
		return nil, err
	}
	skip := true // skip the check that names are unique: each cluster has one of this name
	return mgr, builder.ControllerManagedBy(mgr).Named("kubelets").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 16, SkipNameValidation: &skip,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				100*time.Millisecond, 5*time.Second),
		}).
		Watches(&corev1.Pod{}, handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent,
			q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}, podRuns)
		}}).
		Complete(kubelets{mgr.GetClient()})
}

// kubelets simulates kubelets: it ends Pods.
type kubelets struct{ client client.Client }

// Reconcile implements reconcile.Reconciler.
func (k kubelets) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Status.Phase != corev1.PodPending {
		return reconcile.Result{}, nil
	}
	ended := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
	return reconcile.Result{}, client.IgnoreNotFound(k.client.Status().Patch(ctx, pod, ended))
}
