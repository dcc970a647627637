package shard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// clock reads the process's two clocks.
type clock struct{ start time.Time } // the monotonic clock's origin

func (c clock) now() ownership.Instant {
	now := time.Now()
	return ownership.Instant{Mono: now.Sub(c.start), Wall: time.Duration(now.UnixNano())}
}

// sleep waits for that long. It returns false as soon as the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// retry repeats try until it succeeds, and reports whether it did before the context ended. The pause after the first
// failure doubles with each further one, up to most.
func retry(ctx context.Context, first, most time.Duration, try func() (ok bool)) bool {
	for pause := first; !try(); pause = min(2*pause, most) {
		if !sleep(ctx, pause) {
			return false
		}
	}
	return true
}

// lease holds the instant until which one incarnation may act. The loop sets it, and gates check it at every passage.
// It is safe for concurrent use.
type lease struct {
	clock clock
	until atomic.Pointer[ownership.Instant] // nil while not a member
}

// valid reports whether the incarnation may act at this very moment.
func (l *lease) valid() bool {
	until := l.until.Load()
	if until == nil {
		return false
	}
	now := l.clock.now()
	return now.Mono < until.Mono && now.Wall < until.Wall
}

func (l *lease) set(until ownership.Instant) {
	if until == (ownership.Instant{}) {
		l.until.Store(nil)
		return
	}
	l.until.Store(&until)
}
