package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// flushTimeout bounds the sending of what is left when the process ends.
const flushTimeout = 3 * time.Second

// story is something that becomes spans.
type story interface{ spans() []Span }

// pipeline takes stories from reconciles without ever making them wait, makes spans of them and sends those in batches.
// To the SDK it is a span processor, which also gets the spans that a program makes itself.
type pipeline struct {
	settings Settings
	exporter sdktrace.SpanExporter
	resource *resource.Resource
	scope    instrumentation.Scope
	log      logr.Logger

	waiting atomic.Int64 // spans in stories, about
	stories chan queued
	full    atomic.Bool // spans were dropped for want of room since the last batch
	closed  atomic.Bool // what comes later is not taken

	mu    sync.Mutex // guards batch
	batch []sdktrace.ReadOnlySpan

	trouble  string // what is wrong with the collector, "" for nothing; of Run alone
	sent     prometheus.Counter
	dropped  *prometheus.CounterVec
	overflow prometheus.Counter
	refused  prometheus.Counter
}

type queued struct {
	story
	size int
}

func newPipeline(settings Settings, exporter sdktrace.SpanExporter, log logr.Logger) *pipeline {
	p := &pipeline{
		settings: settings, exporter: exporter, log: log, stories: make(chan queued, settings.Queue),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenure_trace_spans_sent_total", Help: "Spans that the trace collector took.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_trace_spans_dropped_total",
			Help: "Spans that were lost: queue_full when the collector is too slow, not_taken when it fails or can't be reached.",
		}, []string{"reason"}),
	}
	p.overflow, p.refused = p.dropped.WithLabelValues("queue_full"), p.dropped.WithLabelValues("not_taken")
	return p
}

// submit hands a story of about so many spans over. It never waits.
func (p *pipeline) submit(s story, size int) {
	if p.closed.Load() {
		return
	}
	if p.waiting.Add(int64(size)) <= int64(p.settings.Queue) {
		select {
		case p.stories <- queued{s, size}:
			return
		default:
		}
	}
	p.waiting.Add(-int64(size))
	p.full.Store(true)
	p.overflow.Add(float64(size))
}

// run sends until the context ends, and then what is left.
func (p *pipeline) run(ctx context.Context) {
	ticker := time.NewTicker(p.settings.Delay)
	defer ticker.Stop()
	for {
		select {
		case q := <-p.stories:
			p.tell(q)
			if p.size() >= p.settings.Batch {
				p.send(ctx, p.settings.ExportTimeout)
			}
		case <-ticker.C:
			p.send(ctx, p.settings.ExportTimeout)
		case <-ctx.Done():
			p.finish(context.WithoutCancel(ctx))
			return
		}
	}
}

// finish sends what is left, in bounded time.
func (p *pipeline) finish(ctx context.Context) {
	p.closed.Store(true)
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for {
		select {
		case q := <-p.stories:
			p.tell(q)
			if p.size() < p.settings.Batch {
				continue
			}
		default:
			p.send(ctx, flushTimeout)
			_ = p.exporter.Shutdown(ctx) // nobody is left to be told
			return
		}
		p.send(ctx, flushTimeout)
	}
}

// tell makes spans of a story.
func (p *pipeline) tell(q queued) {
	p.waiting.Add(-int64(q.size))
	for _, s := range q.spans() {
		p.OnEnd(s.snapshot(p.resource, p.scope))
	}
}

func (p *pipeline) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.batch)
}

// send sends the batch and says so when that begins or ceases to work.
func (p *pipeline) send(ctx context.Context, timeout time.Duration) {
	p.mu.Lock()
	batch := p.batch
	p.batch = make([]sdktrace.ReadOnlySpan, 0, p.settings.Batch)
	p.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	// The end of the process must not fail a batch that is half sent, and mustn't wait for it long either.
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })()
	err := p.exporter.ExportSpans(sending, batch)
	if err != nil {
		p.refused.Add(float64(len(batch)))
		p.is("traces can't be delivered", err)
		return
	}
	p.sent.Add(float64(len(batch)))
	if p.full.Swap(false) {
		p.is("the trace collector is too slow", nil)
		return
	}
	p.is("", nil)
}

// is notes what is wrong with the collector and logs it if that is news.
func (p *pipeline) is(trouble string, err error) {
	if trouble == p.trouble {
		return
	}
	p.trouble = trouble
	switch {
	case trouble == "":
		p.log.Info("traces are delivered again")
	case err != nil:
		p.log.Info(trouble+"; reconciles go on, spans are dropped and counted until it works again", "error", shorten(err.Error()))
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
	if len(p.batch) >= p.settings.Queue {
		p.full.Store(true)
		p.overflow.Inc()
		return
	}
	p.batch = append(p.batch, s)
}

// Shutdown implements sdktrace.SpanProcessor; run ends with its context.
func (p *pipeline) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor; run sends in its own time.
func (p *pipeline) ForceFlush(context.Context) error { return nil }
