package shard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"github.com/tenure-dev/tenure/shard"
)

// A controller of ConfigMaps, each of which owns a Secret, in all clusters whose kubeconfigs are Secrets of the home
// cluster.
func Example() {
	ctrl.SetLogger(klog.Background()) // says also what is refused
	ctx := ctrl.SetupSignalHandler()
	provider := kubeconfig.New(kubeconfig.Options{Namespace: shard.DefaultNamespace})
	opts := manager.Options{Scheme: scheme.Scheme, Cache: cache.Options{ // of home: more may not be read there
		DefaultNamespaces: map[string]cache.Config{shard.DefaultNamespace: {}},
	}}
	mgr, err := shard.NewManager(ctrl.GetConfigOrDie(), provider, opts, shard.Config{
		Replica: os.Getenv("POD_NAME"),
		Kinds:   []shard.Kind{shard.Primary(&corev1.ConfigMap{}), shard.Owned(&corev1.Secret{})},
	})
	if err != nil {
		panic(err)
	}
	reconciler := mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
		cluster, err := mgr.GetCluster(ctx, req.ClusterName) // the shard's view of it
		if err != nil {
			return ctrl.Result{}, err
		}
		cm := &corev1.ConfigMap{}
		if err := cluster.GetClient().Get(ctx, req.NamespacedName, cm); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		// What is written through this client carries the shard and its epoch.
		return ctrl.Result{}, nil
	})
	err = mcbuilder.ControllerManagedBy(mgr).Named("example").
		WatchesRawSource(mgr.For(&corev1.ConfigMap{}, nil)).
		WatchesRawSource(mgr.Owns(&corev1.Secret{}, &corev1.ConfigMap{})).
		Complete(mgr.Guard(reconciler))
	if err = errors.Join(err, provider.SetupWithManager(ctx, mgr)); err != nil {
		panic(err)
	}
	if err := mgr.Start(ctx); err != nil { // hands its shards over before it returns
		panic(err)
	}
}

// All that is wrong is reported at once, by the names of the fields.
func ExampleConfig_Validate() {
	fmt.Println(shard.Config{Replica: "web-0", LeaseDuration: 100 * time.Millisecond, ShardBits: 9}.Validate())
	// Output:
	// Kinds is empty: name at least the kind that your controller is For
	// ShardBits 9: must be 0 to 8
	// LeaseDuration 100ms: must be at least 1s, or renewals alone would load the home cluster
}

// Outside of a guarded reconcile there is no tenure.
func ExampleTenureOf() {
	_, _, ok := shard.TenureOf(context.Background())
	fmt.Println(ok)
	// Output: false
}
