package handoff

import (
	"crypto/sha256"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenure-dev/tenure/pkg/telemetry"
	"github.com/tenure-dev/tenure/shard"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// idsOf returns the ids of the trace and the root span of a move. All participants compute the same ones.
func idsOf(record string, id keyspace.ShardID, epoch protocol.Epoch) (trace.TraceID, trace.SpanID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "tenure handoff\x00%s\x00%s\x00%d", record, id, epoch))
	return trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])
}

// stepSpan is one step of a move that leads to the epoch.
func stepSpan(s shard.Step, epoch protocol.Epoch) telemetry.Span {
	traceID, root := idsOf(string(s.Record), s.Shard, epoch)
	span := telemetry.Span{
		TraceID: traceID, SpanID: telemetry.NewSpanID(), Parent: root,
		Name: string(s.Name), Kind: trace.SpanKindInternal, Start: s.Start, End: s.End,
		Attributes: append(about(s.Shard, epoch), attribute.String("tenure.incarnation", string(s.Incarnation))),
	}
	if s.Peer != "" {
		span.Attributes = append(span.Attributes, attribute.String("tenure.peer", string(s.Peer)))
	}
	if s.Outcome != protocol.Committed {
		span.Failed = s.Outcome.String()
	}
	return span
}

func about(id keyspace.ShardID, epoch protocol.Epoch) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("k8s.cluster.name", string(id.Cluster)),
		attribute.String("tenure.shard", id.String()),
		attribute.Int64("tenure.epoch", int64(epoch)),
	}
}

// arrival is a move to this replica. Its root span is open until the first reconcile.
type arrival struct {
	shard.Activation
	warm     *shard.Step // nil if it isn't known
	claim    *shard.Step // nil after a handoff
	activate *shard.Step
}

// spans returns the root span and the steps that only this replica knows. first is nil if there was no reconcile.
func (a *arrival) spans(first *telemetry.Reconciled) []telemetry.Span {
	traceID, rootID := idsOf(string(a.Record), a.Shard, a.Epoch)
	start, end := a.activate.Start, a.activate.End
	var steps []telemetry.Span
	for _, before := range []*shard.Step{a.claim, a.warm} {
		if before != nil {
			steps = append(steps, stepIn(*before, a.Epoch, a.Record))
			if before.Start.Before(start) {
				start = before.Start
			}
		}
	}
	steps = append(steps, stepIn(*a.activate, a.Epoch, a.Record))
	if first != nil {
		end = first.End
		steps = append(steps, firstSpan(a, *first, traceID, rootID))
	}
	root := telemetry.Span{
		TraceID: traceID, SpanID: rootID, Name: "handoff " + a.Shard.String(), Kind: trace.SpanKindInternal,
		Start: start, End: end,
		Attributes: append(about(a.Shard, a.Epoch),
			attribute.String("tenure.incarnation", string(a.Incarnation)),
			attribute.String("tenure.peer", string(a.From)),
			attribute.String("tenure.move", string(a.Kind)),
			attribute.Float64("tenure.gap_ms", float64(a.Gap)/float64(time.Millisecond)),
			attribute.Int64("tenure.objects", a.Objects),
		),
	}
	return append([]telemetry.Span{root}, steps...)
}

// stepIn returns the span of a step, under a record whose UID is known only now: a replica may claim a shard before
// its watch shows the new record.
func stepIn(s shard.Step, epoch protocol.Epoch, record types.UID) telemetry.Span {
	s.Record = record
	return stepSpan(s, epoch)
}

// unserved returns the failed root span of a move whose new holder never served the shard, for instance because its
// cluster can't be reached. last is the step that shows this.
func (p *pending) unserved(last shard.Step, epoch protocol.Epoch) []telemetry.Span {
	traceID, rootID := idsOf(string(last.Record), last.Shard, epoch)
	root := telemetry.Span{
		TraceID: traceID, SpanID: rootID, Name: "handoff " + last.Shard.String(), Kind: trace.SpanKindInternal,
		Start: last.Start, End: last.End,
		Attributes: append(about(last.Shard, epoch), attribute.String("tenure.incarnation", string(last.Incarnation))),
		Failed:     "never served",
	}
	if p.claim == nil || p.claim.Epoch != epoch {
		return []telemetry.Span{root}
	}
	root.Start = p.claim.Start
	return []telemetry.Span{root, stepIn(*p.claim, epoch, last.Record)}
}

func firstSpan(a *arrival, first telemetry.Reconciled, traceID trace.TraceID, parent trace.SpanID) telemetry.Span {
	span := telemetry.Span{
		TraceID: traceID, SpanID: telemetry.NewSpanID(), Parent: parent, Name: "first reconcile",
		Kind:  trace.SpanKindInternal,
		Start: first.Start, End: first.End,
		Attributes: append(about(a.Shard, a.Epoch), attribute.String("tenure.incarnation", string(a.Incarnation))),
	}
	if first.Trace.IsValid() {
		span.Links = []trace.Link{{SpanContext: first.Trace,
			Attributes: []attribute.KeyValue{attribute.String("tenure.link", "is")}}}
	}
	return span
}
