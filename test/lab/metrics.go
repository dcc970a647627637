package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics is a page of metrics, by name.
type Metrics map[string]*dto.MetricFamily

// scrape reads the page of a process.
func scrape(ctx context.Context, address string) (Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	page, err := Get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return ParseMetrics(bytes.NewReader(page))
}

// Get reads what is at a URL. An answer that isn't 200 is an error: what is looked for in it would seem not to be
// there.
func Get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// compressing a page of metrics would cost the replica more than the rest of it
	request.Header.Set("Accept-Encoding", "identity")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
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

// Sum adds up the counters, gauges, and numbers of observations of a name with the given labels. A name that isn't
// there is an error; one that is there, without such labels, is zero.
func (m Metrics) Sum(name string, labels map[string]string) (float64, error) {
	if m[name] == nil {
		return 0, fmt.Errorf("metric %s is missing", name)
	}
	_, sum := m.Count(name, labels)
	return sum, nil
}

// Count counts the series of a name with the given labels, and adds them up.
func (m Metrics) Count(name string, labels map[string]string) (series int, sum float64) {
	for _, metric := range m[name].GetMetric() {
		if matches(labelsOf(metric), labels) {
			series++
			sum += value(metric)
		}
	}
	return series, sum
}

// By adds up the values of a name for each value of a label; nil if the name isn't there.
func (m Metrics) By(name, label string) map[string]float64 {
	if m[name] == nil {
		return nil
	}
	sums := map[string]float64{}
	for _, metric := range m[name].GetMetric() {
		sums[labelsOf(metric)[label]] += value(metric)
	}
	return sums
}

func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() +
		float64(m.GetHistogram().GetSampleCount())
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

func matches(found, wanted map[string]string) bool {
	for name, value := range wanted {
		if got, ok := found[name]; !ok || got != value {
			return false
		}
	}
	return true
}
