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
	pacing atomic.Int64 // writes that have their place and wait for the rate
}

// bounds are what is in force for a while.
type bounds struct {
	kubeconfig.Limits
	rate *rate.Limiter   // nil: none
	over context.Context // ends when another rate is in force
	end  context.CancelFunc
}

// set changes the limits, also for requests that wait already. Call it from one goroutine at a time.
func (l *limit) set(to kubeconfig.Limits) {
	next := &bounds{Limits: to}
	if last := l.now.Load(); last != nil && last.rate != nil {
		if last.QPS == to.QPS && last.Bucket() == to.Bucket() {
			next.rate, next.over, next.end = last.rate, last.over, last.end
		} else {
			defer last.end()
		}
	}
	if to.QPS > 0 && next.rate == nil {
		next.rate = rate.NewLimiter(rate.Limit(to.QPS), to.Bucket())
		next.over, next.end = context.WithCancel(context.Background())
	}
	l.now.Store(next)
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
		waiting, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(now.over, cancel)
		err := now.rate.Wait(waiting)
		stop()
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return limited(ctx)
		case now.over.Err() == nil:
			return fmt.Errorf("waiting for one of %v requests a second: %w: %w", now.QPS, kubeconfig.ErrLimited,
				context.DeadlineExceeded)
		} // else it begins again, by the limits that hold now
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
	if l.writes.Enter(ctx, l.get().Writes) != nil {
		return limited(ctx)
	}
	l.pacing.Add(1)
	err := l.pace(ctx)
	l.pacing.Add(-1)
	if err != nil {
		l.writes.Leave()
	}
	return err
}

// count returns how many writes are on their way, and how many wait for their turn.
func (l *limit) count() (inFlight, waiting int) {
	inside, waiting := l.writes.Count()
	pacing := min(int(l.pacing.Load()), inside) // read at another moment
	return inside - pacing, waiting + pacing
}
