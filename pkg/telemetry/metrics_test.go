package telemetry

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/test/must"
)

func TestLatenciesAreNativeHistogramsWithTheTraceAsExemplar(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, Config{Settings: always(), Registerer: registry})
	r.queue.Add(testKey)
	r.reconcile(t, fine)
	id := find(t, r.sent(t), "reconcile At").SpanContext.TraceID().String()
	families, err := registry.Gather()
	must.Succeed(t, err)
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
			if h.GetSchema() != 3 || len(h.PositiveSpan) == 0 || len(h.Bucket) != len(buckets) {
				t.Errorf("%s: schema %d, %d spans, %d classic buckets", f.GetName(), h.GetSchema(),
					len(h.PositiveSpan), len(h.Bucket))
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

func TestExemplarsGoOnWhenTheClockIsPutBack(t *testing.T) {
	c := newRig(t, Config{}).controller
	now := time.Now()
	for i, step := range []struct {
		at    time.Duration
		wants bool
	}{
		{0, true}, {exampleEvery / 2, false}, {exampleEvery, true},
		{-time.Hour, true}, {exampleEvery/2 - time.Hour, false}, {exampleEvery - time.Hour, true},
	} {
		if c.wantsExample(now.Add(step.at)) != step.wants {
			t.Errorf("step %d, at %v: want %v", i, step.at, step.wants)
		}
	}
}

func TestWhatWaitsIsToldByCluster(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := newRig(t, Config{Registerer: registry})
	value := func(name string, labels ...string) (found float64) {
		families, err := registry.Gather()
		must.Succeed(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				of := map[string]bool{}
				for _, l := range m.GetLabel() {
					of[l.GetValue()] = true
				}
				if f.GetName() == name && !slices.ContainsFunc(labels, func(l string) bool { return !of[l] }) {
					found += m.GetGauge().GetValue()
				}
			}
		}
		return found
	}
	other := testKey
	other.Name = "other"
	r.queue.AddAfter(other, time.Hour)
	if age := value("tenure_oldest_key_wait_seconds"); age != 0 {
		t.Errorf("nothing is ready, and the oldest waits for %v s", age)
	}
	r.queue.Add(testKey)
	time.Sleep(20 * time.Millisecond)
	r.queue.Add(testKey) // once more: it still waits since the first time
	if age := value("tenure_oldest_key_wait_seconds", "west"); age < .02 || age > 20 {
		t.Errorf("the oldest waits for %v s", age)
	}
	if n := value("tenure_cluster_keys", "west", "ready"); n != 1 {
		t.Errorf("%v keys of the cluster are ready, want 1: its shards count together", n)
	}
	key, _ := r.queue.Get()
	if age := value("tenure_oldest_key_wait_seconds"); key != testKey || age != 0 ||
		value("tenure_cluster_keys", "west", "running") != 1 {
		t.Errorf("with %v in hand the oldest waits for %v s", key, age)
	}
	guarded, ok := r.controller.Traced(nil).(interface { // as shard.Manager.Guard asks
		CountPutOff(waits func() []fairqueue.Backlog)
	})
	if !ok {
		t.Fatal("a guard can't say which keys are put off")
	}
	guarded.CountPutOff(func() []fairqueue.Backlog {
		return []fairqueue.Backlog{{Cluster: "west", Ready: 2, Wait: 50 * time.Second}, // of two shards
			{Cluster: "west", Ready: 3, Wait: 40 * time.Second}, {Cluster: "north", Ready: 7, Wait: time.Minute}}
	})
	for cluster, want := range map[string]struct{ running, putOff, oldest float64 }{
		"west": {1, 5, 50}, "north": {0, 7, 60},
	} {
		running, putOff := value("tenure_cluster_keys", cluster, "running"), value("tenure_cluster_keys", cluster, "put-off")
		if old := value("tenure_oldest_key_wait_seconds", cluster); running != want.running || putOff != want.putOff ||
			old != want.oldest {
			t.Errorf("%s: %v running, %v put off, oldest waits for %v s, want %+v", cluster, running, putOff, old, want)
		}
	}
}
