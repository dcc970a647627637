package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

func TestLatenciesAreNativeHistogramsWithTheTraceAsExemplar(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, Config{Settings: always(), Registerer: registry})
	r.queue.Add(testKey)
	r.reconcile(t, fine)
	id := find(t, r.sent(t), "reconcile At").SpanContext.TraceID().String()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.Metric {
			h := m.GetHistogram()
			if h.GetSampleCount() == 0 {
				continue
			}
			seen++
			if h.GetSchema() != 3 || len(h.PositiveSpan) == 0 || len(h.Bucket) != len(Buckets) {
				t.Errorf("%s: schema %d, %d spans, %d classic buckets", f.GetName(), h.GetSchema(), len(h.PositiveSpan), len(h.Bucket))
			}
			if len(h.Exemplars) != 1 || h.Exemplars[0].Label[0].GetValue() != id {
				t.Errorf("%s: exemplars %v, want trace %s", f.GetName(), h.Exemplars, id)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d histograms, want waiting and working", seen)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestTheOldestKeyIsTheOneThatIsReadyLongestAndNotOneThatIsNotDue(t *testing.T) {
	r := newRig(t, Config{})
	q := r.controller.queue.Load()
	other := testKey
	other.Name = "other"
	q.AddAfter(other, time.Hour)
	if age := q.oldest(); age != 0 {
		t.Errorf("nothing is ready, and the oldest waits for %v", age)
	}
	q.Add(testKey)
	time.Sleep(20 * time.Millisecond)
	q.Add(testKey) // once more: it still waits since the first time
	if age := q.oldest(); age < 20*time.Millisecond || age > 20*time.Second {
		t.Errorf("the oldest waits for %v", age)
	}
	key, _ := q.Get()
	if age := q.oldest(); key != testKey || age != 0 {
		t.Errorf("with %v in hand the oldest waits for %v", key, age)
	}
	q.Done(key)
	if len(q.taken) != 0 || q.noted.Load() != 1 {
		t.Errorf("%d keys in hand and %d noted, want none and the one that isn't due", len(q.taken), q.noted.Load())
	}
}
