package engage

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrStalled is the cause with which requests to a cluster are given up that accepts them and never answers.
var ErrStalled = errors.New("the cluster doesn't answer")

const (
	// stallAfter is how long a cluster may leave all requests unanswered before they are given up. A slow cluster that
	// answers something is waited for: its own priority and fairness may be queueing the request.
	stallAfter = 3 * time.Second
	// listStallAfter is the same for lists. They hold no worker, and one that is asked for again is the same work again
	// for a server that has too much of it.
	listStallAfter = 15 * time.Second
	// FirstPause and lastPause bound how long a cluster that failed is left alone; it doubles in between.
	FirstPause = time.Second
	lastPause  = 15 * time.Second
)

// Breaker keeps the workers of a controller from being held by a cluster that doesn't answer. One serves all shards of
// a real cluster. While it is open, the cluster's keys are put off; every pause, one request is let through to see.
// It is safe for concurrent use; the zero value is closed.
type Breaker struct {
	mu         sync.Mutex // guards all below
	lastAnswer time.Time  // or a part of one
	openUntil  time.Time  // zero while closed
	pause      time.Duration
}

// PutOff returns how long the cluster's keys should wait, 0 if they needn't. When a pause is over the caller is the one
// that is let through, and the others wait on.
func (b *Breaker) PutOff() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openUntil.IsZero() {
		return 0
	}
	if wait := time.Until(b.openUntil); wait > 0 {
		return wait
	}
	b.openUntil = time.Now().Add(b.pause)
	return 0
}

// Open reports whether the last that was heard of the cluster was a failure.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.openUntil.IsZero()
}

// LastAnswer is when the cluster last answered anything, or a part of it.
func (b *Breaker) LastAnswer() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastAnswer
}

// answered closes the breaker: any answer will do, errors of the API server included.
func (b *Breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastAnswer, b.openUntil, b.pause = time.Now(), time.Time{}, 0
}

// heard notes that a part of an answer has arrived.
func (b *Breaker) heard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastAnswer = time.Now()
}

// failed opens the breaker, unless the cluster has answered something just now: one lost connection is no outage.
// Requests that were under way together fail together and count once.
func (b *Breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(b.openUntil) || now.Sub(b.lastAnswer) < FirstPause {
		return
	}
	b.pause = min(max(2*b.pause, FirstPause), lastPause)
	b.openUntil = now.Add(b.pause)
}

// watchOver bounds one request: its context ends with ErrStalled once nothing at all has come from the cluster for so
// long. The returned function ends the watching.
func (b *Breaker) watchOver(ctx context.Context, patience time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	sent := time.Now()
	var timer *time.Timer
	var mu sync.Mutex // guards timer against its own first firing
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(patience, func() {
		b.mu.Lock()
		heard := b.lastAnswer
		b.mu.Unlock()
		if heard.Before(sent) {
			heard = sent
		}
		if left := patience - time.Since(heard); left > 0 {
			mu.Lock()
			defer mu.Unlock()
			timer.Reset(left)
			return
		}
		cancel(ErrStalled)
	})
	return ctx, func() { timer.Stop(); cancel(nil) }
}
