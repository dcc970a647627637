package engage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/tenure-dev/tenure/pkg/apipath"
	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
)

// Traffic counts what one workload cluster sent this replica, and bounds and judges the requests to it. It is safe
// for concurrent use.
type Traffic struct {
	// ListWatchBytes is the size of all answers to requests that read, as read from the (decompressed) body: lists,
	// watches and live reads of single objects.
	ListWatchBytes atomic.Uint64
	// Kept and Discarded count the objects and events that were in the shard they were requested for, or not.
	Kept, Discarded atomic.Uint64
	// FencedWrites counts the writes that were refused because their shard wasn't held.
	FencedWrites atomic.Uint64
	// UnansweredWrites counts the writes that were sent, and of which it isn't known whether they were carried out.
	UnansweredWrites atomic.Uint64
	// Abandoned counts the reconciles that didn't return although their context has ended, for as long as they run.
	Abandoned atomic.Int64
	// Breaker judges whether the cluster can be used.
	Breaker Breaker

	fills turnstile.Turnstile
	lists turnstile.Turnstile
	limit limit
}

// SetLimits bounds the requests of all shards of the cluster together from now on, also those that wait already.
func (t *Traffic) SetLimits(to kubeconfig.Limits) { t.limit.set(to) }

// Writes returns how many writes were sent and not answered yet, how many wait for their turn, and the limits.
func (t *Traffic) Writes() (inFlight, waiting int, limits kubeconfig.Limits) {
	inFlight, waiting = t.limit.count()
	return inFlight, waiting, t.limit.get()
}

// ServerSide reports whether the API server filters: every object that has arrived was in the shard that it was
// requested for. It is meaningless before anything has arrived.
func (t *Traffic) ServerSide() bool { return t.Discarded.Load() == 0 }

// fence is the transport of one shard: it refuses writes while the gate is shut and signs every request.
type fence struct {
	gate    *Gate
	base    http.RoundTripper
	traffic *Traffic
}

func (f *fence) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	if asksFor(req.URL.Path, "exec", "attach", "portforward") {
		// client-go makes a connection for each of these from the rest.Config, without the shard's credentials. Its
		// failure would say nothing about the cluster.
		closeBody(req)
		return nil, fmt.Errorf("%s %s: %w: use the config of Manager.Unfenced", req.Method, req.URL.Path, ErrUnfenceable)
	}
	if !mutates(req.Method) {
		if err := f.traffic.limit.pace(req.Context()); err != nil {
			return nil, err
		}
		sent := time.Now()
		res, err := f.send(req.Context(), req)
		if err != nil {
			return nil, ofWaiting(req.Context(), began, sent, err)
		}
		counted := &countedBody{ReadCloser: res.Body, bytes: &f.traffic.ListWatchBytes, page: pageOf(req.Context())}
		if counted.page == nil && namesOne(req.URL.Path) {
			counted.page = &page{most: largestObject}
		}
		res.Body = counted
		return res, nil
	}
	// Wait for the turn first, and then ask the gate: the shard may be lost while the write waits.
	if err := f.traffic.limit.beginWrite(req.Context()); err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, done, end, err := f.gate.beginWrite(req.Context())
	if err != nil {
		f.traffic.limit.writes.Leave()
		f.traffic.FencedWrites.Add(1)
		closeBody(req)
		return nil, err
	}
	var res *http.Response
	err = errPanicked // unless it returns
	defer func() {
		// A server error says no more than silence does: an API server that gave a request up may still commit it.
		answered := err == nil && res.StatusCode < http.StatusInternalServerError || utilnet.IsConnectionRefused(err)
		if !answered {
			f.traffic.UnansweredWrites.Add(1)
		}
		done(answered)
		f.traffic.limit.writes.Leave()
		if err != nil {
			end()
		}
	}()
	sent := time.Now()
	if res, err = f.send(ctx, req); err != nil {
		return nil, ofWaiting(req.Context(), began, sent, err)
	}
	bounded := &countedBody{ReadCloser: res.Body, page: &page{most: largestObject}}
	res.Body = &releasingBody{ReadCloser: bounded, release: end}
	return res, nil
}

var errPanicked = errors.New("the transport panicked")

// closeBody closes the body of a request that isn't sent, as a RoundTripper must.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// send signs a request and sends it, watched over by the cluster's breaker.
func (f *fence) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	return f.traffic.Breaker.send(ctx, req, f.base, f.gate.agentNow(), pageOf(ctx) != nil)
}

