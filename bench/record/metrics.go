package record

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics is a page of metrics.
type Metrics map[string]*dto.MetricFamily

// Scrape reads the page of a process.
func Scrape(ctx context.Context, address string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity") // compressing it would cost the replica more than the rest of the page
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer response.Body.Close()
	return ParseMetrics(response.Body)
}

// ParseMetrics reads a page in Prometheus' text format.
func ParseMetrics(page io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return families, nil
}

// Sum adds up the counters and gauges of a name with the given labels. A name that isn't there is an error; one that
// is there, without such labels, is zero.
func (m Metrics) Sum(name string, labels map[string]string) (float64, error) {
	family := m[name]
	if family == nil {
		return 0, fmt.Errorf("metric %s is missing", name)
	}
	var sum float64
	for _, metric := range family.GetMetric() {
		if !matches(metric, labels) {
			continue
		}
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
	}
	return sum, nil
}

func matches(metric *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range metric.GetLabel() {
		if want, ok := labels[l.GetName()]; ok {
			if want != l.GetValue() {
				return false
			}
			found++
		}
	}
	return found == len(labels)
}
