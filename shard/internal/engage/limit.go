package engage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/tenure-dev/tenure/pkg/kubeconfig"
	"github.com/tenure-dev/tenure/shard/internal/turnstile"
)

// limit bounds the requests of all shards of a cluster together, in addition to what its API server allows. The zero
// value bounds nothing. It is safe for concurrent use, and may be changed while it is in use.
type limit struct {
	now    atomic.Pointer[bounds] // nil: none
	writes turnstile.Turnstile
	pacing atomic.Int64 // writes that wait for the rate
}

// bounds are what is in force for a while.
type bounds struct {
	kubeconfig.Limits
	rate *rate.Limiter // nil: none
	over chan struct{} // closed when others are in force
}

// set changes the limits, also for requests that wait already.
func (l *limit) set(to kubeconfig.Limits) {
	if l.get() == to {
		return // or a new bucket would be full each time
	}
	next := &bounds{Limits: to, over: make(chan struct{})}
	if to.QPS > 0 {
		next.rate = rate.NewLimiter(rate.Limit(to.QPS), to.Bucket())
	}
	if last := l.now.Swap(next); last != nil {
		close(last.over)
	}
	l.writes.Resize(to.Writes)
}

func (l *limit) get() kubeconfig.Limits {
	if now := l.now.Load(); now != nil {
		return now.Limits
	}
	return kubeconfig.Limits{}
}

// pace waits until one more request may be sent. It fails with [kubeconfig.ErrLimited] if the context's deadline is
// too soon for that, and with the context's error if the caller gave up.
func (l *limit) pace(ctx context.Context) error {
	for {
		now := l.now.Load()
		if now == nil || now.rate == nil {
			return nil
		}
		turn := now.rate.Reserve()
		wait := turn.Delay()
		if wait == 0 {
			return nil
		}
		if till, ok := ctx.Deadline(); ok && time.Until(till) < wait {
			turn.Cancel()
			return fmt.Errorf("waiting for one of %v requests a second: %w: %w", now.QPS, kubeconfig.ErrLimited,
				context.DeadlineExceeded)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			timer.Stop()
			turn.Cancel()
			return limited(ctx)
		case <-now.over: // begin again by the limits that hold now
			timer.Stop()
		}
	}
}

// limited returns the error of a request whose context ended before its turn.
func limited(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("waiting for a turn: %w: %w", kubeconfig.ErrLimited, ctx.Err())
}

// ofWaiting adds [kubeconfig.ErrLimited] to the error of a request that ran out of its caller's time, if most of that
// had passed before it was sent.
func ofWaiting(caller context.Context, began, sent time.Time, err error) error {
	if errors.Is(caller.Err(), context.DeadlineExceeded) && sent.Sub(began) > time.Since(sent) {
		return fmt.Errorf("sent too late: %w: %w", kubeconfig.ErrLimited, err)
	}
	return err
}

// beginWrite waits until one more write may be sent. Give its place back by l.writes.Leave.
func (l *limit) beginWrite(ctx context.Context) error {
	l.pacing.Add(1)
	err := l.pace(ctx) // first: a write that waits for the rate isn't on its way
	l.pacing.Add(-1)
	if err != nil {
		return err
	}
	if l.writes.Enter(ctx, l.get().Writes) != nil {
		return limited(ctx)
	}
	return nil
}

// count returns how many writes are on their way, and how many wait for their turn.
func (l *limit) count() (inFlight, waiting int) {
	inFlight, waiting = l.writes.Count()
	return inFlight, waiting + int(l.pacing.Load())
}
