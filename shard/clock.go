package shard

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// clock reads the process's two clocks.
type clock struct{ start time.Time } // the monotonic clock's origin

func (c clock) now() ownership.Instant {
	now := time.Now()
	return ownership.Instant{Mono: now.Sub(c.start), Wall: time.Duration(now.UnixNano())}
}
