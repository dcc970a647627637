package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/tenure-dev/tenure/pkg/fairqueue"
	"github.com/tenure-dev/tenure/test/expect"
	"github.com/tenure-dev/tenure/test/must"
)

var testKey = mcreconcile.Request{
	ClusterName: "west/01", Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "one"}},
}

func always() Settings {
	return Settings{Enabled: true, Ratio: 1, Propagate: true, Service: "tenure", Queue: 1000, Batch: 100,
		Delay: time.Millisecond, ExportTimeout: time.Second}
}

// rig is one controller with everything around it.
type rig struct {
	*Telemetry
	controller *Controller
	queue      priorityqueue.PriorityQueue[mcreconcile.Request]
	exporter   *tracetest.InMemoryExporter
	options    mccontroller.Options
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	r := &rig{exporter: tracetest.NewInMemoryExporter()}
	if cfg.Settings.Enabled && cfg.Exporter == nil {
		cfg.Exporter = keeping{r.exporter}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	r.Telemetry = New(cfg)
	r.controller = r.Telemetry.Controller("at", "At")
	r.options = r.controller.Options(mccontroller.Options{}, 0)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second, time.Minute)
	r.queue = r.options.NewQueue("test", limiter).(priorityqueue.PriorityQueue[mcreconcile.Request])
	t.Cleanup(r.queue.ShutDown)
	return r
}

// transport is what requests with a configuration go through.
func (r *rig) transport(t testing.TB, config *rest.Config) http.RoundTripper {
	t.Helper()
	r.Wrap(config)
	send, err := rest.TransportFor(config)
	must.Succeed(t, err)
	return send
}

// keeping is the exporter without its Shutdown, which would forget the spans.
type keeping struct{ *tracetest.InMemoryExporter }

func (keeping) Shutdown(context.Context) error { return nil }

// reconcile takes a key from the queue and reconciles it.
func (r *rig) reconcile(t testing.TB, f func(context.Context) (reconcile.Result, error)) {
	t.Helper()
	key, _ := r.queue.Get()
	traced := r.controller.Traced(reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
			return f(ctx)
		}))
	_, _ = traced.Reconcile(t.Context(), key) // what it returns is up to f
	r.queue.Done(key)
}

// start runs the pipeline until stop is called.
func (r *rig) start(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	return func() { cancel(); <-done }
}

// sent runs the pipeline until everything is sent.
func (r *rig) sent(t testing.TB) tracetest.SpanStubs {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
	return r.exporter.GetSpans()
}

func find(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %q among %d", name, len(spans))
	return tracetest.SpanStub{}
}

