package telemetry

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-dev/tenure/pkg/text"
)

// Span is one finished span, as plain data.
type Span struct {
	TraceID    trace.TraceID
	SpanID     trace.SpanID
	Parent     trace.SpanID // zero for the root
	Name       string
	Kind       trace.SpanKind
	Start, End time.Time
	Attributes []attribute.KeyValue
	Links      []trace.Link
	// Failed is the kind of error that the span ended with; "" for none.
	Failed string
}

// newTraceID returns a random trace id.
func newTraceID() (id trace.TraceID) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	// Never all zero, which is invalid. The bit that is always set is the one that counts least for inRatio.
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id
}

// rootOf returns the ID of a reconcile's root span. It follows from the trace ID, so the trace ID is enough to link to
// it.
func rootOf(id trace.TraceID) (root trace.SpanID) {
	copy(root[:], id[8:])
	return root
}

// NewSpanID returns a random span id.
func NewSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// context returns the context by which others refer to the span.
func (s *Span) context() trace.SpanContext { return sampledContext(s.TraceID, s.SpanID) }

func sampledContext(traceID trace.TraceID, spanID trace.SpanID) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled})
}

// snapshot returns the span in the form that exporters take. The SDK's tracer makes spans as things happen; ours are
// made afterwards, and this is the SDK's way to make a span from plain data.
//
// Names of objects, paths, and the reasons in API servers' answers come from elsewhere. Invalid UTF-8 in one would make
// the exporter refuse the whole batch.
func (s *Span) snapshot(from *resource.Resource, by instrumentation.Scope) sdktrace.ReadOnlySpan {
	for i, a := range s.Attributes {
		if a.Value.Type() == attribute.STRING {
			s.Attributes[i].Value = attribute.StringValue(text.Line(a.Value.AsString(), text.Note))
		}
	}
	stub := tracetest.SpanStub{
		Name: text.Line(s.Name, text.Note), SpanContext: s.context(), SpanKind: s.Kind, StartTime: s.Start, EndTime: s.End,
		Attributes: s.Attributes, Resource: from, InstrumentationScope: by,
	}
	if s.Parent.IsValid() {
		stub.Parent = sampledContext(s.TraceID, s.Parent)
	}
	for _, l := range s.Links {
		stub.Links = append(stub.Links, sdktrace.Link{SpanContext: l.SpanContext, Attributes: l.Attributes})
	}
	if s.Failed != "" {
		stub.Status = sdktrace.Status{Code: codes.Error, Description: text.Line(s.Failed, text.Note)}
	}
	return stub.Snapshot()
}

// inRatio decides by the trace ID alone, like OpenTelemetry's ratio sampler: a trace that one process samples at some
// ratio is sampled by every process with the same or a higher ratio.
func inRatio(id trace.TraceID, ratio float64) bool {
	if ratio >= 1 {
		return true
	}
	return binary.BigEndian.Uint64(id[8:16])>>1 < uint64(ratio*(1<<63))
}