// send sends a request, and judges the cluster by the result. agent is its User-Agent, "" for the request's own.
func (b *Breaker) send(ctx context.Context, req *http.Request, base http.RoundTripper, agent string,
	list bool) (*http.Response, error) {
	if watches(req) {
		return b.watch(signed(ctx, req, agent), base)
	}
	patience, asks := listStallAfter, inquiry{}
	if !list || len(belowNamespace(req.URL.Path)) > 2 { // a log, or the answer of a Service, may be long in coming
		patience, asks = stallAfter, inquiry{base: base, to: req.URL, agent: cmp.Or(agent, req.UserAgent())}
	}
	w := b.watchOver(ctx, req.URL.Path, patience, asks)
	answered := false
	defer func() { // also if the transport panics
		if !answered {
			w.end()
		}
	}()
	sent := time.Now()
	res, err := base.RoundTrip(signed(w.ctx, req, agent))
	switch {
	case err == nil:
		answered = true
		b.received(ctx, req, res, w, list, sent)
		return res, nil
	case ctx.Err() == nil, // not given up by the caller, or by a deadline that shows that the cluster is silent
		errors.Is(ctx.Err(), context.DeadlineExceeded) && w.silent():
		b.failed()
		cause := context.Cause(w.ctx)
		if open, why := b.Open(); cause == nil && !list && open && why == Silence && wouldRepeat(req, err) {
			cause = fmt.Errorf("%w: connections to it are closed", ErrStalled)
		}
		if cause != nil {
			err = fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, cause)
		} else {
			askedOf(ctx).note(askedBy{cluster: b, lost: true})
		}
	}
	return nil, err
}

// received judges the cluster by the head of an answer to a request that was sent then, and has the answer's body go on
// with that while it is read.
func (b *Breaker) received(ctx context.Context, req *http.Request, res *http.Response, w *watching, list bool,
	sent time.Time) {
	w.hears()
	body := &timedBody{ReadCloser: res.Body, heard: w.hears, broke: func() {
		if ctx.Err() == nil { // not given up by the caller
			b.failed()
			askedOf(ctx).note(askedBy{cluster: b, lost: true})
		}
	}}
	res.Body = body
	disbelieve(req, res)
	if !causeOf(res.StatusCode).unusable() {
		body.heard = func() { w.hears(); b.heard() }
	}
	release := w.end
	if list {
		b.answered(res, pageOf(ctx))
		tellRetryAfter(ctx, b, res)
	} else {
		b.Judge(req, res, time.Since(sent), tellRetryAfter(ctx, b, res))
		body.took.Store(0) // what was read until now is judged already
		release = func() {
			w.end()
			if !streams(req.URL.Path) {
				b.took(time.Duration(body.took.Load()))
			}
		}
	}
	res.Body = &releasingBody{ReadCloser: res.Body, release: release}
}

// signed returns a copy of a request with a context and a User-Agent, "" for its own: a RoundTripper must not change
// the caller's request.
func signed(ctx context.Context, req *http.Request, agent string) *http.Request {
	req = req.WithContext(ctx)
	if agent != "" {
		req.Header = req.Header.Clone()
		req.Header.Set("User-Agent", agent)
	}
	return req
}

// watch sends a request to watch, and judges the cluster by whether it is answered. A watch may be silent.
func (b *Breaker) watch(req *http.Request, base http.RoundTripper) (*http.Response, error) {
	res, err := beginWatch(req, b, base)
	switch {
	case err == nil:
		disbelieve(req, res)
		b.answered(res, nil)
	case req.Context().Err() == nil: // not given up by the caller
		b.failed()
		askedOf(req.Context()).note(askedBy{cluster: b, lost: true})
	}
	return res, err
}

// Unfenced is a transport for the requests to one cluster that no shard sends. It judges the cluster as a shard's
// transport does, and fences nothing.
func Unfenced(base http.RoundTripper, breaker *Breaker) http.RoundTripper {
	return &unfenced{base, breaker}
}

type unfenced struct {
	base    http.RoundTripper
	breaker *Breaker
}

func (u *unfenced) RoundTrip(req *http.Request) (*http.Response, error) {
	list := !mutates(req.Method) && !namesOne(req.URL.Path)
	return u.breaker.send(req.Context(), req, u.base, "", list)
}

// largestObject bounds an answer that is one object, in bytes: several times what an API server takes. So a server
// that isn't what it claims to be can't fill the memory. An event of a watch has a bound of its own ([largestEvent]).
const largestObject = 16 << 20

// namesOne reports whether an API server's path is that of one object.
func namesOne(path string) bool {
	return len(belowNamespace(path)) == 2 // not of a subresource, which may be a log
}

