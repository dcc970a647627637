package ownership

import "time"

// Instant is one reading of a process's own two clocks. Instants of different processes are never compared.
type Instant struct {
	// Mono is the monotonic clock: it never goes back, but may stand still while the machine sleeps.
	Mono time.Duration
	// Wall is the wall clock, since 1970: it counts a sleeping machine's time, but may jump. Epoch floors are taken
	// from it, so all processes must use the same origin.
	Wall time.Duration
}

// IsZero reports whether the instant is the zero value, which stands for no instant.
func (i Instant) IsZero() bool { return i == Instant{} }

// Add returns the instant d later on both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{Mono: i.Mono + d, Wall: i.Wall + d} }

// AtMost returns how much time may have passed since then: the larger of the two readings. A replica judges its own
// lease by it, so that neither a sleeping machine nor a slow clock lets it act on a lease that has run out.
func (i Instant) AtMost(then Instant) time.Duration {
	return max(i.Mono-then.Mono, i.Wall-then.Wall)
}

// AtLeast returns how much time has surely passed since then. A replica judges others by it: the wall clock may have
// been set forward, while the monotonic clock can only be slow.
func (i Instant) AtLeast(then Instant) time.Duration { return i.Mono - then.Mono }
