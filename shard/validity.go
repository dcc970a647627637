package shard

import (
	"sync/atomic"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// validity has the instant until which one incarnation may act. The loop sets it, and gates check it at each passage.
// It is safe for concurrent use.
type validity struct {
	clock clock
	until atomic.Pointer[ownership.Instant] // nil while not a member
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
	if until.IsZero() {
		v.until.Store(nil)
		return
	}
	v.until.Store(&until)
}
