package shard

import (
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// validity has the instant until which one incarnation may act. The loop sets it, and gates check it at each passage.
// A timer interrupts what runs when that instant comes by the monotonic clock, even if the loop stands still then. All
// but set is safe for concurrent use.
type validity struct {
	clock clock
	over  func()                            // called by the timer, perhaps just as a later instant was set
	until atomic.Pointer[ownership.Instant] // nil while not a member
	timer *time.Timer                       // nil before the first instant; for the loop
}

// holds reports whether the incarnation may act at this very moment.
func (v *validity) holds() bool {
	until := v.until.Load()
	if until == nil {
		return false
	}
	now := v.clock.now()
	return now.Mono < until.Mono && now.Wall < until.Wall
}

func (v *validity) set(until ownership.Instant) {
	if was := v.until.Load(); was != nil && *was == until {
		return
	}
	next := &until
	if until.IsZero() {
		next = nil
	}
	v.until.Store(next) // before the timer is stopped, which may have begun to fire
	if v.timer != nil {
		v.timer.Stop()
	}
	if next == nil {
		return
	}
	v.timer = time.AfterFunc(until.Mono-v.clock.now().Mono, v.over)
}