func attributes(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

func fine(context.Context) (reconcile.Result, error) { return reconcile.Result{}, nil }

func TestAReconcileIsATraceWithItsWaitAndItsCalls(t *testing.T) {
	var header string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPut { // the other one asks who we are
			header = req.Header.Get("Traceparent")
		}
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	r := newRig(t, Config{Settings: always(), Replica: "r1", Epoch: func(context.Context) int64 { return 7 }})
	r.queue.Add(testKey)
	time.Sleep(20 * time.Millisecond)
	r.reconcile(t, func(ctx context.Context) (reconcile.Result, error) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPut,
			server.URL+"/apis/g/v1/namespaces/ns/ats/one/status?secret=x", nil)
		req.Header.Set("Authorization", "Bearer secret")
		res, err := r.transport(t, &rest.Config{Host: server.URL}).RoundTrip(req)
		must.Succeed(t, err)
		res.Body.Close()
		if req.Header.Get("Traceparent") != "" {
			t.Error("the caller's request was changed")
		}
		return reconcile.Result{RequeueAfter: 3 * time.Second}, nil
	})
	spans := r.sent(t)
	root, wait, call := find(t, spans, "reconcile At"), find(t, spans, "queue wait"), find(t, spans, "update ats/status")
	want := map[string]string{
		"k8s.cluster.name": "west", "k8s.namespace.name": "ns", "k8s.object.kind": "At", "k8s.object.name": "one",
		"tenure.shard": "west/01",
		"tenure.epoch": "7", "tenure.replica": "r1", "tenure.trigger": "event", "tenure.attempt": "1",
		"tenure.result":        "requeue_after",
		"tenure.requeue_after": "3",
	}
	expect.Equal(t, "root", want, attributes(root))
	for _, child := range []tracetest.SpanStub{wait, call} {
		if child.Parent.SpanID() != root.SpanContext.SpanID() || child.SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("%s isn't a child of the root", child.Name)
		}
	}
	if took := wait.EndTime.Sub(wait.StartTime); took < 20*time.Millisecond || !wait.StartTime.Equal(root.StartTime) {
		t.Errorf("queue wait is %v", took)
	}
	if got := attributes(call); got["http.response.status_code"] != "409" || got["error.type"] != "Conflict" ||
		got["k8s.request.name"] != "one" {
		t.Errorf("call: %v", got)
	}
	if header != traceparent(call.SpanContext.TraceID(), call.SpanContext.SpanID(), true) {
		t.Errorf("traceparent %q, want that of the call", header)
	}
	for _, s := range spans {
		for key, value := range attributes(s) {
			if strings.Contains(value, "secret") {
				t.Errorf("%s of %s tells %q", key, s.Name, value)
			}
		}
	}
}

func TestWhatIsSlowOrFailedIsKeptThoughItWasNotSampled(t *testing.T) {
	rare := always()
	rare.Ratio = 0
	slow := func(context.Context) (reconcile.Result, error) { time.Sleep(30 * time.Millisecond); return fine(nil) }
	failed := func(context.Context) (reconcile.Result, error) {
		return reconcile.Result{}, errors.New("with a secret")
	}
	for name, c := range map[string]struct {
		threshold time.Duration
		f         func(context.Context) (reconcile.Result, error)
		kept      bool
	}{
		"quick and fine":             {time.Minute, fine, false},
		"slow":                       {20 * time.Millisecond, slow, true},
		"failed":                     {20 * time.Millisecond, failed, true},
		"failed, but that is off":    {0, failed, false},
		"slow, but not slow enough.": {time.Minute, slow, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Settings: rare, Slow: c.threshold})
			r.queue.Add(testKey)
			r.reconcile(t, c.f)
			spans := r.sent(t)
			if (len(spans) > 0) != c.kept {
				t.Fatalf("%d spans were sent", len(spans))
			}
			if c.kept {
				root := find(t, spans, "reconcile At")
				if attributes(root)["tenure.kept_at_end"] != "true" || strings.Contains(root.Status.Description, "secret") {
					t.Errorf("root %v, status %v", attributes(root), root.Status)
				}
			}
		})
	}
}

func TestWhatIsKeptCanBeChangedWhileReconcilesRun(t *testing.T) {
	r := newRig(t, Config{Settings: always()})
	change := func(ratio float64, slow time.Duration) func(context.Context) (reconcile.Result, error) {
		return func(context.Context) (reconcile.Result, error) {
			r.SetSampling(ratio, slow)
			return reconcile.Result{}, errors.New("no")
		}
	}
	for i, f := range []func(context.Context) (reconcile.Result, error){
		change(0, 0),           // kept: it started before
		change(0, time.Minute), // not kept, though it failed
		change(1, 0),           // kept because it failed
		change(1, 0),           // kept again
	} {
		r.queue.Add(testKey)
		r.reconcile(t, f)
		if i == 0 {
			r.queue.Forget(testKey)
		}
	}
	if roots := len(r.sent(t)) / 2; roots != 3 {
		t.Errorf("%d traces were kept, want 3", roots)
	}
}

func TestWhatWasKeptIsSentWhenWhatIsKeptChanges(t *testing.T) {
	settings := always()
	settings.Delay = time.Hour
	r := newRig(t, Config{Settings: settings})
	defer r.start(t)()
	r.queue.Add(testKey)
	r.reconcile(t, fine)
	r.SetSampling(0, 0)
	must.Until(t, "something is sent", func() bool { return len(r.exporter.GetSpans()) > 0 })
}

