package driver

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// room is how many writes of each lane may be in flight. Renewals never wait.
var room = [ownership.Lanes]int{ownership.Takeovers: 64, ownership.Others: 32}

// lane holds the writes that wait for room.
type lane struct {
	waiting  []uint64 // the machine's numbers of the writes, oldest first
	inFlight int
}

// queue sends a write, or lets it wait until its lane has room.
func (d *Driver) queue(effect ownership.Effect) {
	_, seq, _ := about(effect)
	l := &d.lanes[ownership.LaneOf(effect)]
	l.waiting = append(l.waiting, seq)
	d.release()
}

// release sends the writes for which there is room, with their current content.
func (d *Driver) release() {
	for i := range d.lanes {
		l, taken := &d.lanes[i], 0
		for ; taken < len(l.waiting) && l.inFlight < room[i]; taken++ {
			seq := l.waiting[taken]
			now, again, left := d.machine.Current(seq)
			if !left {
				continue // settled since it was queued
			}
			if needsProof(now, again) && !d.vouched() {
				break
			}
			l.inFlight++
			d.write(pending{why: written, effect: now, seq: seq}, d.patience())
		}
		if l.inFlight == room[i] && taken < len(l.waiting) {
			d.vouchAhead()
		}
		l.waiting = l.waiting[taken:] // not copied: thousands may wait, and each answer makes room
	}
}

// free makes room after a write was answered.
func (d *Driver) free(effect ownership.Effect) {
	if i := ownership.LaneOf(effect); room[i] > 0 {
		d.lanes[i].inFlight--
	}
}

// patience returns the timeout of a request to the home cluster: three times its present response time, and at least an
// eighth of a lease duration. After a timeout the next request may take twice as long, and the one after that not. The
// home cluster may be slower than measured, or it may be away; then short attempts find out sooner that it is back.
func (d *Driver) patience() time.Duration {
	lease := d.cfg.Protocol.LeaseDuration
	patience := max(3*d.pace, lease/8, leastPatience)
	if d.givenUp%2 == 1 {
		patience *= 2
	}
	return min(patience, max(lease*2/5, leastPatience))
}

// leasePatience returns the timeout of a renewal. A slow home cluster gets three quarters of the remaining time to
// answer, since giving up sooner would make it do the same work again. The rest is enough for another try.
func (d *Driver) leasePatience() time.Duration {
	patience := d.patience()
	if d.Valid(d.now) {
		patience = max(patience, (d.machine.ValidUntil().Mono-d.now.Mono)*3/4)
	}
	return patience
}

// measurePace estimates the home cluster's response time: it rises at once and falls slowly. Renewals have a priority
// level of their own (config/flowcontrol), so a fast answer to one says nothing about other requests. A list of all
// records takes longer than they do.
func (d *Driver) measurePace(p pending, renewal bool) {
	took := d.now.AtLeast(p.asked)
	if p.of.All && took >= d.pace {
		return
	}
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
