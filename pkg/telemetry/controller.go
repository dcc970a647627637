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
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Controller is what is seen of one controller: its queue and its reconciles.
type Controller struct {
	telemetry *Telemetry
	log       logr.Logger
	name      string
	kind      string
	queue     atomic.Pointer[queue] // set when the controller starts
	example   atomic.Int64          // when a trace last became an exemplar
	wait      prometheus.Observer
	took      map[string]prometheus.Observer // by result
}

// Controller returns the view of a controller, by its name and the kind that it is for.
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

// Options adds to a controller's options a queue around theirs, and a logger that knows traces.
func (c *Controller) Options(o mccontroller.Options) mccontroller.Options {
	build := o.NewQueue
	if build == nil {
		build = c.priorityQueue
	}
	o.NewQueue = func(name string, limiter limiter) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
		inner := build(name, limiter)
		if q, ok := inner.(priorityqueue.PriorityQueue[mcreconcile.Request]); ok {
			return c.watch(q, limiter)
		}
		return inner // of a kind that we don't know how to look into
	}
	if c.telemetry.Tracing() && o.LogConstructor == nil {
		o.LogConstructor = c.logger
	}
	return o
}

type limiter = workqueue.TypedRateLimiter[mcreconcile.Request]

// priorityQueue is what a controller has if its options don't say.
func (c *Controller) priorityQueue(name string, limiter limiter) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	return priorityqueue.New(name, func(o *priorityqueue.Opts[mcreconcile.Request]) {
		o.Log = c.log
		o.RateLimiter = limiter
	})
}

// watch puts what we want to know around a queue.
func (c *Controller) watch(inner priorityqueue.PriorityQueue[mcreconcile.Request], limiter limiter) *queue {
	q := newQueue(inner, limiter, nil)
	if c.telemetry.Tracing() {
		q.took = c.depart
	}
	c.queue.Store(q)
	c.telemetry.metrics.add(c.name, q)
	return q
}

// depart begins the record of a reconcile when its key leaves the queue, if the trace may be kept.
func (c *Controller) depart(req mcreconcile.Request, t *taken) {
	keep := c.telemetry.sampling.Load()
	id := NewTraceID()
	sampled := inRatio(id, keep.ratio)
	if !sampled && keep.slow == 0 {
		return
	}
	t.flight = &flight{
		telemetry: c.telemetry, kind: c.kind, req: req, traceID: id, root: rootOf(id), sampled: sampled, slow: keep.slow,
		trigger: t.trigger, attempt: t.attempt, ready: t.ready,
	}
}

// logger is controller-runtime's, with the trace. It is asked for before the reconcile begins, so that the line about
// how the reconcile ended carries the trace too.
func (c *Controller) logger(req *mcreconcile.Request) logr.Logger {
	if req == nil {
		return c.log
	}
	values := []any{"cluster", string(req.ClusterName), c.kind, klog.KRef(req.Namespace, req.Name)}
	if f := c.inHand(*req).flight; f != nil && f.sampled {
		values = append(values, "trace_id", f.traceID.String(), "span_id", f.root.String())
	}
	return c.log.WithValues(values...)
}

// inHand returns what the queue knows of a key that is being worked on.
func (c *Controller) inHand(req mcreconcile.Request) taken {
	if q := c.queue.Load(); q != nil {
		return q.inHand(req)
	}
	return taken{}
}

// Traced wraps a reconciler so that each of its reconciles is seen. It belongs inside of shard.Manager.Guard, so that
// keys of shards that aren't held leave no trace.
func (c *Controller) Traced(r reconcile.TypedReconciler[mcreconcile.Request]) reconcile.TypedReconciler[mcreconcile.Request] {
	return &traced{Controller: c, inner: r}
}

type traced struct {
	*Controller
	inner reconcile.TypedReconciler[mcreconcile.Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (r *traced) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	t := r.inHand(req)
	start := time.Now()
	if t.ready.IsZero() {
		t.ready = start
	}
	if t.flight == nil {
		result, err := r.inner.Reconcile(ctx, req)
		r.ended(req, &t, start, resultOf(result, err), trace.SpanContext{})
		return result, err
	}
	return r.record(ctx, req, &t, start)
}

// record is Reconcile with a flight.
func (r *traced) record(ctx context.Context, req mcreconcile.Request, t *taken, start time.Time) (result reconcile.Result, err error) {
	f := t.flight
	f.start = start
	if epoch := r.telemetry.cfg.Epoch; epoch != nil {
		f.epoch = epoch(ctx)
	}
	returned := false
	defer func() {
		name, failed := resultOf(result, err), ErrorKind(err)
		if !returned {
			name, failed = resultError, "panic" // it goes on to controller-runtime, which decides
		}
		var kept trace.SpanContext
		if f.land(time.Now(), name, result.RequeueAfter, failed) {
			kept = f.context()
			r.telemetry.pipeline.submit(f, 2+len(f.calls))
		}
		r.ended(req, t, start, name, kept)
	}()
	result, err = r.inner.Reconcile(f.into(ctx), req)
	returned = true
	return result, err
}

// ended counts a reconcile and tells who wants to know.
func (r *traced) ended(req mcreconcile.Request, t *taken, start time.Time, result string, kept trace.SpanContext) {
	end := time.Now()
	example := kept
	if result != resultError && !r.wantsExample(end) {
		example = trace.SpanContext{}
	}
	ObserveWith(r.wait, max(start.Sub(t.ready), 0).Seconds(), example)
	ObserveWith(r.took[result], end.Sub(start).Seconds(), example)
	if tell := r.telemetry.cfg.Reconciled; tell != nil {
		tell(Reconciled{
			Request: req, Ready: t.ready, Start: start, End: end, ReadyUnknown: !t.known, Backfill: t.backfill, Trace: kept,
		})
	}
}

// exampleEvery is how often a trace becomes the exemplar of its histograms. Prometheus reads them every few seconds;
// one for each reconcile would cost more than the rest of the trace.
const exampleEvery = 50 * time.Millisecond

func (c *Controller) wantsExample(now time.Time) bool {
	last, ns := c.example.Load(), now.UnixNano()
	return ns-last >= int64(exampleEvery) && c.example.CompareAndSwap(last, ns)
}

func resultOf(result reconcile.Result, err error) string {
	switch {
	case err != nil:
		return resultError
	case result.RequeueAfter > 0:
		return resultTimer
	case result.Requeue: //nolint:staticcheck // deprecated, but still what asks for a growing delay
		return resultRetry
	}
	return resultSuccess
}
