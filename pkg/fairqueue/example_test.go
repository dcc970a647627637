package fairqueue_test

import (
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// A busy cluster was there first, and the other isn't behind all of its keys.
func Example() {
	type key struct{ cluster, name string }
	queue := fairqueue.New(fairqueue.Options[key]{
		Limiter: workqueue.DefaultTypedControllerRateLimiter[key](),
		Tenant:  func(k key) (cluster, namespace string) { return k.cluster, "default" },
	})
	defer queue.ShutDown()
	for _, k := range []key{{"busy", "a"}, {"busy", "b"}, {"busy", "c"}, {"quiet", "d"}} {
		queue.Add(k)
	}
	for range 4 {
		k, _ := queue.Get()
		fmt.Println(k.cluster, k.name)
		queue.Done(k)
	}
	// Output:
	// busy a
	// quiet d
	// busy b
	// busy c
}

// A sharded controller of package shard: at most 16 of its 128 workers have keys of one cluster, in all of its shards
// together, and four more have keys of namespaces that had no worker.
func ExampleNew_sharded() {
	const workers = 128
	_ = mccontroller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue: func(name string,
			limiter workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
			return fairqueue.New(fairqueue.Options[mcreconcile.Request]{
				Name: name, Limiter: limiter, Workers: workers, PerCluster: 16,
				Tenant: func(r mcreconcile.Request) (cluster, namespace string) {
					if shard, err := keyspace.ParseShardID(string(r.ClusterName)); err == nil {
						return string(shard.Cluster), r.Namespace
					}
					return string(r.ClusterName), r.Namespace
				},
				Part: func(r mcreconcile.Request) string { return string(r.ClusterName) },
			})
		},
	}
}

// A controller's own queue: at most 16 of its 128 workers have keys of one namespace, which is the tenant here.
func ExampleNew() {
	const workers = 128
	_ = controller.Options{
		MaxConcurrentReconciles: workers,
		NewQueue: func(name string,
			limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return fairqueue.New(fairqueue.Options[reconcile.Request]{
				Name: name, Limiter: limiter, Workers: workers, PerCluster: 16,
				Tenant: func(r reconcile.Request) (cluster, namespace string) { return r.Namespace, r.Namespace },
			})
		},
	}
}
