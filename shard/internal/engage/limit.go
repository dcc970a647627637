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
	most   atomic.Pointer[kubeconfig.Limits] // nil: none
	rate   atomic.Pointer[rate.Limiter]      // nil: none
	writes turnstile.Turnstile
}

// set changes the limits for what is sent from now on.
func (l *limit) set(to kubeconfig.Limits) {
	l.most.Store(&to)
	l.writes.Resize(to.Writes)
	switch now := l.rate.Load(); {
	case to.QPS == 0:
		l.rate.Store(nil)
	case now == nil:
		l.rate.Store(rate.NewLimiter(rate.Limit(to.QPS), to.Bucket()))
	default:
		now.SetLimit(rate.Limit(to.QPS))
		now.SetBurst(to.Bucket())
	}
}

func (l *limit) get() kubeconfig.Limits {
	if most := l.most.Load(); most != nil {
		return *most
	}
	return kubeconfig.Limits{}
}

// pace waits until one more request may be sent. It fails with [kubeconfig.ErrLimited] if the context's deadline is
// too soon for that, and with the context's error if the caller gave up.
func (l *limit) pace(ctx context.Context) error {
	limiter := l.rate.Load()
	if limiter == nil {
		return nil
	}
	if err := limiter.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return limited(ctx)
		}
		return fmt.Errorf("waiting for one of %v requests a second: %w: %w", float64(limiter.Limit()), kubeconfig.ErrLimited,
			context.DeadlineExceeded)
	}
	return nil
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
	if err := l.pace(ctx); err != nil {
		l.writes.Leave()
		return err
	}
	return nil
}
