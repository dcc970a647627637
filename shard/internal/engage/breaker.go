package engage

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/shard/protocol"
)

// ErrStalled is the cause when requests are given up because the cluster accepts them and never answers. It is a
// timeout: errors.Is(ErrStalled, context.DeadlineExceeded) is true.
var ErrStalled error = stalled{}

type stalled struct{}

func (stalled) Error() string        { return "the cluster doesn't answer" }
func (stalled) Is(target error) bool { return target == context.DeadlineExceeded }

const (
	// stallAfter is how long a cluster may leave all requests unanswered before they are given up. While it answers
	// anything, the others wait: its priority and fairness may be queueing a request, a webhook may take long to
	// admit a write, or an aggregated server to answer a read. After half of the time, an inquiry is made on behalf
	// of a request.
	stallAfter = 3 * time.Second
	// longestAnswer is for how long inquiries are made on behalf of one request. After it, API servers give the
	// request up. So does this replica soon after, whatever else the cluster answers, if nothing has come of the
	// request itself: a proxy may have lost it.
	longestAnswer = time.Minute
	// listStallAfter is the same for lists. A list holds no worker, and repeating it repeats all its work, on a
	// server that has too much to do.
	listStallAfter = 15 * time.Second
	// FirstPause and LastPause bound how long a cluster that failed is left alone; the pause doubles in between. When
	// a cluster is back, work on its backlog begins a second after LastPause at most: its keys don't come back all at
	// once.
	FirstPause = time.Second
	LastPause  = 4 * time.Second
)

// Breaker judges a cluster by the requests of its shards. It keeps a cluster that can't be used from holding the
// workers of a controller. All shards of a real cluster share one. While it is open, the cluster's keys are put off,
// and once per pause one of them is let through on trial: it probes with real work. It is safe for concurrent use;
// the zero value is closed.
type Breaker struct {
	mu   sync.Mutex // guards seen
	seen judgement

	asking atomic.Bool // an inquiry is on its way
}

// PutOff returns how long a key of a namespace should wait, 0 if it needn't. again says that the cluster refused the
// key before, by 403 or 500. When a pause is over, the caller is let through on trial, and others wait on.
func (b *Breaker) PutOff(namespace string, again bool) (wait time.Duration, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.putOff(time.Now(), namespace, again)
}

// Untried records that the caller that was let through on trial sent no request: the next caller is let through at
// once.
func (b *Breaker) Untried() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.untried(time.Now())
}

// Reset closes the breaker and forgets what it was judged by, because the cluster is reached another way from now on.
// It keeps the times of the last answers.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = judgement{lastAnswer: b.seen.lastAnswer, lastUsable: b.seen.lastUsable}
}

// alive records the answer to an inquiry.
func (b *Breaker) alive(says Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.speaks(time.Now(), says)
}

// Left returns for how long the keys of a namespace are put off; open is false if they aren't. Unlike PutOff, it lets
// no key through on trial.
func (b *Breaker) Left(namespace string) (wait time.Duration, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.left(time.Now(), namespace)
}

// Open reports whether keys are put off, and why.
func (b *Breaker) Open() (open bool, why Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.all.expire(time.Now())
	return !b.seen.all.until.IsZero(), b.seen.all.cause
}

// State returns the cluster's state and its cause, judged by its recent answers.
func (b *Breaker) State() (protocol.ClusterState, Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.state(time.Now())
}

// LastUsable returns when the cluster last answered, at least in part, with anything that doesn't say that it can't
// be used from here. Answers of 401 and 502 to 504 say that, even to lists, which caches repeat all the time.
func (b *Breaker) LastUsable() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.lastUsable
}

// lastAnswer returns when the cluster last answered anything, at least in part.
func (b *Breaker) lastAnswer() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.lastAnswer
}

// answered records an answer to a list or a watch. It shows that the cluster isn't silent. If it is a refusal, it
// counts for State, but puts no keys off. A watch has no page.
func (b *Breaker) answered(res *http.Response, of *page) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	cause := causeOf(res.StatusCode)
	if of != nil && of.optional && res.StatusCode == http.StatusForbidden {
		cause = ""
	}
	b.seen.speaks(now, cause)
	b.seen.count(now, cause)
}

