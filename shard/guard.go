package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/apierror"
	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/shard/internal/engage"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// Guard wraps a reconciler so that it runs only for keys of shards that this replica holds, and so that a move can
// wait for it. Keys of other shards are dropped silently, since their holder serves them. Keys of what is no shard,
// such as a cluster, are an error. The reconciler's context ends with the tenure. Call it once for each controller.
// Calls are counted: where there are fewer than controllers, a source doesn't start, and without any, unmodified
// controllers are engaged with no shard. So don't call it for a controller that you don't make.
//
// If the key's cluster can't serve the reconcile (it answers 429, 502 or 503, loses the connection, refuses everything
// or is away), the error is logged, once a minute and cluster, and becomes a RequeueAfter: the controller's rate
// limiter and error metrics don't see it. All other errors are returned, with the key before them. A reconciler with a
// method CountPutOff, as package telemetry makes, learns by it which keys are put off because their cluster can't serve
// them.
func (m *Manager) Guard(
	r reconcile.TypedReconciler[mcreconcile.Request]) reconcile.TypedReconciler[mcreconcile.Request] {
	if g, ok := r.(*guard); ok && g.roster == m.node.roster {
		return g
	}
	return newGuard(m.node.roster, m.node.log, r)
}

// engagementKey carries the engagement of the key that is being reconciled.
type engagementKey struct{}

// reconciling returns the engagement that the context's reconcile runs in, nil outside of one.
func reconciling(ctx context.Context) *engagement {
	e, _ := ctx.Value(engagementKey{}).(*engagement)
	return e
}

// TenureOf returns the tenure of the reconcile that the context belongs to; ok is false outside of a guarded
// reconcile.
func TenureOf(ctx context.Context) (id keyspace.ShardID, epoch protocol.Epoch, ok bool) {
	e := reconciling(ctx)
	if e == nil {
		return keyspace.ShardID{}, 0, false
	}
	return e.id, e.epoch(), true
}

// errAbandoned makes the controller retry the key, with backoff.
var errAbandoned = errors.New("the reconcile didn't return in time: the key is tried again beside it")

func newGuard(roster *roster, log logr.Logger, inner reconcile.TypedReconciler[mcreconcile.Request]) *guard {
	roster.guards.Add(1)
	g := &guard{roster: roster, log: log, told: budget.OnceAMinute(), inner: inner}
	if c, ok := inner.(counter); ok {
		c.CountPutOff(func() []fairqueue.Backlog { return roster.putOff(g) })
	}
	return g
}

// counter is a reconciler with metrics of its keys that are put off, which its workqueue can't tell from keys whose
// time hasn't come. waits returns them, for each shard that has any; it may be called at any time.
type counter interface {
	CountPutOff(waits func() []fairqueue.Backlog)
}

type guard struct {
	roster *roster
	log    logr.Logger
	told   *budget.Budget // limits the log lines about keys that are put off
	inner  reconcile.TypedReconciler[mcreconcile.Request]
}

func (g *guard) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	e, err := g.engaged(req)
	if e == nil {
		return reconcile.Result{}, err
	}
	key := putOffKey{g, req.NamespacedName}
	wait, trial := e.wait(key)
	if wait > 0 {
		return reconcile.Result{RequeueAfter: spread(wait)}, nil
	}
	start := time.Now()
	var ended struct { // read only once the reconcile has returned
		result reconcile.Result
		err    error
	}
	panics := true
	defer func() {
		if panics { // what that means is up to the worker; the key isn't one that its cluster can't serve
			e.reconciled(start, trial)
			e.putOff.forget(key)
			panic(fmt.Sprintf("%s %s: %v", e.id, req.NamespacedName, recover()))
		}
	}()
	ctx, asked := engage.ObeyingFor(ctx, &e.traffic.Breaker, req.Namespace)
	ran := e.gate.Run(ctx, e.traffic, func(ctx context.Context) {
		ended.result, ended.err = g.inner.Reconcile(context.WithValue(ctx, engagementKey{}, e), req)
	})
	panics = false
	e.reconciled(start, trial && ran != engage.Abandoned)
	if ran == engage.Returned && e.gate.IsOpen() {
		return g.conclude(e, key, ended.result, ended.err, asked)
	}
	e.putOff.forget(key)
	if ran == engage.Abandoned {
		return reconcile.Result{}, g.abandoned(e, key, start)
	}
	// The tenure has ended, perhaps meanwhile. What is left to do, or failed because of that, is up to the next holder,
	// which looks at every key of the shard anew.
	return reconcile.Result{}, nil
}

// engaged returns the engagement of a key's shard. It is nil if the key is to be dropped, with an error if it is of no
// shard.
func (g *guard) engaged(req mcreconcile.Request) (*engagement, error) {
	e := g.roster.get(req.ClusterName)
	switch {
	case e == nil && req.ClusterName == mcmanager.LocalCluster:
		return nil, reconcile.TerminalError(fmt.Errorf("key %s of the manager's own cluster, which isn't sharded under that "+
			"name: leave out WithEngageWithLocalCluster, and name the cluster by shard.Config.HomeCluster",
			req.NamespacedName))
	case e == nil:
		if _, err := keyspace.ParseShardID(string(req.ClusterName)); err != nil {
			return nil, reconcile.TerminalError(fmt.Errorf("key %s of %q, which isn't a shard, so no replica holds it: "+
				"enqueue keys by the sources of shard.Manager: %w", req.NamespacedName, req.ClusterName, err))
		}
	}
	return e, nil
}

