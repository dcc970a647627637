package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/clustername"
	"github.com/tenure-dev/tenure/pkg/fairqueue"
)

// Controller observes one controller: its queue and its reconciles.
type Controller struct {
	telemetry *Telemetry
	log       logr.Logger
	name      string
	kind      string
	queue     atomic.Pointer[queue] // set when the controller starts; nil if its queue isn't ours
	example   atomic.Int64          // when a trace last became an exemplar
	wait      prometheus.Observer
	took      map[string]prometheus.Observer // by result
}

// Controller returns the observer of a controller, by the controller's name and its kind of object.
func (t *Telemetry) Controller(name, kind string) *Controller {
	c := &Controller{
		telemetry: t, log: t.cfg.Log.WithValues("controller", name), name: name, kind: kind,
		wait: t.metrics.wait.WithLabelValues(name), took: map[string]prometheus.Observer{},
	}
	for _, result := range []string{resultSuccess, resultTimer, resultRetry, resultError} {
		c.took[result] = t.metrics.took.WithLabelValues(name, result)
	}
	return c
}

// queue is the type of the controllers' queues.
type queue = fairqueue.Queue[mcreconcile.Request]

// Options adds a fair queue to a controller's options, in which a cluster has at most perCluster workers, and a logger
// that adds trace IDs. If the options have a queue of their own, that isn't observed.
func (c *Controller) Options(o mccontroller.Options, perCluster int) mccontroller.Options {
	if o.NewQueue == nil {
		o.NewQueue = func(name string,
			limiter workqueue.TypedRateLimiter[mcreconcile.Request]) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
			return c.fairQueue(name, limiter, o.MaxConcurrentReconciles, perCluster)
		}
	}
	if c.telemetry.Tracing() && o.LogConstructor == nil {
		o.LogConstructor = c.logger
	}
	return o
}

func (c *Controller) fairQueue(name string, limiter workqueue.TypedRateLimiter[mcreconcile.Request],
	workers, perCluster int) *queue {
	options := fairqueue.Options[mcreconcile.Request]{
		Name: name, Limiter: limiter, Workers: workers, PerCluster: perCluster,
		Tenant: func(req mcreconcile.Request) (cluster, namespace string) {
			return string(clustername.Real(req.ClusterName)), req.Namespace // all shards of a cluster count as one
		},
		Part: func(req mcreconcile.Request) string { return string(req.ClusterName) },
	}
	if c.telemetry.Tracing() {
		options.OnTake = c.depart
	}
	q := fairqueue.New(options)
	c.queue.Store(q)
	c.telemetry.metrics.add(c.name, q)
	return q
}

// depart starts the record of a reconcile when its key leaves the queue, if the trace may be kept.
func (c *Controller) depart(req mcreconcile.Request, t *fairqueue.Taken) {
	keep := c.telemetry.sampling.Load()
	id := newTraceID()
	sampled := inRatio(id, keep.ratio)
	if !sampled && keep.slow == 0 {
		return
	}
	t.Note = &flight{
		telemetry: c.telemetry, kind: c.kind, req: req, traceID: id, root: rootOf(id), sampled: sampled, slow: keep.slow,
		trigger: t.Trigger, attempt: t.Attempt, ready: t.Ready,
	}
}

// logger is controller-runtime's logger with the trace ID. It is created before the reconcile begins, so the line about
// the reconcile's end carries the trace ID too. The ID is logged whether or not the reconcile is sampled: its trace is
// kept if it fails, and an error's text is in the log only, since it may quote secrets.
func (c *Controller) logger(req *mcreconcile.Request) logr.Logger {
	if req == nil {
		return c.log
	}
	values := []any{"cluster", string(req.ClusterName), c.kind, klog.KRef(req.Namespace, req.Name)}
	if f := flightIn(c.inHand(*req)); f != nil {
		values = append(values, "trace_id", f.traceID.String(), "span_id", f.root.String())
	}
	return c.log.WithValues(values...)
}

