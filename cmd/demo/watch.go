package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
	"github.com/tenure-dev/tenure/test/lab"
)

// pollEvery is how often logs and metrics of the replicas are read.
const pollEvery = 250 * time.Millisecond

// observe feeds the board until the context ends: one watch of the Shards, one of the Ats of each cluster, and the
// replicas' own logs and metrics.
func observe(ctx context.Context, f *lab.Fleet, b *board) error {
	group, ctx := errgroup.WithContext(ctx)
	follow := func(cluster string, of client.Object, on func(any)) {
		group.Go(func() error { return watch(ctx, f, cluster, of, on) })
	}
	follow(homeCluster, &tenurev1alpha1.Shard{}, func(o any) {
		if s, ok := o.(*tenurev1alpha1.Shard); ok && s.Spec.Layout == nil {
			b.setShard(s)
		}
	})
	for _, name := range workloadClusters {
		follow(name, &cnatv1alpha1.At{}, func(o any) {
			if at, ok := o.(*cnatv1alpha1.At); ok {
				b.setAt(name, at)
			}
		})
	}
	for _, name := range append([]string{homeCluster}, workloadClusters...) {
		follow(name, &appsv1.Deployment{}, func(o any) {
			if d, ok := o.(*appsv1.Deployment); ok && d.Namespace == sourceNamespace {
				b.setDeployment(name, d)
			}
		})
	}
	read := map[*lab.Replica]int{} // lines
	for lab.Sleep(ctx, pollEvery) == nil {
		for _, r := range b.allReplicas() {
			read[r] = poll(ctx, b, r, read[r])
		}
	}
	_ = group.Wait() // the context's cause is the first error, or why we were told to stop
	if err := context.Cause(ctx); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// errDone is the cause of a context that is over because its work is.
var errDone = errors.New("done")

// watch calls on with every version of the objects until the context ends.
func watch(ctx context.Context, f *lab.Fleet, cluster string, of client.Object, on func(any)) error {
	config := f.Planes.Cluster(cluster).RESTConfig()
	config.UserAgent = "demo"
	c, err := cache.New(config, cache.Options{Scheme: f.Client(cluster).Scheme()})
	if err != nil {
		return fmt.Errorf("preparing to watch %T in cluster %s: %w", of, cluster, err)
	}
	informer, err := c.GetInformer(ctx, of, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: on,
			UpdateFunc: func(_, o any) { on(o) }})
	}
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("watching %T in cluster %s: %w", of, cluster, err)
	}
	return nil
}

// poll reads the lines of a replica's log after the first read ones, and its metrics. It returns how many lines
// have been read by now.
func poll(ctx context.Context, b *board, r *lab.Replica, read int) int {
	lines, err := r.Log.Lines()
	if err != nil {
		return read // try again the next time
	}
	for _, l := range lines[read:] {
		if l.Activation() {
			b.activated(l)
		}
		if l.Lapse() {
			b.lapsed(l.Incarnation, l.Time)
		}
	}
	if r.Ended() {
		return len(lines)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if m, err := r.Metrics(ctx); err == nil { // a replica that starts, hangs or dies doesn't answer: the table shows it
		b.setFigures(r.Name, figuresOf(m))
	}
	return len(lines)
}

// figures are what the demo shows of a replica's metrics.
type figures struct{ queue, reconciled int }

// figuresOf reads them; what a replica has not counted yet is zero.
func figuresOf(m lab.Metrics) (f figures) {
	for _, ours := range []string{"at", "replication"} { // the controllers
		queue, _ := m.Sum("workqueue_depth", map[string]string{"name": ours}) // one series per priority
		reconciled, _ := m.Sum("controller_runtime_reconcile_total", map[string]string{"controller": ours})
		f.queue, f.reconciled = f.queue+int(queue), f.reconciled+int(reconciled)
	}
	return f
}