// wait returns for how long to put a key off before its reconcile, since its cluster can't serve it now; 0 for not at
// all. If trial is true, the reconcile shows whether the cluster can.
func (e *engagement) wait(key putOffKey) (wait time.Duration, trial bool) {
	wait, trial = e.traffic.Breaker.PutOff(key.Namespace, e.putOff.waits(key))
	switch {
	case !e.gate.IsOpen(): // the gate refuses it
		return 0, trial
	case wait > 0:
		e.putOff.note(key)
		return min(wait, engage.LastPause), false
	case !trial && !e.putOff.admits(key):
		return engage.LastPause, false
	}
	return 0, trial
}

// abandoned returns the error for a key whose reconcile doesn't return.
func (g *guard) abandoned(e *engagement, key putOffKey, start time.Time) error {
	g.log.Error(nil, "a reconcile doesn't return although its context has ended; going on without it, writes with its "+
		"context are refused",
		"shard", e.id.String(), "key", key.String(), "began", start.Format(time.RFC3339), "running",
		e.traffic.Abandoned.Load())
	// Its own timeout ended it, or a lease that seemed to be over until its renewal was known. No other replica will
	// serve its key.
	if e.gate.IsOpen() {
		return errAbandoned
	}
	return nil
}

// conclude returns what a controller gets for a key whose reconcile returned while its shard is held. It records
// whether the key waits for its cluster.
func (g *guard) conclude(e *engagement, key putOffKey, result reconcile.Result, err error,
	asked *engage.Asked) (reconcile.Result, error) {
	if err == nil || errors.Is(err, reconcile.TerminalError(nil)) {
		e.putOff.serve(key)
	} else if after := g.failed(e, key, err, asked); after > 0 {
		return reconcile.Result{RequeueAfter: spread(after)}, nil
	}
	if result.RequeueAfter > 0 && result.Priority == nil {
		normal := 0 // a due time isn't backfill, even if its key was enqueued as backfill
		result.Priority = &normal
	}
	if err != nil { // multicluster-runtime's log line about it doesn't say which key it was
		err = fmt.Errorf("%s %s: %w", e.id, key.NamespacedName, err)
	}
	return result, err
}

// reconciled counts a reconcile that is over, and ends the trial that it was, if it was one.
func (e *engagement) reconciled(start time.Time, trial bool) {
	if trial {
		e.traffic.Breaker.Untried() // no effect if the cluster's answers have ended the trial
	}
	e.busy.Add(int64(time.Since(start)))
}

// longestAway bounds for how long a key is put off that its cluster couldn't serve. Only then does the key find out
// that the cluster is back, which may be sooner than it asked for.
const longestAway = engage.LongestAsked / 10

// failed returns for how long to put off a key whose reconcile failed; 0 means the controller's own backoff. It puts
// the key off if its cluster is away, refuses everything or can't serve it now. That isn't the key's fault, so its
// backoff must not grow. It logs one such key a minute and cluster.
func (g *guard) failed(e *engagement, key putOffKey, err error, asked *engage.Asked) (after time.Duration) {
	wait, open := e.traffic.Breaker.Left(key.Namespace)
	itself := apierrors.IsForbidden(err) || apierrors.IsInternalError(err)
	switch {
	case itself && (open || e.putOff.wasRefused(key)):
		after = max(min(wait, engage.LastPause), e.putOff.refuse(key, !open))
	case open:
		e.putOff.note(key)
		after = min(max(wait, engage.FirstPause), engage.LastPause) // the breaker may close sooner
	case notNow(err, asked, &e.traffic.Breaker): // the longer it lasts, the fewer requests are sent
		longest := engage.LongestAsked
		if !apierrors.IsTooManyRequests(err) { // the whole cluster said that, and may be back sooner
			longest = longestAway
		}
		waited := min(e.putOff.noteAlone(key), longestAway)
		after = min(max(asked.Wait(&e.traffic.Breaker), waited, engage.FirstPause), longest)
	default:
		e.putOff.forget(key)
		return 0
	}
	if left, ok := g.told.Take(string(e.id.Cluster), time.Now()); ok {
		g.log.Info("cluster serves less than it is asked for; key is put off", "shard", e.id.String(), "key",
			key.String(), "error", err.Error(), "in", after.String(), "leftOut", left)
	}
	return after
}

// notNow reports whether a reconcile failed because its cluster can't serve a request at the moment: it answered so or,
// if no answer is to blame, a connection to it was lost. What other clusters answered is an error like any other.
func notNow(err error, asked *engage.Asked, cluster *engage.Breaker) bool {
	if code := apierror.Code(err); code != 0 {
		return engage.IsBusy(code) && asked.Busy(cluster)
	}
	return asked.Lost(cluster)
}

// spread makes a wait up to a quarter longer, and a second at most, so that keys that were put off together don't
// come back all at once.
func spread(wait time.Duration) time.Duration { return wait + rand.N(min(wait/4, time.Second)+1) }