// inHand returns what the queue knows about a key that is being worked on.
func (c *Controller) inHand(req mcreconcile.Request) fairqueue.Taken {
	if q := c.queue.Load(); q != nil {
		return q.Taken(req)
	}
	return fairqueue.Taken{}
}

// flightIn returns the record of a key's reconcile, nil if there is none.
func flightIn(t fairqueue.Taken) *flight {
	f, _ := t.Note.(*flight)
	return f
}

// Traced wraps a reconciler so that its reconciles are observed. It belongs inside of shard.Manager.Guard, so that keys
// of shards that aren't held leave no trace.
func (c *Controller) Traced(
	r reconcile.TypedReconciler[mcreconcile.Request]) reconcile.TypedReconciler[mcreconcile.Request] {
	return &traced{Controller: c, inner: r}
}

type traced struct {
	*Controller
	inner reconcile.TypedReconciler[mcreconcile.Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (r *traced) Reconcile(ctx context.Context, req mcreconcile.Request) (result reconcile.Result, err error) {
	t := r.inHand(req)
	start := time.Now()
	f := flightIn(t)
	if f != nil {
		f.start = start
		if epoch := r.telemetry.cfg.Epoch; epoch != nil {
			f.epoch = epoch(ctx)
		}
		ctx = f.into(ctx)
	} else if r.telemetry.Tracing() && r.queue.Load() != nil {
		ctx = trace.ContextWithSpanContext(ctx, unsampled())
	}
	returned := false
	defer func() {
		name, failed := resultOf(result, err), errorKind(err)
		if !returned {
			name, failed = resultError, "panic" // the panic goes on to controller-runtime, which handles it
		}
		var kept trace.SpanContext
		if f != nil && f.land(time.Now(), name, result.RequeueAfter, failed) {
			kept = f.context()
			r.telemetry.pipeline.submit(f, 2+len(f.calls))
		}
		r.ended(req, &t, start, name, kept)
	}()
	result, err = r.inner.Reconcile(ctx, req)
	returned = true
	return result, err
}

// ended observes in the histograms how long a reconcile's key waited and how long the reconcile took, and calls
// Config.Reconciled. kept is the reconcile's trace if that is kept, else the zero value; it is also the exemplar of
// reconciles that failed, and of a few others. Workers call ended concurrently.
func (r *traced) ended(req mcreconcile.Request, t *fairqueue.Taken, start time.Time, result string,
	kept trace.SpanContext) {
	end := time.Now()
	example := kept
	ready, unknown := t.Ready, t.Ready.IsZero()
	if unknown {
		ready = start
	}
	if result != resultError && (!kept.IsValid() || !r.wantsExample(end)) {
		example = trace.SpanContext{}
	}
	ObserveWith(r.wait, max(start.Sub(ready), 0).Seconds(), example)
	ObserveWith(r.took[result], end.Sub(start).Seconds(), example)
	if tell := r.telemetry.cfg.Reconciled; tell != nil {
		tell(Reconciled{
			Request: req, Ready: ready, Start: start, End: end, ReadyUnknown: unknown, Backfill: t.Priority < 0, Trace: kept,
		})
	}
}

// exampleEvery is the time between two exemplars of a histogram. Prometheus reads them every few seconds, and one for
// each reconcile would cost more than the rest of the trace.
const exampleEvery = 50 * time.Millisecond

func (c *Controller) wantsExample(now time.Time) bool {
	last, ns := c.example.Load(), now.UnixNano()
	soon := ns >= last && ns-last < int64(exampleEvery) // not where the clock was put back
	return !soon && c.example.CompareAndSwap(last, ns)
}

func resultOf(result reconcile.Result, err error) string {
	switch {
	case err != nil:
		return resultError
	case result.RequeueAfter > 0:
		return resultTimer
	case result.Requeue: //nolint:staticcheck // deprecated, but still the only way to ask for a growing delay
		return resultRetry
	}
	return resultSuccess
}