func TestAFloodOfFailuresIsNotKeptWhole(t *testing.T) {
	rare := always()
	rare.Ratio = 0
	r := newRig(t, Config{Settings: rare, Slow: time.Minute})
	began := time.Now()
	for range 10 * maxTailKept {
		r.queue.Add(testKey)
		r.reconcile(t, func(context.Context) (reconcile.Result, error) { return reconcile.Result{}, errors.New("no") })
	}
	seconds := int(time.Since(began)/time.Second) + 2
	if kept := len(r.sent(t)) / 2; kept > seconds*maxTailKept {
		t.Errorf("%d traces kept in less than %d s", kept, seconds)
	}
}

func TestAPanicIsToldAndGoesOn(t *testing.T) {
	for name, settings := range map[string]Settings{"traced": always(), "tracing is off": {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Settings: settings})
			r.queue.Add(testKey)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				r.reconcile(t, func(context.Context) (reconcile.Result, error) { panic("ouch") })
			}()
			failed, waited := observed(t, r.controller.took[resultError]), observed(t, r.controller.wait)
			if failed != 1 || waited != 1 {
				t.Errorf("%d failures and %d waits are counted, want one of each", failed, waited)
			}
			if !settings.Enabled {
				return
			}
			if root := find(t, r.sent(t), "reconcile At"); attributes(root)["error.type"] != "panic" {
				t.Errorf("root %v", attributes(root))
			}
		})
	}
}

func TestLogsCarryTheTrace(t *testing.T) {
	never := always()
	never.Ratio = 0
	for name, settings := range map[string]Settings{"of one that is sampled": always(), "of one that fails": never} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := newRig(t, Config{Settings: settings, Slow: time.Hour,
				Log: logr.FromSlogHandler(slog.NewJSONHandler(&out, nil))})
			r.queue.Add(testKey)
			r.reconcile(t, func(context.Context) (reconcile.Result, error) {
				r.options.LogConstructor(&testKey).Info("hello") // controller-runtime asks for the logger while the key is in hand
				return reconcile.Result{}, errors.New("boom")
			})
			root := find(t, r.sent(t), "reconcile At")
			if id := root.SpanContext.TraceID().String(); !strings.Contains(out.String(), `"trace_id":"`+id+`"`) {
				t.Errorf("%s isn't in %s", id, out.String())
			}
		})
	}
}

// stubborn is a collector that doesn't answer, or says no.
type stubborn struct {
	*tracetest.InMemoryExporter
	hangs chan struct{} // not nil: it waits for this to be closed
	fails atomic.Bool
}

