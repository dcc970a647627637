package library

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/test/lab/labtest"
	"github.com/tenure-dev/tenure/test/must"
)

// hanging doesn't answer requests that make Secrets, until they are cancelled.
type hanging struct {
	http.RoundTripper
	sent *atomic.Int64
}

func (h hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") {
		h.sent.Add(1)
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return h.RoundTripper.RoundTrip(req)
}

// TestWhatNeverReturnsCostsItsShardOnly has a reconcile in each shard that never returns, as many as there are workers
// but one, and beside them a write that is never answered. Then a replica joins that one of the shards has to move to.
func TestWhatNeverReturnsCostsItsShardOnly(t *testing.T) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})))
	planes, west := startPlanes(t)
	stuck := oneInEachShard(t, west)
	s := &signers{as: "signed-by", running: map[string]string{}}
	release, late := make(chan struct{}), make(chan error, len(stuck))
	posted := &atomic.Int64{}
	connection := rest.CopyConfig(planes.Cluster("west").RESTConfig())
	connection.Wrap(func(inner http.RoundTripper) http.RoundTripper { return hanging{inner, posted} })
	stop, a := startWith(t, planes, "a", connection, withWorkers(len(stuck)+1),
		func(mgr *shard.Manager) reconcile.TypedReconciler[mcreconcile.Request] {
			inner := s.sign("a", mgr)
			return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
				if stuck[req.Name] == "" || req.Namespace != "default" {
					return inner.Reconcile(ctx, req)
				}
				cl, err := mgr.GetCluster(ctx, req.ClusterName)
				if err != nil {
					return ctrl.Result{}, err
				}
				go func() { // as a recorder does
					secret := &corev1.Secret{}
					secret.Namespace, secret.Name = "default", "never-"+req.Name
					_ = cl.GetClient().Create(context.Background(), secret)
				}()
				<-release
				cm := &corev1.ConfigMap{}
				if err := cl.GetAPIReader().Get(context.WithoutCancel(ctx), req.NamespacedName, cm); err != nil {
					late <- err
					return ctrl.Result{}, nil
				}
				cm.Data = map[string]string{"signed-by": "the past"}
				late <- cl.GetClient().Update(context.WithoutCancel(ctx), cm)
				return ctrl.Result{}, nil
			})
		})
	defer stop()
	labtest.Until(t, "a has signed all but those that are stuck", func() bool {
		return signatures(t, west, "signed-by")["a"] == objects-len(stuck) && posted.Load() == int64(len(stuck))
	})
	before := a.Status()
	startReplica(t, planes, "b", ownSources, s)
	slowest := time.Duration(0)
	labtest.Until(t, "b has one of the shards", func() bool {
		slowest = max(slowest, signsAgain(t, west, a, stuck)) // while it drains the one, a serves the other
		by := signatures(t, west, "signed-by")
		return by["b"] > 0 && by["a"]+by["b"] == objects-len(stuck)+1
	})
	t.Logf("meanwhile a's other shard was served within %v", slowest)
	after := a.Status()
	if after.Incarnation != before.Incarnation || !after.Member {
		t.Errorf("a was %s and is %s, member: %t", before.Incarnation, after.Incarnation, after.Member)
	}
	if w := after.Clusters["west"]; w.Abandoned != 1 || w.UnansweredWrites == 0 {
		t.Errorf("a counts %d abandoned reconciles and %d unanswered writes, want 1 and some", w.Abandoned,
			w.UnansweredWrites)
	}
	if slowest == 0 {
		t.Error("a's other shard wasn't seen served while the one drained: the test has tested nothing")
	}
	if slowest >= drainTimeout { // it waited for the one that drains
		t.Errorf("a's other shard was served only after %v", slowest)
	}
	close(release)
	fenced := 0
	for range stuck {
		if errors.Is(<-late, shard.ErrFenced) {
			fenced++
		}
	}
	if fenced != 1 {
		t.Errorf("%d late writes were fenced, want that of the shard that moved", fenced)
	}
	labtest.Until(t, "nothing is abandoned any more", func() bool { return a.Status().Clusters["west"].Abandoned == 0 })
	if len(s.clashes) > 0 {
		t.Errorf("two replicas at one key: %v", s.clashes)
	}
}

// signsAgain takes the signature off an object of a shard that the replica serves, and returns how long it takes
// until it is back; 0 if there is no such object.
func signsAgain(t *testing.T, west client.Client, by *shard.Manager, stuck map[string]string) time.Duration {
	t.Helper()
	list := &corev1.ConfigMapList{}
	must.Succeed(t, west.List(t.Context(), list, client.InNamespace("default")))
	active := func(uid string) bool {
		return slices.ContainsFunc(by.Status().Shards,
			func(s shard.ShardStatus) bool { return s.Phase == "active" && s.ID.Contains(uid) })
	}
	for _, cm := range list.Items {
		if stuck[cm.Name] != "" || !strings.HasPrefix(cm.Name, "cm-") || !active(string(cm.UID)) {
			continue
		}
		cm.Data = nil
		began := time.Now()
		if err := west.Update(t.Context(), &cm); err != nil {
			return 0 // it was about to be signed by another
		}
		for cm.Data["signed-by"] == "" && time.Since(began) < 2*drainTimeout {
			time.Sleep(5 * time.Millisecond)
			must.Succeed(t, west.Get(t.Context(), client.ObjectKeyFromObject(&cm), &cm))
		}
		if !active(string(cm.UID)) {
			return 0 // it moved meanwhile
		}
		return time.Since(began)
	}
	return 0
}

// withWorkers is ownSources with several workers.
func withWorkers(n int) wiring {
	return func(mgr *shard.Manager, r reconcile.TypedReconciler[mcreconcile.Request]) error {
		options := twoInOneProcess
		options.MaxConcurrentReconciles = n
		return mcbuilder.ControllerManagedBy(mgr).Named("signer").WithOptions(options).
			WatchesRawSource(mgr.For(&corev1.ConfigMap{}, nil)).
			Complete(mgr.Guard(r))
	}
}

// oneInEachShard names one of the objects for each shard.
func oneInEachShard(t *testing.T, west client.Client) map[string]string {
	t.Helper()
	list := &corev1.ConfigMapList{}
	must.Succeed(t, west.List(t.Context(), list, client.InNamespace("default")))
	found := map[keyspace.Prefix]string{}
	for _, prefix := range keyspace.Partition(1) {
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "cm-") && prefix.Contains(keyspace.Hash(string(cm.UID))) {
				found[prefix] = cm.Name
			}
		}
	}
	stuck := map[string]string{}
	for prefix, name := range found {
		stuck[name] = prefix.String()
	}
	if len(stuck) != 2 {
		t.Fatalf("%d objects aren't spread over two shards", len(list.Items))
	}
	return stuck
}
