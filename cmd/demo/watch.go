package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	tenurev1alpha1 "github.com/tenure-dev/tenure/pkg/apis/tenure/v1alpha1"
)

// pollEvery is how often logs and metrics of the replicas are read.
const pollEvery = 250 * time.Millisecond

// observe feeds the board until the context ends: one watch of the Shards, one of the Ats of each cluster, and the
// replicas' own logs and metrics.
func observe(ctx context.Context, f *fleet, b *board) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	defer group.Wait()
	watch := func(cluster string, of client.Object, on func(any)) {
		group.Go(func() {
			if err := f.watch(ctx, cluster, of, on); err != nil {
				cancel(err)
			}
		})
	}
	watch(homeCluster, &tenurev1alpha1.Shard{}, func(o any) {
		if s, ok := o.(*tenurev1alpha1.Shard); ok {
			b.setShard(s)
		}
	})
	for _, name := range workloadClusters {
		watch(name, &cnatv1alpha1.At{}, func(o any) {
			if at, ok := o.(*cnatv1alpha1.At); ok {
				b.setAt(name, at)
			}
		})
	}
	for _, name := range append([]string{homeCluster}, workloadClusters...) {
		watch(name, &appsv1.Deployment{}, func(o any) {
			if d, ok := o.(*appsv1.Deployment); ok && d.Namespace == sourceNamespace {
				b.setDeployment(name, d)
			}
		})
	}
	tails := map[string]*tail{}
	for {
		for _, r := range b.allReplicas() {
			poll(ctx, b, r, tails)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			if errors.Is(err, errDone) {
				return nil
			}
			return err
		}
	}
}

// errDone is the cause of a context that is over because its work is.
var errDone = errors.New("done")

// watch tells of every version of the objects until the context ends.
func (f *fleet) watch(ctx context.Context, cluster string, of client.Object, on func(any)) error {
	config := f.planes.Cluster(cluster).RESTConfig()
	config.UserAgent = "demo"
	c, err := cache.New(config, cache.Options{Scheme: f.clients[cluster].Scheme()})
	if err != nil {
		return fmt.Errorf("preparing to watch %T in cluster %s: %w", of, cluster, err)
	}
	informer, err := c.GetInformer(ctx, of, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: on, UpdateFunc: func(_, o any) { on(o) }})
	}
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("watching %T in cluster %s: %w", of, cluster, err)
	}
	return nil
}

// poll reads what is new in a replica's log, and its metrics.
func poll(ctx context.Context, b *board, r *replica, tails map[string]*tail) {
	if tails[r.name] == nil {
		tails[r.name] = &tail{path: r.logPath}
	}
	for line := range bytes.Lines(tails[r.name].next()) {
		if a, ok := parseActivation(line); ok {
			b.activated(a)
		}
		if incarnation, at, ok := parseLapse(line); ok {
			b.lapsed(incarnation, at)
		}
	}
	if r.ended() {
		return
	}
	if figures, err := r.ask(ctx); err == nil { // a replica that starts, hangs or dies doesn't answer: the table shows it
		b.setFigures(r.name, figures)
	}
}

// tail follows a file that another process appends to.
type tail struct {
	path   string
	offset int64
}

// next returns the whole lines since the last call. What can't be read now is read at the next call.
func (t *tail) next() []byte {
	file, err := os.Open(t.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if _, err := file.Seek(t.offset, io.SeekStart); err != nil {
		return nil
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	t.offset += int64(len(content))
	return content
}