func (s *stubborn) ExportSpans(ctx context.Context, _ []readOnlySpan) error {
	if s.hangs != nil {
		select {
		case <-s.hangs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.fails.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (s *stubborn) Shutdown(context.Context) error { return nil }

func TestACollectorThatHangsHoldsNoReconcileUp(t *testing.T) {
	settings := always()
	settings.Queue, settings.Batch, settings.ExportTimeout = 20, 10, time.Hour
	hangs := make(chan struct{})
	r := newRig(t, Config{Settings: settings, Exporter: &stubborn{hangs: hangs}})
	stop := r.start(t)
	var took []time.Duration
	for range 500 {
		began := time.Now()
		r.queue.Add(testKey)
		r.reconcile(t, fine)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if half := took[len(took)/2]; half > 10*time.Millisecond { // a stall of the machine meets a few
		t.Errorf("half of 500 reconciles took more than %v each", half)
	}
	if dropped := value(t, r.pipeline.overflow); dropped < 800 {
		t.Errorf("%v of 1000 spans were counted as dropped, with room for 20", dropped)
	}
	close(hangs)
	stop()
}

func TestACollectorThatFailsIsToldOfOnceAndOnceWhenItWorksAgain(t *testing.T) {
	var out lockedBuffer
	collector := &stubborn{}
	collector.fails.Store(true)
	r := newRig(t, Config{Settings: always(), Exporter: collector,
		Log: logr.FromSlogHandler(slog.NewTextHandler(&out, nil))})
	stop := r.start(t)
	work := func(counter prometheus.Counter) {
		before, deadline := value(t, counter), time.Now().Add(10*time.Second)
		for n := 0; value(t, counter) < before+10; n++ {
			if time.Now().After(deadline) {
				t.Fatal("nothing happens")
			}
			r.queue.Add(testKey)
			r.reconcile(t, fine)
			time.Sleep(2 * time.Millisecond)
		}
	}
	work(r.pipeline.refused)
	collector.fails.Store(false)
	work(r.pipeline.sent)
	stop()
	out.wantOnce(t, "can't be delivered", "delivered again")
}

func TestACollectorThatIsTooSlowIsToldOfOnce(t *testing.T) {
	var out lockedBuffer
	settings := always()
	settings.Queue, settings.Batch = 4, 2
	p := newPipeline(settings, &stubborn{}, logr.FromSlogHandler(slog.NewTextHandler(&out, nil)))
	submit := func() { p.submit(ready{{Name: "a"}, {Name: "b"}}, 2) }
	for range 2 { // it comes and goes within a minute
		for range 3 {
			for range 3 { // the third doesn't fit
				submit()
			}
			p.flush(t.Context())
		}
		submit()
		p.flush(t.Context())
	}
	out.wantOnce(t, "too slow", "delivered again")
}

func TestOnlyWhatIsKeptTakesTheTurnOfAnExemplar(t *testing.T) {
	id := newTraceID()
	for name, kept := range map[string]trace.SpanContext{"kept": sampledContext(id, rootOf(id)), "dropped": {}} {
		r := newRig(t, Config{Settings: always()})
		(&traced{Controller: r.controller}).ended(testKey, &fairqueue.Taken{}, time.Now(), resultSuccess, kept)
		if took := r.controller.example.Load() != 0; took != kept.IsValid() {
			t.Errorf("%s: takes the turn: %v", name, took)
		}
	}
}

func TestSpansThatAReconcilerMakesItselfAreKeptOnlyWithItsTraceAsItsChildren(t *testing.T) {
	for name, slow := range map[string]time.Duration{"may be kept at the end": time.Minute, "can't be kept": 0} {
		t.Run(name, func(t *testing.T) {
			half := always()
			half.Ratio = .5
			r := newRig(t, Config{Settings: half, Slow: slow})
			for range 100 {
				r.queue.Add(testKey)
				r.reconcile(t, func(ctx context.Context) (reconcile.Result, error) {
					_, span := r.provider.Tracer("mine").Start(ctx, "my own")
					span.End()
					return fine(ctx)
				})
			}
			var roots, parents []string
			for _, s := range r.sent(t) {
				switch s.Name {
				case "reconcile At":
					roots = append(roots, s.SpanContext.SpanID().String())
				case "my own":
					parents = append(parents, s.Parent.SpanID().String())
				}
			}
			slices.Sort(roots)
			slices.Sort(parents)
			if len(roots) == 0 || !slices.Equal(roots, parents) {
				t.Errorf("spans of the reconciles %q, children of %q", roots, parents)
			}
		})
	}
}

func TestSpansThatAReconcilerMakesItselfAreSentThoughItsQueueIsNotObserved(t *testing.T) {
	r := newRig(t, Config{Settings: always()})
	other := r.Telemetry.Controller("other", "At").Traced(reconcile.TypedFunc[mcreconcile.Request](
		func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
			_, span := r.provider.Tracer("mine").Start(ctx, "my own")
			span.End()
			return fine(ctx)
		}))
	_, _ = other.Reconcile(t.Context(), testKey) // never fails
	find(t, r.sent(t), "my own")
}
