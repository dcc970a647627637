package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Guard wraps a reconciler so that it runs only for keys of shards that this replica holds, and so that a move can wait
// for it. Keys of other shards are dropped without a trace: their holder has them. The reconciler's context ends with
// the tenure.
func (m *Manager) Guard(
	r reconcile.TypedReconciler[mcreconcile.Request]) reconcile.TypedReconciler[mcreconcile.Request] {
	return &guard{roster: m.node.roster, log: m.node.log, inner: r}
}

// engagementKey carries the engagement of the key that is being reconciled.
type engagementKey struct{}

// reconciling returns the engagement that the context's reconcile runs in, nil outside of one.
func reconciling(ctx context.Context) *engagement {
	e, _ := ctx.Value(engagementKey{}).(*engagement)
	return e
}

// TenureOf returns under which tenure a reconcile runs, by its context; ok is false outside of a guarded reconcile.
func TenureOf(ctx context.Context) (id keyspace.ShardID, epoch protocol.Epoch, ok bool) {
	e := reconciling(ctx)
	if e == nil {
		return keyspace.ShardID{}, 0, false
	}
	return e.id, e.epoch(), true
}

// errAbandoned has a key looked at again, after a while.
var errAbandoned = errors.New("the reconcile didn't return in time: the key is tried again beside it")

type guard struct {
	roster *roster
	log    logr.Logger
	inner  reconcile.TypedReconciler[mcreconcile.Request]
}

func (g *guard) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	e := g.roster.get(req.ClusterName)
	if e == nil {
		return reconcile.Result{}, nil
	}
	key := putOffKey{g, req.NamespacedName}
	wait, trial := e.traffic.Breaker.PutOff(req.Namespace, e.putOff.has(key))
	if wait > 0 && e.gate.IsOpen() {
		e.putOff.note(key)
		return reconcile.Result{RequeueAfter: spread(wait)}, nil
	}
	start := time.Now()
	var ended struct { // only read once the reconcile has returned
		result reconcile.Result
		err    error
	}
	ctx, asked := engage.Obeying(ctx)
	ran := e.gate.Run(ctx, e.traffic, func(ctx context.Context) {
		ended.result, ended.err = g.inner.Reconcile(context.WithValue(ctx, engagementKey{}, e), req)
	})
	if trial && (ran == engage.Refused || ran == engage.Returned && ended.err == nil) {
		e.traffic.Breaker.Untried() // unless it asked the cluster for something
	}
	if ran == engage.Refused {
		e.putOff.forget(key)
		return reconcile.Result{}, nil
	}
	e.busy.Add(int64(time.Since(start)))
	if ran == engage.Abandoned {
		g.log.Error(nil, "a reconcile doesn't return although its context has ended; going on without it, its writes are "+
			"refused",
			"shard", e.id.String(), "key", req.NamespacedName.String(), "began", start.Format(time.RFC3339), "running",
			e.traffic.Abandoned.Load())
		if e.gate.IsOpen() { // its own timeout ended it, and nobody else looks at its key
			return reconcile.Result{}, errAbandoned
		}
		return reconcile.Result{}, nil
	}
	result, err := ended.result, ended.err
	if !e.gate.IsOpen() {
		// The tenure ended meanwhile. Whatever is left to do, or failed because of that, is the next holder's, who
		// looks at every key of the shard anew.
		e.putOff.forget(key)
		return reconcile.Result{}, nil
	}
	switch wait, open := e.traffic.Breaker.Left(req.Namespace); {
	case err != nil && open:
		// The cluster is away, or refuses everything. That is no fault of the key: it must not back off further each time.
		g.log.V(1).Info("cluster serves nothing; key is put off", "shard", e.id.String(), "key", req.NamespacedName.String(),
			"error", err.Error())
		e.putOff.note(key)
		return reconcile.Result{RequeueAfter: spread(max(wait, engage.FirstPause))}, nil
	case apierrors.IsTooManyRequests(err):
		// The same, where the cluster serves others. The longer it lasts the less it is asked.
		waited := min(e.putOff.note(key), engage.LongestAsked/10)
		return reconcile.Result{RequeueAfter: spread(max(asked.Wait(), waited, engage.FirstPause))}, nil
	}
	e.putOff.forget(key)
	if result.RequeueAfter > 0 && result.Priority == nil {
		normal := 0 // a due time isn't backfill, even where its key was enqueued as such
		result.Priority = &normal
	}
	return result, err
}

// spread makes a wait up to a quarter longer, and a second at most, so that keys which were put off together don't come
// back all at once.
func spread(wait time.Duration) time.Duration { return wait + rand.N(min(wait/4, time.Second)+1) }
