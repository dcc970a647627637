package statuspage

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/tenure-dev/tenure/pkg/console"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// Names of the metrics that are shown.
const (
	metricWait   = "tenure_queue_wait_seconds"
	metricOldest = "tenure_oldest_key_wait_seconds"
	metricDepth  = "workqueue_depth"
	metricUsable = "tenure_cluster_usable"
)

// Queue is how long keys wait at this replica.
type Queue struct {
	Controller string  `json:"controller"`
	Waiting    int     `json:"waiting"`
	Oldest     float64 `json:"oldestSeconds"`
	// Reconciles began within the last Over seconds; P50 and P99 are what they had waited, nil without any.
	Reconciles uint64   `json:"reconciles"`
	Over       float64  `json:"overSeconds"`
	P50        *float64 `json:"p50Seconds"`
	P99        *float64 `json:"p99Seconds"`
}

// metrics is what is taken from this process's metrics.
type metrics struct {
	clusters []console.Answer
	queues   map[string]queue // by controller
}

type queue struct {
	depth  int
	oldest float64
	wait   histogram
}

// readMetrics picks what is shown.
func readMetrics(families []*dto.MetricFamily) metrics {
	m := metrics{queues: map[string]queue{}}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range x.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			controller := cmp.Or(labels["controller"], labels["name"])
			q := m.queues[controller]
			switch f.GetName() {
			case metricWait:
				q.wait = readHistogram(x.GetHistogram())
			case metricOldest:
				q.oldest = max(q.oldest, x.GetGauge().GetValue()) // one series for each cluster
			case metricDepth:
				q.depth += int(x.GetGauge().GetValue())
			case metricUsable:
				m.clusters = append(m.clusters, console.Answer{Cluster: keyspace.ClusterName(labels["cluster"]),
					Reason: labels["reason"]})
				continue
			default:
				continue
			}
			m.queues[controller] = q
		}
	}
	for name, q := range m.queues {
		if q.wait.count == 0 && q.wait.bounds == nil {
			delete(m.queues, name) // a queue without keys of a shard, such as that of the clusters' Secrets
		}
	}
	slices.SortFunc(m.clusters, func(a, b console.Answer) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return m
}

// histogram is counts by upper bound, not cumulated; the last bound is infinite.
type histogram struct {
	bounds []float64
	counts []uint64
	count  uint64
}

func readHistogram(from *dto.Histogram) histogram {
	h := histogram{count: from.GetSampleCount()}
	below := uint64(0)
	for _, b := range from.GetBucket() {
		h.bounds = append(h.bounds, b.GetUpperBound())
		h.counts = append(h.counts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	if n := len(h.bounds); n == 0 || !math.IsInf(h.bounds[n-1], 1) {
		h.bounds = append(h.bounds, math.Inf(1))
		h.counts = append(h.counts, h.count-below)
	}
	return h
}

// minus is what was added since an earlier state of the same histogram.
func (h histogram) minus(earlier histogram) histogram {
	if len(earlier.counts) != len(h.counts) || earlier.count > h.count {
		return h
	}
	d := histogram{bounds: h.bounds, counts: slices.Clone(h.counts), count: h.count - earlier.count}
	for i := range d.counts {
		d.counts[i] -= min(d.counts[i], earlier.counts[i])
	}
	return d
}

// quantile interpolates within a bucket, as Prometheus does; nil if there is nothing.
func (h histogram) quantile(q float64) *float64 {
	if h.count == 0 {
		return nil
	}
	rank, below := q*float64(h.count), 0.0
	lower := 0.0
	for i, n := range h.counts {
		if below+float64(n) >= rank && n > 0 {
			value := lower
			if !math.IsInf(h.bounds[i], 1) {
				value = lower + (h.bounds[i]-lower)*(rank-below)/float64(n)
			}
			return &value
		}
		below += float64(n)
		lower = h.bounds[i]
	}
	return nil
}
