// Package cycles tests package engage against a real API server: what it writes, and that it leaves nothing behind.
package cycles

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	cnatv1alpha1 "github.com/tenure-dev/tenure/pkg/apis/cnat/v1alpha1"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab/localplane"
	"github.com/tenure-dev/tenure/test/must"
)

var (
	cycles    = flag.Int("cycles", 0, "engage and disengage so many times; 0: for as long as -cycle-time")
	cycleTime = flag.Duration("cycle-time", 25*time.Second, "how long to engage and disengage where -cycles is 0")
)

// connected returns a connection to an API server of its own, which knows Ats.
func connected(t *testing.T) (cluster.Cluster, *engage.Connection) {
	t.Helper()
	planes, err := localplane.Start(t.Context(), localplane.Config{Clusters: []localplane.ClusterConfig{{Name: "west"}}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = planes.Stop() })
	config := planes.Cluster("west").RESTConfig()
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "..", "..", "config", "crd",
			"cnat.programming-kubernetes.info_ats.yaml")},
		ErrorIfPathMissing: true,
	})
	must.Succeed(t, err)
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, cnatv1alpha1.AddToScheme} {
		must.Succeed(t, add(scheme))
	}
	real, err := cluster.New(config, func(o *cluster.Options) { o.Scheme = scheme })
	must.Succeed(t, err)
	connection, err := engage.Connect(real)
	must.Succeed(t, err)
	return real, connection
}

// TestEngagingAndDisengagingAShardLeavesNothingBehind opens a shard, fills its caches, attaches handlers, opens its
// gate, and takes it all away again, over and over.
func TestEngagingAndDisengagingAShardLeavesNothingBehind(t *testing.T) {
	real, connection := connected(t)
	for i := range 20 {
		at := &cnatv1alpha1.At{Spec: cnatv1alpha1.AtSpec{
			Schedule: time.Now().Add(time.Hour).UTC().Format(time.RFC3339), Command: "true",
		}}
		at.Namespace, at.Name = "default", fmt.Sprint("at-", i)
		must.Succeed(t, real.GetClient().Create(t.Context(), at))
	}
	one := func() {
		t.Helper()
		must.Succeed(t, cycle(t.Context(), connection))
	}
	for range 50 { // what is made once, and pools, have settled by then
		one()
	}
	goroutines, heap := measured()
	began := time.Now()
	n := 0
	for ; n < *cycles || (*cycles == 0 && time.Since(began) < *cycleTime); n++ {
		one()
	}
	took := time.Since(began)
	goroutinesNow, heapNow := measured()
	for range 20 { // on a busy machine what is on its way out takes its time
		if goroutinesNow <= goroutines+10 {
			break
		}
		goroutinesNow, heapNow = measured()
	}
	t.Logf("%d cycles in %v (%.0f a second): goroutines %d -> %d, heap %.2f -> %.2f MiB", n, took.Round(time.Millisecond),
		float64(n)/took.Seconds(), goroutines, goroutinesNow, mib(heap), mib(heapNow))
	if goroutinesNow > goroutines+10 {
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines after %d cycles, %d before\n%s", goroutinesNow, n, goroutines, buf[:runtime.Stack(buf, true)])
	}
	if heapNow > heap+4<<20 {
		t.Errorf("the heap grew from %.2f to %.2f MiB in %d cycles", mib(heap), mib(heapNow), n)
	}
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// measured waits for what is on its way out, and counts what stays.
func measured() (goroutines int, heap uint64) {
	for last := -1; ; {
		time.Sleep(300 * time.Millisecond)
		runtime.GC()
		goroutines = runtime.NumGoroutine()
		if goroutines == last {
			break
		}
		last = goroutines
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return goroutines, stats.HeapAlloc
}

// cycle is the life of one engagement.
func cycle(ctx context.Context, real *engage.Connection) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix, err := keyspace.ParsePrefix("01")
	if err != nil {
		return err
	}
	gate := engage.NewGate(ctx, keyspace.ShardID{Cluster: "west", Prefix: prefix}, "tenure/test", "cycle-1",
		func() bool { return true })
	c, err := engage.Open(real, gate, &engage.Traffic{}, engage.Options{
		Kinds: []engage.Kind{{Object: &cnatv1alpha1.At{}}, {Object: &corev1.Pod{}, Owned: true}},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	if err := c.Warm(ctx); err != nil {
		return err
	}
	informer, err := c.GetCache().GetInformer(ctx, &cnatv1alpha1.At{})
	if err != nil {
		return err
	}
	// As in a replica, nobody removes the handler: it has to end with the cache.
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
		return err
	}
	gate.Open(1)
	gate.Run(ctx, &engage.Traffic{}, func(context.Context) {})
	if err := gate.Drain(ctx, time.Second, time.Second); err != nil {
		return err
	}
	cancel()
	return <-ended
}
