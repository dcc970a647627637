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

// TransportFor is rest.TransportFor, but a request that waits for a program that makes credentials ends with its
// context, too. client-go waits for the program however long that runs, and so the cluster would never be judged.
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

// leftBehind counts the requests that go on after their context has ended, by server and program: *atomic.Int64 by
// string. What is here stays, as client-go keeps what it knows of each program.
var leftBehind sync.Map

// mostLeftBehind bounds how many requests wait for one program although nobody waits for them.
const mostLeftBehind = 16

// impatient has requests end with their context. The one below may go on until the program has ended. client-go runs
// it once at a time, and the others wait for that.
type impatient struct {
	base http.RoundTripper
	left *atomic.Int64
}

// answer is what a request came to.
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
	sent := req.Clone(ctx) // the caller may use its own again
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

// WrappedRoundTripper is the one below.
func (i *impatient) WrappedRoundTripper() http.RoundTripper { return i.base }
