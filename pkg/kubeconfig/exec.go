package kubeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// TransportFor is rest.TransportFor, except that a request ends with its context even while it waits for a program
// that makes credentials. client-go waits however long the program runs, so the cluster would never be judged.
func TransportFor(cfg *rest.Config) (http.RoundTripper, error) {
	base, err := rest.TransportFor(cfg)
	if err != nil || cfg.ExecProvider == nil {
		return base, err
	}
	program, err := json.Marshal(cfg.ExecProvider)
	if err != nil {
		return nil, fmt.Errorf("reading what program makes credentials: %w", err)
	}
	left, _ := leftBehind.LoadOrStore(cfg.Host+" "+string(program), &atomic.Int64{})
	return &impatient{base: base, left: left.(*atomic.Int64)}, nil
}

// HTTPClientFor is rest.HTTPClientFor over [TransportFor].
func HTTPClientFor(cfg *rest.Config) (*http.Client, error) {
	transport, err := TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: cfg.Timeout}, nil
}

// leftBehind counts the requests that still run after their context has ended, by server and program: *atomic.Int64
// by string. Entries are never removed, just as client-go keeps its entry for each program.
var leftBehind sync.Map

// mostLeftBehind bounds the requests that wait for one program after their context has ended.
const mostLeftBehind = 16

// impatient is a transport whose requests end with their context. The request below may go on until the program has
// ended. client-go runs a program once at a time, and other requests wait for that run.
type impatient struct {
	base http.RoundTripper
	left *atomic.Int64
}

// answer is the result of a request.
type answer struct {
	res *http.Response
	err error
}

func (i *impatient) RoundTrip(req *http.Request) (*http.Response, error) {
	if n := i.left.Load(); n >= mostLeftBehind {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("the program that makes credentials doesn't end: %d requests wait for it", n)
	}
	ctx := req.Context()
	sent := req.Clone(ctx) // the caller may reuse its request
	came := make(chan answer)
	go func() {
		res, err := i.base.RoundTrip(sent)
		select {
		case came <- answer{res, err}:
			return
		case <-ctx.Done():
		}
		i.left.Add(-1)
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	select {
	case a := <-came:
		return a.res, a.err
	case <-ctx.Done():
		i.left.Add(1)
		return nil, context.Cause(ctx)
	}
}

// WrappedRoundTripper returns the transport below.
func (i *impatient) WrappedRoundTripper() http.RoundTripper { return i.base }
