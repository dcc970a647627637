package telemetry

import (
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"

	"github.com/tenure-dev/tenure/pkg/text"
)

func TestTextsOfOthersAreFitForSpans(t *testing.T) {
	nasty := "\x1b[2J\u202e\xff" + strings.Repeat("long ", 10_000)
	span := Span{Name: nasty, Failed: nasty, Attributes: []attribute.KeyValue{
		attribute.String("name", nasty), attribute.Int("n", 7), attribute.String("plain", "one"),
	}}
	got := span.snapshot(nil, instrumentation.Scope{})
	want := text.Line(nasty, text.Note)
	if got.Name() != want || got.Status().Description != want {
		t.Errorf("name %.50q, status %.50q", got.Name(), got.Status().Description)
	}
	for i, want := range []string{want, "7", "one"} {
		if got := got.Attributes()[i].Value.Emit(); got != want {
			t.Errorf("attribute %d: %.50q, want %.50q", i, got, want)
		}
	}
}

func TestTheShareThatIsSampledIsTheRatio(t *testing.T) {
	const all = 400_000
	for _, ratio := range []float64{0, .001, .01, .25, 1} {
		sampled := 0
		for range all {
			if inRatio(newTraceID(), ratio) {
				sampled++
			}
		}
		want := ratio * all
		if off := math.Abs(float64(sampled) - want); off > 6*math.Sqrt(want*(1-ratio)) {
			t.Errorf("ratio %v: %d of %d are sampled, want about %.0f", ratio, sampled, all, want)
		}
	}
}
