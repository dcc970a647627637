package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// refuser is a cluster whose answers have a status, and a reconciler that makes one write there, in the namespace of
// its key.
type refuser struct {
	breaker *engage.Breaker
	mu      sync.Mutex           // guards all below
	status  map[string]int       // by namespace; 201 for others
	asked   int                  // requests
	served  map[string]time.Time // by key, when it was first
}

func (r *refuser) Reconcile(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	status := r.status[req.Namespace]
	if status == 0 {
		status = http.StatusCreated
	}
	request, err := http.NewRequest(http.MethodPost, "https://west/api/v1/namespaces/"+req.Namespace+"/pods", nil)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.breaker.Judge(request, &http.Response{StatusCode: status}, time.Millisecond)
	if status >= http.StatusBadRequest {
		return reconcile.Result{}, errors.New("refused")
	}
	if r.served[req.String()].IsZero() {
		r.served[req.String()] = time.Now()
	}
	return reconcile.Result{}, nil
}

// control does with keys what a controller with one worker does, until the test's end.
func control(t *testing.T, r *refuser) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	t.Helper()
	id := keyspace.ShardID{Cluster: "west"}
	g, gate, traffic := guarding(t, id, r)
	gate.Open(1)
	r.breaker, r.served = &traffic.Breaker, map[string]time.Time{}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](
		time.Second, 5*time.Minute))
	go func() {
		for {
			key, end := q.Get()
			if end {
				return
			}
			result, err := g.Reconcile(t.Context(), key)
			switch {
			case err != nil:
				q.AddRateLimited(key)
			case result.RequeueAfter > 0:
				q.Forget(key)
				q.AddAfter(key, result.RequeueAfter)
			default:
				q.Forget(key)
			}
			q.Done(key)
		}
	}()
	return q
}

// guarding guards a reconciler of one shard.
func guarding(t *testing.T, id keyspace.ShardID,
	r reconcile.TypedReconciler[mcreconcile.Request]) (*guard, *engage.Gate, *engage.Traffic) {
	traffic := &engage.Traffic{}
	gate := engage.NewGate(t.Context(), id, "tenure/test", "r1-1", func() bool { return true })
	all := newRoster(Config{})
	all.put(clusterName(id), &engagement{id: id, gate: gate, traffic: traffic})
	return &guard{roster: all, log: logr.Discard(), inner: r}, gate, traffic
}

func keyOf(namespace string, i int) mcreconcile.Request {
	name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
	return mcreconcile.Request{ClusterName: clusterName(keyspace.ShardID{Cluster: "west"}),
		Request: reconcile.Request{NamespacedName: name}}
}

// TestAClusterThatRefusedEverythingIsServedSoonAfterItRecovers has a cluster refuse all for so long that keys which
// back off by themselves come back minutes later.
func TestAClusterThatRefusedEverythingIsServedSoonAfterItRecovers(t *testing.T) {
	for _, status := range []int{401, 429, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, outage = 50, 4 * time.Minute
				r := &refuser{status: map[string]int{"shop": status}}
				q := control(t, r)
				defer q.ShutDown()
				for i := range keys {
					q.Add(keyOf("shop", i))
				}
				time.Sleep(outage)
				r.mu.Lock()
				asked := r.asked
				delete(r.status, "shop")
				r.mu.Unlock()
				if most := keys + int(outage/time.Second)/2; asked > most {
					t.Errorf("%d requests during the outage, want at most %d", asked, most)
				}
				recovered := time.Now()
				time.Sleep(15 * time.Second)
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				first, last := time.Hour, time.Duration(0)
				for _, at := range r.served {
					first, last = min(first, at.Sub(recovered)), max(last, at.Sub(recovered))
				}
				if len(r.served) != keys || first > 5*time.Second {
					t.Errorf("%d of %d keys were served within 15s of the recovery, the first after %v, want all, and 5s",
						len(r.served), keys, first)
				}
				t.Logf("%d requests in vain; then all were served after %v to %v", asked, first, last)
			})
		})
	}
}

func TestANamespaceThatIsRefusedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refuser{status: map[string]int{"bank": http.StatusTooManyRequests}}
		q := control(t, r)
		defer q.ShutDown()
		for i := range 50 {
			q.Add(keyOf("bank", i))
		}
		time.Sleep(time.Minute)
		for i := range 50 {
			began := time.Now()
			q.Add(keyOf("shop", i))
			synctest.Wait()
			r.mu.Lock()
			at := r.served[keyOf("shop", i).String()]
			r.mu.Unlock()
			if at.IsZero() || at.Sub(began) > 0 {
				t.Fatalf("key %d of the other namespace wasn't served at once", i)
			}
			time.Sleep(time.Second)
		}
	})
}

// The next holder looks at every key. Where there is none, a key that is dropped is looked at by nobody.
func TestAKeyWhoseReconcileIsAbandonedIsTriedAgainUnlessItsTenureIsOver(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			g, gate, _ := guarding(t, keyspace.ShardID{Cluster: "west"}, reconcile.TypedFunc[mcreconcile.Request](
				func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
					<-release
					return reconcile.Result{}, nil
				}))
			gate.Open(1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // as ReconciliationTimeout sets it
			defer cancel()
			if over {
				time.AfterFunc(time.Second, gate.Shut)
			}
			if result, err := g.Reconcile(ctx, keyOf("shop", 1)); !result.IsZero() || (err == nil) != over {
				t.Errorf("tenure over: %v: got %v, %v", over, result, err)
			}
		})
	}
}
