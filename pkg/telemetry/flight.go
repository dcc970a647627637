package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/clustername"
	"github.com/tenure-dev/tenure/pkg/fairqueue"
)

const (
	// maxCalls and maxLinks bound the record of one reconcile.
	maxCalls = 256
	maxLinks = 16
)

// flight is the record of one reconcile, from the moment when its key left the queue. After the end spans are made from
// it, if the trace is kept.
type flight struct {
	telemetry *Telemetry
	kind      string
	req       mcreconcile.Request
	traceID   trace.TraceID
	root      trace.SpanID
	sampled   bool          // decided at the start, so that API calls carry it
	slow      time.Duration // kept if it takes this long, or fails, even if it isn't sampled
	trigger   fairqueue.Trigger
	attempt   int
	ready     time.Time // when the key could have been worked on
	start     time.Time // when it was
	epoch     int64

	end     time.Time
	result  string
	requeue time.Duration
	failed  string

	mu     sync.Mutex // guards all below: a reconcile may make calls from several goroutines
	ended  bool       // later calls aren't recorded
	calls  []call
	links  []trace.Link
	missed int // calls beyond maxCalls

	fewCalls [4]call // initial memory of calls, so that the usual reconcile needs one allocation
}

// call is one API call.
type call struct {
	id         trace.SpanID
	start, end time.Time
	method     string
	path       string
	host       string
	status     int // 0 if there was no answer
	failed     string
}

type flightKey struct{}

// flightOf returns the flight of the reconcile that a context belongs to, nil if there is none.
func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

func (f *flight) context() trace.SpanContext { return sampledContext(f.traceID, f.root) }

// into puts the flight into a reconcile's context. Spans that the reconciler makes itself become its children if it is
// sampled, else they are dropped.
func (f *flight) into(ctx context.Context) context.Context {
	parent := f.context().WithTraceFlags(trace.TraceFlags(0).WithSampled(f.sampled))
	return trace.ContextWithSpanContext(context.WithValue(ctx, flightKey{}, f), parent)
}

// unsampled returns a parent of spans that are to be dropped because their reconcile has no flight.
func unsampled() trace.SpanContext {
	id := newTraceID()
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: rootOf(id)})
}

func (f *flight) called(c call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
	case len(f.calls) >= maxCalls:
		f.missed++
	default:
		if f.calls == nil {
			f.calls = f.fewCalls[:0]
		}
		f.calls = append(f.calls, c)
	}
}

// link records what caused or preceded the reconcile.
func (f *flight) link(to trace.SpanContext, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || len(f.links) >= maxLinks || to.TraceID() == f.traceID {
		return
	}
	for _, l := range f.links {
		if l.SpanContext.Equal(to) {
			return
		}
	}
	f.links = append(f.links, trace.Link{SpanContext: to,
		Attributes: []attribute.KeyValue{attribute.String("tenure.link", why)}})
}

// land ends the flight and reports whether its trace is kept.
func (f *flight) land(end time.Time, result string, requeue time.Duration, failed string) bool {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.end, f.result, f.requeue, f.failed = end, result, requeue, failed
	if f.sampled {
		return true
	}
	return f.slow > 0 && (failed != "" || end.Sub(f.start) >= f.slow) && f.telemetry.tail.AllowN(end, 1)
}

// spans implements story. The flight has landed, so it doesn't change any more.
func (f *flight) spans() []Span {
	all := make([]Span, 0, 2+len(f.calls))
	all = append(all, Span{
		TraceID: f.traceID, SpanID: f.root, Name: "reconcile " + f.kind, Kind: trace.SpanKindConsumer,
		Start: f.ready, End: f.end, Attributes: f.attributes(), Links: f.links, Failed: f.failed,
	}, Span{
		TraceID: f.traceID, SpanID: NewSpanID(), Parent: f.root, Name: "queue wait", Kind: trace.SpanKindInternal,
		Start: f.ready, End: f.start,
	})
	for i := range f.calls {
		all = append(all, f.calls[i].span(f.traceID, f.root))
	}
	return all
}

func (f *flight) attributes() []attribute.KeyValue {
	cluster := clustername.Real(f.req.ClusterName)
	as := make([]attribute.KeyValue, 0, 16)
	as = append(as,
		attribute.String("k8s.cluster.name", string(cluster)),
		attribute.String("k8s.namespace.name", f.req.Namespace),
		attribute.String("k8s.object.kind", f.kind),
		attribute.String("k8s.object.name", f.req.Name),
		attribute.String("tenure.replica", f.telemetry.cfg.Replica),
		attribute.String("tenure.trigger", f.trigger.String()),
		attribute.Int("tenure.attempt", f.attempt),
		attribute.String("tenure.result", f.result),
	)
	if cluster != f.req.ClusterName { // it names a shard
		as = append(as, attribute.String("tenure.shard", string(f.req.ClusterName)), attribute.Int64("tenure.epoch", f.epoch))
	}
	if f.requeue > 0 {
		as = append(as, attribute.Float64("tenure.requeue_after", f.requeue.Seconds()))
	}
	if f.failed != "" {
		as = append(as, attribute.String("error.type", f.failed))
	}
	if !f.sampled {
		as = append(as, attribute.Bool("tenure.kept_at_end", true))
	}
	if f.missed > 0 {
		as = append(as, attribute.Int("tenure.api_calls_not_recorded", f.missed))
	}
	return as
}
