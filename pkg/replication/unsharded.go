package replication

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// SetupUnsharded adds a Reconciler to a plain multicluster-runtime manager. Sources live in the named cluster ("" is
// the manager's own), copies in all others. Each value from changed enqueues all sources: send one when a cluster
// comes, goes, or becomes usable again. A nil or closed channel never does.
func SetupUnsharded(mgr mcmanager.Manager, r reconcile.TypedReconciler[mcreconcile.Request],
	home multicluster.ClusterName,
	changed <-chan struct{}, options mccontroller.Options) error {
	all := source.TypedFunc[mcreconcile.Request](func(ctx context.Context, q queue) error {
		go enqueueAll(ctx, mgr, home, changed, q)
		return nil
	})
	err := mcbuilder.ControllerManagedBy(mgr).Named("replication").
		WithOptions(options).
		Watches(&appsv1.Deployment{}, eventsOf(home), mcbuilder.WithEngageWithLocalCluster(home == "")).
		WatchesRawSource(all).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up replication: %w", err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// eventsOf maps the events of all clusters to sources.
func eventsOf(home multicluster.ClusterName) mchandler.TypedEventHandlerFunc[client.Object, mcreconcile.Request] {
	return func(name multicluster.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object,
		mcreconcile.Request] {
		add := func(q queue, objects ...client.Object) {
			for _, o := range objects {
				if key, ok := concerned(o, name == home); ok {
					q.Add(request(home, key))
					return // Old and new have one key.
				}
			}
		}
		return handler.TypedFuncs[client.Object, mcreconcile.Request]{
			CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], q queue) { add(q, e.Object) },
			// The old object counts too, since somebody may have removed all our keys.
			UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], q queue) {
				add(q, e.ObjectNew, e.ObjectOld)
			},
			DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) { add(q, e.Object) },
		}
	}
}

// concerned returns the source that an event is about, if any.
func concerned(o client.Object, atHome bool) (types.NamespacedName, bool) {
	if atHome {
		d, _ := o.(*appsv1.Deployment)
		left := d != nil && Condition(d) != nil
		return client.ObjectKeyFromObject(o), left || IsSource(o)
	}
	return SourceOf(o)
}

func request(home multicluster.ClusterName, key types.NamespacedName) mcreconcile.Request {
	return mcreconcile.Request{ClusterName: home, Request: reconcile.Request{NamespacedName: key}}
}

// listTimeout bounds a list of the sources, and is the time until the next try. A list waits until the cache is filled,
// which never happens if the provider has just dropped the cluster.
const listTimeout = 5 * time.Second

// enqueueAll enqueues all sources on each value from changed, until the context ends.
func enqueueAll(ctx context.Context, mgr mcmanager.Manager, home multicluster.ClusterName,
	changed <-chan struct{}, q queue) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-changed:
			if !open {
				changed = nil
				continue
			}
		case <-again:
		}
		again = nil
		cl, err := mgr.GetCluster(ctx, home)
		if err != nil {
			continue // its sources are enqueued when it comes
		}
		list := &appsv1.DeploymentList{}
		if err := listWithin(ctx, cl.GetClient(), list); err != nil {
			mgr.GetLogger().Error(err, "sources can't be listed; trying again", "cluster", string(home))
			again = time.After(listTimeout)
			continue
		}
		for i := range list.Items {
			if key, ok := concerned(&list.Items[i], true); ok {
				q.Add(request(home, key))
			}
		}
	}
}

func listWithin(ctx context.Context, from client.Reader, into client.ObjectList) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return from.List(ctx, into)
}
