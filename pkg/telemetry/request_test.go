package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestOnlyAnAPIServerThatContinuesOurTracesIsToldToRecordThem(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string // "" for none
		sampled bool
	}{
		"administrator": {`{"status": {"userInfo": {"groups": ["system:authenticated", "system:masters"]}}}`, true},
		"monitoring":    {`{"status": {"userInfo": {"groups": ["system:monitoring", "system:authenticated"]}}}`, true},
		"service account": {`{"status": {"userInfo": {"groups": ["system:serviceaccounts", "system:authenticated"]}}}`,
			false},
		"it can't tell": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &knowing{answer: c.answer, allowed: make(chan struct{})}
			listener := httptest.NewServer(server)
			defer listener.Close()
			r := newRig(t, Config{Settings: always()})
			send := r.transport(t, &rest.Config{
				Host: listener.URL, BearerToken: "token", ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			})
			sampled := func() bool {
				r.queue.Add(testKey)
				r.reconcile(t, func(ctx context.Context) (reconcile.Result, error) {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, listener.URL+"/api/v1/namespaces/ns/pods/one", nil)
					if err != nil {
						return reconcile.Result{}, err
					}
					res, err := send.RoundTrip(req)
					if err == nil {
						err = res.Body.Close()
					}
					return reconcile.Result{}, err
				})
				_, header := server.saw()
				return strings.HasSuffix(header, "-01")
			}
			if !sampled() {
				t.Error("not flagged while it isn't known")
			}
			close(server.allowed)
			asked := func() int {
				n, _ := server.saw()
				return n
			}
			for end := time.Now().Add(time.Minute); time.Now().Before(end) && (asked() == 0 || sampled() != c.sampled); {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(50 * time.Millisecond) // for an answer that changes what it should not
			if got := sampled(); got != c.sampled {
				t.Errorf("flagged: %v, want %v", got, c.sampled)
			}
			if n := asked(); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestAnAnswerWithoutAnEndToWhoWeAreIsGivenUp(t *testing.T) {
	groups := `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"groups":["a"]}}}`
	for spaces, want := range map[int]bool{0: true, 20 << 20: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bytes.Repeat([]byte(" "), spaces))
			_, _ = w.Write([]byte(groups))
		}))
		defer server.Close()
		if got, err := groupsOf(t.Context(), &rest.Config{Host: server.URL}); (len(got) == 1) != want {
			t.Errorf("behind %d spaces: %v, %v", spaces, got, err)
		}
	}
}

// knowing is an API server that knows, or doesn't, who asks it.
type knowing struct {
	answer  string
	allowed chan struct{} // until it is closed, the question isn't answered

	mu     sync.Mutex // guards all below
	asked  int
	header string // the traceparent of the last request that wasn't a question
}

func (k *knowing) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	question := req.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	if question {
		select {
		case <-k.allowed:
		case <-req.Context().Done():
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !question {
		k.header = req.Header.Get("Traceparent")
		return
	}
	k.asked++
	if k.answer == "" || req.Header.Get("Authorization") != "Bearer token" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(k.answer))
}

func (k *knowing) saw() (asked int, header string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked, k.header
}

func TestASpanOfACallIsNamedAfterTheRequest(t *testing.T) {
	for path, want := range map[string]string{"/api/v1/namespaces/ns/pods": "list pods", "/version": "get /version"} {
		c := call{method: http.MethodGet, path: path}
		if got := c.span(trace.TraceID{}, trace.SpanID{}).Name; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestTheKindOfAnErrorNeverQuotesIt(t *testing.T) {
	for want, err := range map[string]error{
		"": nil,
		"Conflict": fmt.Errorf("writing: %w",
			apierrors.NewConflict(schema.GroupResource{}, "secret", errors.New("secret"))),
		"Canceled":            fmt.Errorf("reading: %w", context.Canceled),
		"DeadlineExceeded":    context.DeadlineExceeded,
		"*errors.errorString": fmt.Errorf("a secret: %w", errors.New("secret")),
	} {
		if got := errorKind(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

func TestOnlyTheLastWritesAreRemembered(t *testing.T) {
	w := newWrites()
	at := func(i int) version { return version{"uid", fmt.Sprint(i)} }
	by := func(i int) trace.SpanContext {
		return sampledContext(trace.TraceID{1, byte(i), byte(i >> 8)}, trace.SpanID{1})
	}
	for i := range 3 * rememberedWrites {
		w.note(at(i), by(i))
	}
	if w.traces.Len() != rememberedWrites {
		t.Errorf("%d are remembered", w.traces.Len())
	}
	last := 3*rememberedWrites - 1
	if got, ok := w.find(at(last)); !ok || !got.Equal(by(last)) {
		t.Error("the last is forgotten")
	}
	if _, ok := w.find(at(last - rememberedWrites)); ok {
		t.Error("an old one is remembered")
	}
}
