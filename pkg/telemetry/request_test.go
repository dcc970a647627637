package telemetry

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnAPICallIsNamedByVerbAndResource(t *testing.T) {
	for path, want := range map[string]request{
		"GET /api/v1/namespaces/ns/pods":                        {"list", "pods", ""},
		"GET /api/v1/namespaces/ns/pods/one":                    {"get", "pods", "one"},
		"POST /api/v1/namespaces/ns/pods":                       {"create", "pods", ""},
		"PUT /apis/g/v1/namespaces/ns/ats/one/status":           {"update", "ats/status", "one"},
		"PATCH /apis/apps/v1/namespaces/ns/deployments/one":     {"patch", "deployments", "one"},
		"DELETE /api/v1/namespaces/ns/pods/one":                 {"delete", "pods", "one"},
		"DELETE /api/v1/namespaces/ns/pods":                     {"deletecollection", "pods", ""},
		"GET /api/v1/namespaces/ns":                             {"get", "namespaces", "ns"},
		"GET /api/v1/nodes":                                     {"list", "nodes", ""},
		"GET /k8s/clusters/c-1/apis/g/v1/namespaces/ns/ats/one": {"get", "ats", "one"},
		"GET /version": {"get", "/version", ""},
		"GET /api":     {"get", "/api", ""},
		"GET ":         {"get", "", ""},
	} {
		var method, rest string
		_, _ = fmt.Sscanf(path, "%s %s", &method, &rest) // an empty path stays empty
		if got := parseRequest(method, rest); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func FuzzParseRequestTakesAnyPath(f *testing.F) {
	f.Add("GET", "/apis/g/v1/namespaces/ns/ats/one/status")
	f.Add("POST", "//api//v1//")
	f.Fuzz(func(_ *testing.T, method, path string) { parseRequest(method, path) })
}

func TestTheKindOfAnErrorNeverQuotesIt(t *testing.T) {
	for want, err := range map[string]error{
		"":                    nil,
		"Conflict":            fmt.Errorf("writing: %w", apierrors.NewConflict(schema.GroupResource{}, "secret", errors.New("secret"))),
		"Canceled":            fmt.Errorf("reading: %w", context.Canceled),
		"DeadlineExceeded":    context.DeadlineExceeded,
		"*errors.errorString": fmt.Errorf("a secret: %w", errors.New("secret")),
	} {
		if got := ErrorKind(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

func TestOnlyTheLastWritesAreRemembered(t *testing.T) {
	var w writes
	at := func(i int) version { return version{"uid", fmt.Sprint(i)} }
	by := func(i int) trace.SpanContext {
		return sampledContext(trace.TraceID{1, byte(i), byte(i >> 8)}, trace.SpanID{1})
	}
	for i := range 3 * rememberedWrites {
		w.note(at(i), by(i))
	}
	if len(w.traces) != rememberedWrites {
		t.Errorf("%d are remembered", len(w.traces))
	}
	last := 3*rememberedWrites - 1
	if got, ok := w.find(at(last)); !ok || !got.Equal(by(last)) {
		t.Error("the last is forgotten")
	}
	if _, ok := w.find(at(last - rememberedWrites)); ok {
		t.Error("an old one is remembered")
	}
}
