package engage

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStalled is the cause with which requests to a cluster are given up that accepts them and never answers. It is a
// timeout to whoever asks.
var ErrStalled error = stalled{}

type stalled struct{}

func (stalled) Error() string        { return "the cluster doesn't answer" }
func (stalled) Is(target error) bool { return target == context.DeadlineExceeded }

const (
	// stallAfter is how long a cluster may leave all requests unanswered before they are given up. A slow cluster that
	// answers something is waited for: its own priority and fairness may be queueing the request, or a webhook may take
	// long to admit a write. For the sake of a write an inquiry is made at half of that time.
	stallAfter = 3 * time.Second
	// longestAnswer is for how long inquiries are made for one write. API servers give requests up after it.
	longestAnswer = time.Minute
	// listStallAfter is the same for lists. They hold no worker, and one that is asked for again is the same work again
	// for a server that has too much of it.
	listStallAfter = 15 * time.Second
	// FirstPause and LastPause bound how long a cluster that failed is left alone; it doubles in between. A cluster that
	// is back has its backlog begun a second after LastPause at most: its keys don't come back all at once.
	FirstPause = time.Second
	LastPause  = 4 * time.Second
)

// Breaker is what is known of a cluster by the requests of its shards, and keeps the workers of a controller from being
// held by one that can't use them. One serves all shards of a real cluster. While it is open, the cluster's keys are
// put off, and every pause one of them is let through to see: it probes with real work. It is safe for concurrent use;
// the zero value is closed.
type Breaker struct {
	mu   sync.Mutex // guards seen
	seen judgement

	asking atomic.Bool // an inquiry is on its way
}

// PutOff returns how long a key of a namespace should wait, 0 if it needn't; again says that it was refused before,
// by 403 or 500.
// When a pause is over the caller is the one that is let through, on trial, and the others wait on.
func (b *Breaker) PutOff(namespace string, again bool) (wait time.Duration, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.putOff(time.Now(), namespace, again)
}

// Untried says that who was let through on trial asked the cluster nothing: the next one is let through at once.
func (b *Breaker) Untried() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.untried(time.Now())
}

// Reset forgets why keys are put off: the cluster is reached in another way from now on.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = judgement{lastAnswer: b.seen.lastAnswer, lastUsable: b.seen.lastUsable}
}

// alive notes the answer to an inquiry.
func (b *Breaker) alive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.speaks(time.Now(), "")
}

// Left is for how long a key of a namespace that has just failed is put off, and whether it is. It lets none through.
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

// State is how the cluster stands, and why, by what was heard of it lately.
func (b *Breaker) State() (State, Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.state(time.Now())
}

// LastUsable is when the cluster last answered anything, or a part of it, but that it can't be used from here: by 401
// or 502 to 504, be it to the lists of caches, which are asked for again and again.
func (b *Breaker) LastUsable() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.lastUsable
}

// lastAnswer is when the cluster last answered anything, or a part of it.
func (b *Breaker) lastAnswer() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.lastAnswer
}

// answered notes an answer that isn't judged, to a list or a watch: the cluster isn't silent. If it refuses them, that
// is no reason to put keys off, but worth telling.
func (b *Breaker) answered(res *http.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	cause := causeOf(res.StatusCode)
	b.seen.speaks(now, cause)
	b.seen.count(now, cause)
}

// Judge notes the answer to a request, after so long.
func (b *Breaker) Judge(req *http.Request, res *http.Response, took time.Duration) {
	b.judge(req, res, took, retryAfter(res))
}

func (b *Breaker) judge(req *http.Request, res *http.Response, took, retryAfter time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cause := causeOf(res.StatusCode); cause != "" {
		b.seen.refuse(time.Now(), namespaceOf(req.URL.Path), cause, took, retryAfter)
		return
	}
	b.seen.serve(time.Now(), took)
}

// took notes for how long an answer was read that had begun.
func (b *Breaker) took(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.now.took += d
}

// heard notes that a part of an answer has arrived.
func (b *Breaker) heard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.lastAnswer = time.Now()
	b.seen.lastUsable = b.seen.lastAnswer
}

// failed notes that a request got no answer.
func (b *Breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.unanswered(time.Now())
}

// watchOver bounds one request: its context ends with ErrStalled once nothing at all has come from the cluster for so
// long. Where asks isn't empty, that is asked at half of the time.
func (b *Breaker) watchOver(ctx context.Context, patience time.Duration, asks inquiry) *watching {
	w := &watching{of: b, sent: time.Now(), patience: patience, asks: asks}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	first := patience
	if asks.base != nil {
		first /= 2
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(first, w.look)
	return w
}

// watching is how one request is watched over.
type watching struct {
	of       *Breaker
	ctx      context.Context // the request's
	cancel   context.CancelCauseFunc
	sent     time.Time
	patience time.Duration
	asks     inquiry

	mu    sync.Mutex  // guards all below, from the timer's own first firing, too
	timer *time.Timer // stopped for good when the watching ends
}

// look gives the request up, or sees to it that it is looked at again. It runs in the timer's goroutine.
func (w *watching) look() {
	half, quiet := w.patience/2, w.quiet()
	asks := w.asks.base != nil && time.Since(w.sent) < longestAnswer
	if asks && quiet >= half && quiet < w.patience {
		w.of.ask(w.ctx, w.asks, w.patience-quiet)
		quiet = w.quiet()
	}
	left := w.patience - quiet
	if asks && quiet < half {
		left = half - quiet
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ctx.Err() != nil: // the watching has ended meanwhile: a timer would outlive it, and hold the request
	case left <= 0:
		w.cancel(ErrStalled)
	default:
		w.timer.Reset(left)
	}
}

// quiet is for how long nothing has come from the cluster since the request was sent.
func (w *watching) quiet() time.Duration {
	if heard := w.of.lastAnswer(); heard.After(w.sent) {
		return time.Since(heard)
	}
	return time.Since(w.sent)
}

// end ends the watching.
func (w *watching) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}

// ask makes an inquiry, unless another is being made, and notes an answer. It outlives the request that it is made for,
// since others may rely on it.
func (b *Breaker) ask(ctx context.Context, i inquiry, within time.Duration) {
	if !b.asking.CompareAndSwap(false, true) {
		return
	}
	defer b.asking.Store(false)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if i.isAnswered(ctx) {
		b.alive()
	}
}
