package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/pkg/apipath"
)

// Wrap traces the API calls that reconciles make with a configuration: each becomes a span and sends its traceparent.
// Call it after all other changes to the configuration. While tracing is off it changes nothing.
func (t *Telemetry) Wrap(config *rest.Config) {
	if t.pipeline == nil {
		return
	}
	server := &apiServer{config: rest.CopyConfig(config)}
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &transport{base: base, propagate: t.cfg.Settings.Propagate, server: server}
	})
}

type transport struct {
	base      http.RoundTripper
	propagate bool
	server    *apiServer
}

// WrappedRoundTripper lets client-go inspect the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }

// RoundTrip sends a request. Its span ends when the answer's header arrives.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	f := flightOf(req.Context())
	if f == nil {
		return t.base.RoundTrip(req)
	}
	c := call{id: NewSpanID(), method: req.Method, path: req.URL.Path, host: req.URL.Host}
	if f.sampled && t.propagate {
		signed := *req                         // a RoundTripper must not change the caller's request
		signed.Header = maps.Clone(req.Header) // the values are shared: they are only replaced as a whole
		signed.Header.Set("Traceparent", traceparent(f.traceID, c.id, t.server.continues()))
		req = &signed
	}
	c.start = time.Now()
	res, err := t.base.RoundTrip(req)
	c.end = time.Now()
	switch {
	case err != nil:
		c.failed = errorKind(err)
	case res.StatusCode >= http.StatusBadRequest:
		c.status, c.failed = res.StatusCode, http.StatusText(res.StatusCode)
	default:
		c.status = res.StatusCode
	}
	f.called(c)
	return res, err
}

func (c *call) span(traceID trace.TraceID, parent trace.SpanID) Span {
	verb, resource, name := apipath.Request(c.method, c.path)
	resource = cmp.Or(resource, c.path)
	as := make([]attribute.KeyValue, 0, 10)
	as = append(as,
		attribute.String("http.request.method", c.method),
		attribute.String("url.path", c.path),
		attribute.String("server.address", c.host),
		attribute.String("k8s.request.verb", verb),
		attribute.String("k8s.request.resource", resource),
	)
	if name != "" {
		as = append(as, attribute.String("k8s.request.name", name))
	}
	if c.status != 0 {
		as = append(as, attribute.Int("http.response.status_code", c.status))
	}
	if c.failed != "" {
		as = append(as, attribute.String("error.type", c.failed))
	}
	return Span{
		TraceID: traceID, SpanID: c.id, Parent: parent, Name: verb + " " + resource, Kind: trace.SpanKindClient,
		Start: c.start, End: c.end, Attributes: as, Failed: c.failed,
	}
}

// errorKind names the kind of an error, in words that can't hold a secret. An error's own text may quote anything.
func errorKind(err error) string {
	if err == nil {
		return "" // before anything is allocated
	}
	var timeout interface{ Timeout() bool }
	switch reason := apierrors.ReasonForError(err); {
	case reason != metav1.StatusReasonUnknown:
		return string(reason)
	case errors.Is(err, context.Canceled):
		return "Canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "DeadlineExceeded"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "Timeout"
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return fmt.Sprintf("%T", err)
}
