package load

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"github.com/tenure-dev/tenure/bench/load/feed"
	"github.com/tenure-dev/tenure/test/lab"
)

// Kubelets end every Pod that appears in a cluster.
type Kubelets struct {
	Cluster *Cluster
	// Workers is how many Pods may be ended at a time.
	Workers int
	// Pod is called for each change of a Pod.
	Pod func(cluster string, e feed.Event)
}

// Run plays the kubelets from a resourceVersion on, until the context ends.
func (k *Kubelets) Run(ctx context.Context, since string) error {
	// It is unbounded, so that the watch is never held up: a Pod that waits here is a slow kubelet, a watch that waits
	// would be cut off.
	queue := workqueue.NewTyped[Ref]()
	group, ctx := errgroup.WithContext(ctx)
	for range k.Workers {
		group.Go(func() error {
			for ref, over := queue.Get(); !over; ref, over = queue.Get() {
				if err := k.end(ctx, ref); err != nil && ctx.Err() == nil {
					return fmt.Errorf("ending Pod %s/%s in cluster %s: %w", ref.Namespace, ref.Name, ref.Cluster, err)
				}
				queue.Done(ref)
			}
			return nil
		})
	}
	group.Go(func() error {
		defer queue.ShutDown()
		return k.Cluster.Feed.Follow(ctx, feed.Pods, since, func(e feed.Event) {
			k.Pod(k.Cluster.Name, e)
			if e.Type == "ADDED" && e.Object.Status.Phase == "Pending" && e.Object.OwnedBy("At") { // others' Pods stay
				queue.Add(Ref{k.Cluster.Name, e.Object.Metadata.Namespace, e.Object.Metadata.Name})
			}
		})
	})
	return group.Wait()
}

// endAttempts is how many times the write that ends a Pod is tried. Like a kubelet, it doesn't give up at the first
// timeout.
const endAttempts = 5

func (k *Kubelets) end(ctx context.Context, ref Ref) error {
	for attempt := 1; ; attempt++ {
		err := k.Cluster.endPod(ctx, ref.Namespace, ref.Name)
		if err == nil || feed.IsStatus(err, http.StatusNotFound) {
			return nil
		}
		if attempt == endAttempts {
			return err
		}
		if err := lab.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
