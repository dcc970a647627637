package shardtest

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// clock is one machine's pair of clocks, as a function of true time.
type clock struct {
	rate   float64       // local time per true time, of both clocks
	origin time.Duration // what both read at true time 0
	jumped time.Duration // how far the wall clock has been set forward, in all
	slept  time.Duration // local time that the monotonic clock stood still, in all
	asleep bool
	since  time.Duration // true time at which the present sleep began
}

func (c *clock) read(at time.Duration) ownership.Instant {
	mono := c.local(at) - c.slept
	if c.asleep {
		mono -= c.local(at) - c.local(c.since)
	}
	return ownership.Instant{Mono: mono, Wall: c.local(at) + c.jumped}
}

func (c *clock) local(at time.Duration) time.Duration {
	return c.origin + time.Duration(float64(at)*c.rate)
}

// trueTime returns when the monotonic clock will have reached a reading, if the machine doesn't sleep until then.
func (c *clock) trueTime(mono time.Duration) time.Duration {
	return time.Duration(float64(mono+c.slept-c.origin)/c.rate) + time.Microsecond // rather late than early
}

func (c *clock) fallAsleep(at time.Duration) { c.asleep, c.since = true, at }

func (c *clock) wakeUp(at time.Duration) {
	if c.asleep {
		c.slept += c.local(at) - c.local(c.since)
		c.asleep = false
	}
}
