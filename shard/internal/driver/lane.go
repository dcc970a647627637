package driver

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// room is how many writes of a lane are on their way at a time. Renewals never wait.
var room = [ownership.Lanes]int{ownership.Takeovers: 64, ownership.Others: 32}

// lane holds the writes that wait for room.
type lane struct {
	waiting  []pending
	inFlight int
}

// queue sends a write, or has it wait until there is room for it.
func (d *Driver) queue(effect ownership.Effect) {
	_, seq, _ := about(effect)
	l := &d.lanes[ownership.LaneOf(effect)]
	l.waiting = append(l.waiting, pending{why: written, effect: effect, seq: seq})
	d.release()
}

// release sends the writes that there is room for, as they are to be by now.
func (d *Driver) release() {
	for i := range d.lanes {
		l, taken := &d.lanes[i], 0
		for ; taken < len(l.waiting) && l.inFlight < room[i]; taken++ {
			p := l.waiting[taken]
			now, left := d.machine.Current(p.seq)
			if !left {
				continue // settled meanwhile
			}
			if takes(now) && !d.vouched() {
				break
			}
			p.effect = now
			l.inFlight++
			d.write(p, d.patience())
		}
		l.waiting = l.waiting[taken:] // not moved: thousands may wait, and each answer makes room
	}
}

// free makes room where a write was answered.
func (d *Driver) free(effect ownership.Effect) {
	if i := ownership.LaneOf(effect); room[i] > 0 {
		d.lanes[i].inFlight--
	}
}

// patience bounds one request to the home cluster: three times what it takes to answer now, and at least an eighth of a
// lease. Where the last one was given up the next may take twice as long, and the one after that not: the home cluster may
// be slower than we know, or away, and then it should be tried soon after it is back.
func (d *Driver) patience() time.Duration {
	lease := d.cfg.Protocol.LeaseDuration
	patience := max(3*d.pace, lease/8, leastPatience)
	if d.givenUp%2 == 1 {
		patience *= 2
	}
	return min(patience, max(lease*2/5, leastPatience))
}

// leasePatience bounds a renewal. A home cluster that is slow gets most of the time that is left to answer: giving up
// sooner would make it do the same work again, and what is lost leaves time for another try.
func (d *Driver) leasePatience() time.Duration {
	patience := d.patience()
	if d.Valid(d.now) {
		patience = max(patience, (d.machine.ValidUntil().Mono-d.now.Mono)*3/4)
	}
	return patience
}

// measurePace learns how long the home cluster takes to answer: more at once, less little by little. Renewals come under a
// priority level of their own (config/flowcontrol), so one that is answered soon says nothing of other requests.
func (d *Driver) measurePace(p pending, renewal bool) {
	took := d.now.AtLeast(p.asked)
	if took >= p.patience {
		d.givenUp++
		return
	}
	d.givenUp = 0
	switch {
	case took >= d.pace:
		d.pace = took
	case !renewal:
		d.pace -= (d.pace - took) / 4
	}
}
