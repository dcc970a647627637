package telemetry

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/bench/machine"
	"github.com/tenure-dev/tenure/test/must"
)

type readOnlySpan = sdktrace.ReadOnlySpan

// lockedBuffer takes what several goroutines log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wantOnce checks that each of these was logged once.
func (l *lockedBuffer) wantOnce(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if n := strings.Count(l.String(), text); n != 1 {
			t.Errorf("%q is told %d times:\n%s", text, n, l.String())
		}
	}
}

func value(t testing.TB, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	must.Succeed(t, m.Write(&out))
	return out.GetCounter().GetValue()
}

// observed is how many observations a histogram has.
func observed(t testing.TB, o prometheus.Observer) uint64 {
	t.Helper()
	var out dto.Metric
	must.Succeed(t, o.(prometheus.Metric).Write(&out))
	return out.GetHistogram().GetSampleCount()
}

// answering is an API server that takes no time.
type answering struct{ res *http.Response }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) { return a.res, nil }

// hotPath is what a reconcile with three API calls adds: everything between the queue and the next one.
func hotPath(t testing.TB, cfg Config) func() {
	r := newRig(t, cfg)
	send := r.transport(t, &rest.Config{Host: "https://west",
		Transport: answering{&http.Response{StatusCode: http.StatusOK, Body: http.NoBody}}})
	req, err := http.NewRequest(http.MethodPut,
		"https://west/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/ns/ats/one/status", nil)
	must.Succeed(t, err)
	traced := r.controller.Traced(reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
			call := req
			if ctx != req.Context() {
				call = req.WithContext(ctx)
			}
			for range 3 {
				_, _ = send.RoundTrip(call) // always answers
			}
			return reconcile.Result{}, nil
		}))
	q := r.controller.queue.Load()
	if cfg.Settings.Enabled {
		t.Cleanup(r.start(t))
	}
	ctx := req.Context()
	return func() {
		q.Add(testKey)
		key, _ := q.Get()
		_, _ = traced.Reconcile(ctx, key) // never fails
		q.Done(key)
	}
}

func TestNothingIsAllocatedWhileTracingIsOff(t *testing.T) {
	if allocs := testing.AllocsPerRun(1000, hotPath(t, Config{})); allocs != 0 {
		t.Errorf("%v allocations per reconcile", allocs)
	}
	var config rest.Config
	if New(Config{}).Wrap(&config); config.WrapTransport != nil {
		t.Error("the transport is wrapped though tracing is off")
	}
}

func BenchmarkHotPath(b *testing.B) {
	sampled := always()
	sampled.Delay, sampled.Queue = 100*time.Millisecond, 1<<16
	percent := sampled
	percent.Ratio = .01
	for name, cfg := range map[string]Config{
		"off":                   {},
		"1% and slow or failed": {Settings: percent, Slow: time.Second, Exporter: &stubborn{}},
		"1%":                    {Settings: percent, Exporter: &stubborn{}},
		"100%":                  {Settings: sampled, Exporter: &stubborn{}},
	} {
		b.Run(name, func(b *testing.B) {
			f := hotPath(b, cfg)
			b.ReportAllocs()
			before := machine.ProcessorTime()
			for b.Loop() {
				f()
			}
			// What counts on a busy machine: processor time, that of the sending goroutine included.
			b.ReportMetric(float64(machine.ProcessorTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
