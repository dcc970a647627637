package shard

import (
	"context"
	"time"
)

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
