package fairqueue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// meters are the metrics workqueue_* of one queue, in controller-runtime's own families, where dashboards look for
// them.
type meters struct {
	depth         workqueue.GaugeMetric
	adds, retries workqueue.CounterMetric
	wait, work    workqueue.HistogramMetric
	busy, longest workqueue.SettableGaugeMetric
}

// provider makes series in controller-runtime's families. It isn't exported, but each queue of controller-runtime
// gets it in its options, from where it is taken.
var provider = sync.OnceValue(func() workqueue.MetricsProvider {
	var options *priorityqueue.Opts[int]
	priorityqueue.New("", func(o *priorityqueue.Opts[int]) { options = o }).ShutDown()
	return options.MetricProvider
})

func newMeters(name string) *meters {
	p := provider()
	if name == "" || p == nil {
		return &meters{nothing{}, nothing{}, nothing{}, nothing{}, nothing{}, nothing{}, nothing{}}
	}
	return &meters{
		depth: p.NewDepthMetric(name), adds: p.NewAddsMetric(name), retries: p.NewRetriesMetric(name),
		wait: p.NewLatencyMetric(name), work: p.NewWorkDurationMetric(name),
		busy: p.NewUnfinishedWorkSecondsMetric(name), longest: p.NewLongestRunningProcessorSecondsMetric(name),
	}
}

// unfinished sets for how long workers have had their keys: the sum, and the longest.
func (m *meters) unfinished(total, longest time.Duration) {
	m.busy.Set(total.Seconds())
	m.longest.Set(longest.Seconds())
}

// nothing is a metric that drops all values.
type nothing struct{}

func (nothing) Inc()            {}
func (nothing) Dec()            {}
func (nothing) Observe(float64) {}
func (nothing) Set(float64)     {}