// belowNamespace returns RESOURCE[/NAME[/SUBRESOURCE]] of an API server's path; nil if it is of no resource.
func belowNamespace(path string) []string {
	parts := apipath.Parts(path)
	if len(parts) > 2 && parts[0] == "namespaces" {
		return parts[2:]
	}
	return parts
}

// streams reports whether a path is that of a subresource that may take its time: the API server passes such requests
// on, and doesn't bound them.
func streams(path string) bool {
	return asksFor(path, "proxy", "log", "exec", "attach", "portforward")
}

// asksFor reports whether a path is that of one of these subresources of a Pod, Service or Node.
func asksFor(path string, subresources ...string) bool {
	for _, of := range []string{"/pods/", "/services/", "/nodes/"} {
		for rest := path; ; {
			i := strings.Index(rest, of)
			if i < 0 {
				break
			}
			before := rest[:i]
			rest = rest[i+len(of)-1:] // it begins with the slash before the name
			if strings.HasSuffix(before, "/namespaces") {
				continue // a namespace of that name
			}
			if parts := strings.Split(rest, "/"); len(parts) > 2 && slices.Contains(subresources, parts[2]) {
				return true
			}
		}
	}
	return false
}

// namespaceOf returns the namespace that an API server's path is in, or the Namespace that it is about; "" for none.
func namespaceOf(path string) string {
	if parts := apipath.Parts(path); len(parts) > 1 && parts[0] == "namespaces" {
		return parts[1]
	}
	return ""
}

// disbelieve makes what isn't the API server's own answer a 503: a 404, a redirect, or a page of HTML. An ingress that
// reloads answers 404 to everything for a moment, and who takes that for the API server's word forgets an object that
// is there. The API server's own has the ID of an audit event, and comes as a Status unless its kind isn't served. A
// page to log in at, or a redirect to one, is never its own.
func disbelieve(req *http.Request, res *http.Response) {
	if len(apipath.Parts(req.URL.Path)) == 0 || streams(req.URL.Path) {
		return // it is about no object
	}
	page := res.StatusCode == http.StatusOK && strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
	if page || res.StatusCode >= http.StatusMultipleChoices && res.StatusCode < http.StatusBadRequest {
		unavailable(res)
		return
	}
	if res.StatusCode != http.StatusNotFound {
		return
	}
	prefix, _, _ := apipath.Cut(req.URL.Path)
	audited := res.Header.Get("Audit-Id") != "" && !strings.HasSuffix(prefix, "/proxy") // else it is the outer server's
	if audited || strings.HasPrefix(res.Header.Get("Content-Type"), "application/vnd.kubernetes.") {
		return
	}
	const longest = 64 << 10 // of a Status that says that an object isn't there
	head, _ := io.ReadAll(io.LimitReader(res.Body, longest))
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body} // which fails again if it failed
	if !bytes.Contains(head, []byte(`"Status"`)) {
		unavailable(res)
	}
}

// unavailable makes an answer a 503.
func unavailable(res *http.Response) {
	res.StatusCode, res.Status = http.StatusServiceUnavailable, "503 "+http.StatusText(http.StatusServiceUnavailable)
}

// wouldRepeat reports whether client-go would send a request again by itself, ten times, a second apart. While a
// cluster is silent, that would hold a worker for longer than a cluster that hangs.
func wouldRepeat(req *http.Request, err error) bool {
	return req.Method == http.MethodGet &&
		(utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err))
}

func mutates(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// timedBody measures how long its readers wait, and tells what comes.
type timedBody struct {
	io.ReadCloser
	took  atomic.Int64 // nanoseconds spent in Read
	heard func()       // called for each piece
	broke func()       // called if it ends before its end
}

func (b *timedBody) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.took.Add(int64(time.Since(began)))
	if n > 0 {
		b.heard()
	}
	if err != nil && err != io.EOF {
		b.broke()
	}
	return n, err
}

// countedBody counts the bytes that are read from it, and bounds them.
type countedBody struct {
	io.ReadCloser
	bytes *atomic.Uint64 // they are added to this; nil to count none
	page  *page          // bounds it; nil for no bound
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bytes != nil {
		b.bytes.Add(uint64(n))
	}
	if b.page != nil {
		if large := b.page.got(n); large != nil {
			return n, large
		}
	}
	return n, err
}

// releasingBody frees the request's context when it is closed.
type releasingBody struct {
	io.ReadCloser
	release func()
	once    sync.Once
}

func (b *releasingBody) Close() error {
	defer b.once.Do(b.release)
	return b.ReadCloser.Close()
}