// Judge records the answer to a request, how long it took, and for how long it asks to wait.
func (b *Breaker) Judge(req *http.Request, res *http.Response, took, retryAfter time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cause := causeOf(res.StatusCode)
	switch {
	case cause == Throttling && !namesOne(req.URL.Path) && strings.HasSuffix(req.URL.Path, "/eviction"):
		b.seen.speaks(time.Now(), "") // a disruption budget's word about one Pod
	case cause != "":
		namespace := namespaceOf(req.URL.Path)
		if asked := askedOf(req.Context()); asked != nil && asked.cluster == b {
			namespace = asked.namespace
		}
		b.seen.refuse(time.Now(), namespace, cause, took, retryAfter)
	default:
		b.seen.serve(time.Now(), took)
	}
}

// took adds the time that the cluster took for the rest of an answer that had begun.
func (b *Breaker) took(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.now.took += d
}

// heard records that a part of an answer has arrived that doesn't say that the cluster can't be used.
func (b *Breaker) heard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.lastAnswer = time.Now()
	b.seen.lastUsable = b.seen.lastAnswer
}

// failed records that a request got no answer.
func (b *Breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.unanswered(time.Now())
}

// watchOver bounds one request: its context ends with ErrStalled once nothing at all has come from the cluster for
// the time of patience, or nothing of its own answer for that and longestAnswer. If asks isn't empty, that inquiry is
// made after half of it, or of the caller's time if that is less. A caller with too little time gets none by then, and
// its deadline shows nothing: see silent.
func (b *Breaker) watchOver(ctx context.Context, path string, patience time.Duration, asks inquiry) *watching {
	now := time.Now()
	w := &watching{of: b, sent: now, path: path, patience: patience, asks: asks, own: now}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.asksAfter = patience / 2
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now) >= FirstPause {
		w.asksAfter = min(patience, deadline.Sub(now)) / 2
	}
	first := patience
	if asks.base != nil {
		first = w.asksAfter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(first, w.look)
	return w
}

// watching watches over one request.
type watching struct {
	of       *Breaker
	ctx      context.Context // the request's
	cancel   context.CancelCauseFunc
	sent     time.Time
	path     string
	patience time.Duration
	asks     inquiry
	// asksAfter is for how long nothing must have come from the cluster before the inquiry is made.
	asksAfter time.Duration

	mu    sync.Mutex  // guards all below, also against the timer's own first firing
	timer *time.Timer // stopped for good when the watching ends
	own   time.Time   // when a part of the answer to this request came last, or it was sent
}

// hears records that a part of the answer to this request has arrived.
func (w *watching) hears() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = time.Now()
}

// look gives the request up, or sets the timer for the next look. It runs in the timer's goroutine.
func (w *watching) look() {
	quiet := w.quiet()
	asks := w.asks.base != nil && (streams(w.path) || time.Since(w.sent) < longestAnswer)
	if asks && quiet >= w.asksAfter && quiet < w.patience {
		w.of.ask(w.ctx, w.asks, w.patience-quiet)
		quiet = w.quiet()
	}
	left := w.patience - quiet
	if asks && quiet < w.asksAfter {
		left = w.asksAfter - quiet
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !streams(w.path) {
		left = min(left, longestAnswer+w.patience-time.Since(w.own))
	}
	switch {
	case w.ctx.Err() != nil: // ended meanwhile: a timer would outlive it, and hold the request
	case left <= 0:
		w.cancel(ErrStalled)
	default:
		w.timer.Reset(left)
	}
}

// quiet returns for how long nothing has come from the cluster since the request was sent.
func (w *watching) quiet() time.Duration {
	if heard := w.of.lastAnswer(); heard.After(w.sent) {
		return time.Since(heard)
	}
	return time.Since(w.sent)
}

// silent reports whether nothing came from the cluster for so long before the caller's deadline that it counts as
// silent. That takes an inquiry that isn't answered either: without one, it may just be slow with this request.
func (w *watching) silent() bool {
	deadline, _ := w.ctx.Deadline()
	since, least := w.sent, FirstPause
	if heard := w.of.lastAnswer(); heard.After(since) { // so long after that, an inquiry was due
		since, least = heard, w.asksAfter+FirstPause
	}
	return w.asks.base != nil && deadline.Sub(since) >= least
}

// end ends the watching.
func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}

// ask makes an inquiry, unless another is being made, and records an answer. The inquiry outlives the request that it
// is made for, since others may rely on it.
func (b *Breaker) ask(ctx context.Context, i inquiry, within time.Duration) {
	if !b.asking.CompareAndSwap(false, true) {
		return
	}
	defer b.asking.Store(false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if says, ok := i.answer(ctx); ok {
		b.alive(says)
	}
}
