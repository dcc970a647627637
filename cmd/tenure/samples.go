package main

import (
	"context"
	"strings"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/samples"
)

// recordSamples makes the controller write one sample for each reconcile, if a file was asked for.
func (o *options) recordSamples(mgr interface{ Add(manager.Runnable) error }, to *mccontroller.Options) error {
	if o.benchSamples == "" {
		return nil
	}
	file, err := samples.Create(o.benchSamples)
	if err != nil {
		return err
	}
	to.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
		return samples.NewQueue(file, sampleKey, limiter,
			func(l workqueue.TypedRateLimiter[mcreconcile.Request]) priorityqueue.PriorityQueue[mcreconcile.Request] {
				return priorityqueue.New(name, func(po *priorityqueue.Opts[mcreconcile.Request]) { po.RateLimiter = l })
			})
	}
	return mgr.Add(atTheEnd(file.Err))
}

// sampleKey names the object by its real cluster, whatever shard it is seen through.
func sampleKey(req mcreconcile.Request) uint64 {
	cluster, _, _ := strings.Cut(string(req.ClusterName), "/")
	return samples.KeyOf(cluster, req.Namespace, req.Name)
}

// atTheEnd is a runnable that tells at the end of the manager whether something went wrong.
type atTheEnd func() error

func (f atTheEnd) Start(ctx context.Context) error {
	<-ctx.Done()
	return f()
}

// NeedLeaderElection says that it runs in standbys too.
func (atTheEnd) NeedLeaderElection() bool { return false }
