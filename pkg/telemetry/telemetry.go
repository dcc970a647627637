package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/text"
)

// scope is the name of our instrumentation.
const scope = "github.com/tenure-dev/tenure/pkg/telemetry"

// Config of a [Telemetry].
type Config struct {
	Settings Settings
	// Exporter receives the spans. Nil turns tracing off.
	Exporter sdktrace.SpanExporter
	// Slow is the duration from which a reconcile is kept even if it wasn't sampled. Failed reconciles are kept
	// likewise. Zero turns both off.
	Slow time.Duration
	// Replica is this process's name, sent as service.instance.id.
	Replica string
	Version string
	Log     logr.Logger
	// Registerer registers the metrics. Nil disables them.
	Registerer prometheus.Registerer
	// Epoch returns the epoch under which a reconcile runs, from its context. Optional.
	Epoch func(ctx context.Context) int64
	// Reconciled is called after each reconcile. Optional; it must return at once.
	Reconciled func(Reconciled)
}

// Reconciled is one finished reconcile.
type Reconciled struct {
	Request mcreconcile.Request
	// Ready is when the key was ready to be worked on. If that isn't known it is equal to Start.
	Ready, Start, End time.Time
	ReadyUnknown      bool
	// Backfill reports whether the key had a priority below that of live events.
	Backfill bool
	// Trace is the reconcile's root span, if it is kept.
	Trace trace.SpanContext
}

// Telemetry is shared by all parts of one process. It is safe for concurrent use.
type Telemetry struct {
	cfg      Config
	metrics  *reconcileMetrics
	pipeline *pipeline // nil while tracing is off
	provider *sdktrace.TracerProvider
	sampling atomic.Pointer[sampling]
	writes   writes
	tail     *rate.Limiter // of maxTailKept
}

// sampling says which reconciles are kept.
type sampling struct {
	ratio float64       // share of all that is sampled at the start
	slow  time.Duration // others that fail or take this long are kept too; zero turns that off
}

// New returns a Telemetry. It sends nothing before Run.
func New(cfg Config) *Telemetry {
	cfg.Settings = cfg.Settings.withDefaults()
	t := &Telemetry{cfg: cfg, metrics: newReconcileMetrics(), tail: rate.NewLimiter(maxTailKept, maxTailKept),
		writes: newWrites()}
	t.SetSampling(cfg.Settings.Ratio, cfg.Slow)
	if cfg.Exporter != nil {
		t.pipeline = newPipeline(cfg.Settings, cfg.Exporter, cfg.Log.WithName("tracing"))
		t.pipeline.resource = t.resource()
		t.pipeline.scope = instrumentation.Scope{Name: scope, Version: cfg.Version}
		t.provider = sdktrace.NewTracerProvider( // for spans that a program makes itself
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Settings.Ratio))),
			sdktrace.WithSpanProcessor(t.pipeline),
			sdktrace.WithResource(t.pipeline.resource),
		)
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(t.metrics)
		if t.pipeline != nil {
			cfg.Registerer.MustRegister(t.pipeline.sent, t.pipeline.dropped)
		}
	}
	return t
}

func (t *Telemetry) resource() *resource.Resource {
	attributes := []attribute.KeyValue{
		attribute.String("service.name", t.cfg.Settings.Service),
		attribute.String("service.version", t.cfg.Version),
		attribute.String("service.instance.id", t.cfg.Replica),
	}
	for key, value := range t.cfg.Settings.Attributes {
		attributes = append(attributes, attribute.String(key, value))
	}
	return resource.NewSchemaless(attributes...)
}

// SetSampling changes which reconciles that start from now on are kept: a share of them, from 0 to 1, and those that
// fail or take longer than slow, unless slow is zero. What was kept before is sent now, not with the next batch. Spans
// that a program makes itself are kept in a reconcile that the share picked; outside of reconciles they follow
// [Config].Settings.
func (t *Telemetry) SetSampling(ratio float64, slow time.Duration) {
	t.sampling.Store(&sampling{ratio: ratio, slow: slow})
	if t.pipeline != nil {
		t.pipeline.hurry()
	}
}

// Tracing reports whether spans are made.
func (t *Telemetry) Tracing() bool { return t.pipeline != nil }

// Run sends spans until the context ends, and then flushes. Without tracing it only waits for the context. While it
// runs, spans that a program makes through OpenTelemetry's global provider are sent too.
func (t *Telemetry) Run(ctx context.Context) {
	if t.pipeline == nil {
		<-ctx.Done()
		return
	}
	otel.SetTracerProvider(t.provider)
	var said atomic.Bool
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if !said.Swap(true) { // details of what the pipeline reports anyway
			t.cfg.Log.WithName("tracing").Info("the trace exporter reports an error; further ones are not logged", "error",
				text.Line(err.Error(), text.Note))
		}
	}))
	t.pipeline.run(ctx)
}

// Send sends spans that the caller made. It never waits, and does nothing while tracing is off.
func (t *Telemetry) Send(spans ...Span) {
	if t.pipeline != nil && len(spans) > 0 {
		t.pipeline.submit(ready(spans), len(spans))
	}
}

// ready are spans that needn't be made from a record.
type ready []Span

func (s ready) spans() []Span { return s }

// maxTailKept bounds the unsampled reconciles that are kept each second because they were slow or failed.
const maxTailKept = 20
