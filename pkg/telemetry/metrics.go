package telemetry

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
)

// buckets are the classic buckets of our latency histograms, for servers without native histograms: 1 ms to 2 min.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}

// NewLatency returns the options of a latency histogram in seconds, both native and classic.
func NewLatency(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
}

// Results of reconciles.
const (
	resultSuccess = "success"
	resultTimer   = "requeue_after"
	resultRetry   = "requeue"
	resultError   = "error"
)

// reconcileMetrics collects the metrics of all controllers of the process.
type reconcileMetrics struct {
	wait *prometheus.HistogramVec
	took *prometheus.HistogramVec
	// For each cluster that has keys in a queue, or put off.
	keys *prometheus.Desc
	old  *prometheus.Desc

	mu     sync.Mutex // guards all below, which are by controller
	queues map[string]*queue
	putOff map[string]func() []fairqueue.Backlog
}

func newReconcileMetrics() *reconcileMetrics {
	return &reconcileMetrics{
		wait: prometheus.NewHistogramVec(NewLatency("tenure_queue_wait_seconds",
			"Time from when a key was ready to the start of its reconcile."), []string{"controller"}),
		took: prometheus.NewHistogramVec(NewLatency("tenure_reconcile_seconds",
			"Time that a reconcile took, by its result (success, requeue_after, requeue, error)."),
			[]string{"controller", "result"}),
		keys: prometheus.NewDesc("tenure_cluster_keys",
			"Keys of a cluster, by state: ready for a worker, running with one, or put-off until the cluster serves them. "+
				"Absent for a cluster that has none.",
			[]string{"controller", "cluster", "state"}, nil),
		old: prometheus.NewDesc("tenure_oldest_key_wait_seconds",
			"How long the cluster's oldest key that is ready or put off has been waiting. Absent for a cluster without keys.",
			[]string{"controller", "cluster"}, nil),
		queues: map[string]*queue{}, putOff: map[string]func() []fairqueue.Backlog{},
	}
}

// Describe implements prometheus.Collector.
func (m *reconcileMetrics) Describe(ch chan<- *prometheus.Desc) {
	m.wait.Describe(ch)
	m.took.Describe(ch)
	ch <- m.keys
	ch <- m.old
}

// Collect implements prometheus.Collector.
func (m *reconcileMetrics) Collect(ch chan<- prometheus.Metric) {
	m.wait.Collect(ch)
	m.took.Collect(ch)
	for name, clusters := range m.waiting() {
		for cluster, w := range clusters {
			for state, n := range map[string]int{"ready": w.Ready, "running": w.Running, "put-off": w.putOff} {
				ch <- prometheus.MustNewConstMetric(m.keys, prometheus.GaugeValue, float64(n), name, cluster, state)
			}
			ch <- prometheus.MustNewConstMetric(m.old, prometheus.GaugeValue, w.Wait.Seconds(), name, cluster)
		}
	}
}

// waiting are the keys of a cluster in a queue, and those that are put off; Wait is of both.
type waiting struct {
	fairqueue.Backlog
	putOff int
}

// waiting returns the keys that wait, by controller and cluster.
func (m *reconcileMetrics) waiting() map[string]map[string]waiting {
	all := map[string]map[string]waiting{}
	at := func(controller string) map[string]waiting {
		if all[controller] == nil {
			all[controller] = map[string]waiting{}
		}
		return all[controller]
	}
	for name, q := range m.all() {
		for _, b := range q.Backlogs() {
			at(name)[b.Cluster] = waiting{Backlog: b}
		}
	}
	m.mu.Lock()
	putOff := maps.Clone(m.putOff)
	m.mu.Unlock()
	for name, backlogs := range putOff {
		for _, b := range backlogs() { // of each shard
			w := at(name)[b.Cluster]
			w.putOff, w.Wait = w.putOff+b.Ready, max(w.Wait, b.Wait)
			at(name)[b.Cluster] = w
		}
	}
	return all
}

// Backlogs returns the backlog of each cluster in each queue. It is safe for concurrent use.
func (t *Telemetry) Backlogs() (all []fairqueue.Backlog) {
	for _, q := range t.metrics.all() {
		all = append(all, q.Backlogs()...)
	}
	return all
}

// all is a copy of the queues.
func (m *reconcileMetrics) all() map[string]*queue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.queues)
}

func (m *reconcileMetrics) add(name string, q *queue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[name] = q
}

// CountPutOff sets the function that returns the controller's keys that are put off; shard.Manager.Guard calls this.
func (c *Controller) CountPutOff(waits func() []fairqueue.Backlog) {
	m := c.telemetry.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putOff[c.name] = waits
}

// ObserveWith records a value, with the trace as its exemplar if the trace is valid.
func ObserveWith(o prometheus.Observer, seconds float64, from trace.SpanContext) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && from.IsValid() {
		e.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": from.TraceID().String()})
		return
	}
	o.Observe(seconds)
}
