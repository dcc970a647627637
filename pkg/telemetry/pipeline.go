package telemetry

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tenure-dev/tenure/pkg/budget"
	"github.com/tenure-dev/tenure/pkg/text"
)

// flushTimeout bounds the final flush when the process ends.
const flushTimeout = 3 * time.Second

// story is a record from which spans can be made.
type story interface{ spans() []Span }

// pipeline takes stories from reconciles without making them wait, makes spans from them, and sends the spans in
// batches. For the SDK it is a span processor, which also receives the spans that a program makes itself.
type pipeline struct {
	settings Settings
	exporter sdktrace.SpanExporter
	resource *resource.Resource
	scope    instrumentation.Scope
	log      logr.Logger

	enough chan struct{} // holds a token when a batch should be sent before the next tick

	trouble  string // what the log says is wrong with the collector, "" for nothing; run alone uses this and news
	news     *budget.Budget
	sent     prometheus.Counter
	dropped  *prometheus.CounterVec
	overflow prometheus.Counter
	refused  prometheus.Counter

	mu      sync.Mutex              // guards all below
	stories []story                 // spans will be made from these
	spans   []sdktrace.ReadOnlySpan // spans that a program made itself
	waiting int                     // approximate number of spans in both
	full    bool                    // spans were dropped since the last batch because the queue was full
	closed  bool                    // nothing is accepted any more
}

func newPipeline(settings Settings, exporter sdktrace.SpanExporter, log logr.Logger) *pipeline {
	p := &pipeline{
		settings: settings, exporter: exporter, log: log, enough: make(chan struct{}, 1),
		news: budget.OnceAMinute(),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_trace_spans_sent_total", Help: "Spans that the trace collector took.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_trace_spans_dropped_total",
			Help: "Spans that were lost: queue_full when the collector is too slow, not_taken when it fails, rejects " +
				"them or can't be reached.",
		}, []string{"reason"}),
	}
	p.overflow, p.refused = p.dropped.WithLabelValues("queue_full"), p.dropped.WithLabelValues("not_taken")
	return p
}

// submit queues a story of about size spans. It never waits, and rarely wakes another goroutine: that would cost each
// reconcile more than the rest of its trace.
func (p *pipeline) submit(s story, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room(size) {
		p.stories = append(p.stories, s)
	}
}

// room makes room for size spans, or counts them as dropped. The caller holds mu.
func (p *pipeline) room(size int) bool {
	switch {
	case p.closed:
		return false
	case p.waiting > 0 && p.waiting+size > p.settings.Queue: // one that is larger than the whole queue isn't lost
		p.full = true
		p.overflow.Add(float64(size))
		return false
	}
	p.waiting += size
	if p.waiting >= p.settings.Batch {
		p.hurry()
	}
	return true
}

// hurry has the queued spans sent before the next tick.
func (p *pipeline) hurry() {
	select {
	case p.enough <- struct{}{}:
	default:
	}
}

// run sends spans until the context ends, and then the remaining ones within flushTimeout.
func (p *pipeline) run(ctx context.Context) {
	// The end of the process must neither abort a batch that is being sent nor wait for it for long.
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })
	ticker := time.NewTicker(p.settings.Delay)
	defer ticker.Stop()
	for {
		select {
		case <-p.enough:
			p.flush(sending)
		case <-ticker.C:
			p.flush(sending)
		case <-ctx.Done():
			p.mu.Lock()
			p.closed = true
			p.mu.Unlock()
			p.flush(sending)
			_ = p.exporter.Shutdown(sending) // too late to report an error
			return
		}
	}
}

// flush makes spans from all stories and sends them in batches.
func (p *pipeline) flush(ctx context.Context) {
	p.mu.Lock()
	stories, spans, full := p.stories, p.spans, p.full
	p.stories, p.spans, p.waiting, p.full = nil, nil, 0, false
	p.mu.Unlock()
	for _, told := range stories {
		for _, s := range told.spans() {
			spans = append(spans, s.snapshot(p.resource, p.scope))
		}
	}
	for batch := range slices.Chunk(spans, p.settings.Batch) {
		p.send(ctx, batch, full)
	}
}

// send sends one batch, and logs when that begins to fail or works again. full says that other spans were dropped.
func (p *pipeline) send(ctx context.Context, batch []sdktrace.ReadOnlySpan, full bool) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.ExportTimeout)
	defer cancel()
	err := p.exporter.ExportSpans(ctx, batch)
	lost := rejected(err, len(batch))
	p.refused.Add(float64(lost))
	p.sent.Add(float64(len(batch) - lost))
	switch {
	case lost == len(batch):
		p.report("traces can't be delivered", err)
	case lost > 0:
		p.report("the trace collector rejects some spans", err)
	case full:
		p.report("the trace collector is too slow", nil)
	default:
		p.report("", nil)
	}
}

// partly is the error of a collector that took some of the spans, or all of them with a warning. Its type isn't
// exported (otlptracegrpc/internal.PartialSuccess), and its text may have several lines.
var partly = regexp.MustCompile(`(?s)OTLP partial success: .* \((\d+) spans rejected\)`)

// rejected returns how many of n spans weren't taken, by the error of an export.
func rejected(err error, n int) int {
	if err == nil {
		return 0
	}
	found := partly.FindStringSubmatch(err.Error())
	if found == nil {
		return n
	}
	some, err := strconv.Atoi(found[1])
	if err != nil || some > n {
		return n
	}
	return some
}

// report logs what is wrong with the collector if it is news: of a collector that comes and goes, once a minute.
func (p *pipeline) report(trouble string, err error) {
	if trouble == p.trouble {
		return
	}
	if trouble != "" {
		if _, ok := p.news.Take(trouble, time.Now()); !ok {
			return
		}
	}
	p.trouble = trouble
	switch {
	case trouble == "":
		p.log.Info("traces are delivered again")
	case err != nil:
		p.log.Info(trouble+"; reconciles go on, spans are dropped and counted until it works again", "error",
			text.Line(err.Error(), text.Note))
	default:
		p.log.Info(trouble + "; reconciles go on, spans are dropped and counted until it keeps up")
	}
}

// OnStart implements sdktrace.SpanProcessor.
func (p *pipeline) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (p *pipeline) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.room(1) {
		p.spans = append(p.spans, s)
	}
}

// Shutdown implements sdktrace.SpanProcessor; run ends with its context.
func (p *pipeline) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor; run sends in its own time.
func (p *pipeline) ForceFlush(context.Context) error { return nil }
