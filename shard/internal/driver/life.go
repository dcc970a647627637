package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// begin starts an incarnation, with the memory of the one before.
func (d *Driver) begin() {
	d.id = d.cfg.Name()
	cfg := d.cfg.Protocol
	cfg.ID = d.id
	d.machine = ownership.New(cfg, d.memory)
	d.began = d.now
	d.emit(Begin{ID: d.id})
	d.feedClusters()
	d.feedHealth()
	d.step(ownership.Tick{})
}

// lapse ends the incarnation: everything stops, and what it asked for doesn't count any more.
func (d *Driver) lapse(reason string) {
	d.memory, d.joined = d.machine.Memory(), d.machine.Asked()
	d.machine = nil
	clear(d.shards)
	kept := d.pending[:0]
	for _, p := range d.pending {
		if p.why == sealRead || p.why == sealed {
			kept = append(kept, p)
		}
	}
	d.pending, d.lanes, d.unconfirmed, d.echoes = kept, [ownership.Lanes]lane{}, d.unconfirmed[:0], echoes{}
	if lived := d.now.AtLeast(d.began); d.pause == 0 || lived > d.cfg.Protocol.LeaseDuration {
		d.pause = firstPause
	} else {
		d.pause = min(2*d.pause, d.cfg.Protocol.LeaseDuration)
	}
	d.stop = d.next()
	d.emit(Stop{Number: d.stop, ID: d.id, Reason: reason})
}

// stopped takes the end of what ran under the incarnation that lapsed. If nothing of it can write any more, its peers
// are told, so that they need not wait for its lease to run out.
func (d *Driver) stopped(e Stopped) {
	if e.Number != d.stop {
		return
	}
	d.stop, d.stoppedAt, d.beginAt = 0, d.now, d.now.Add(d.pause)
	if d.joined && e.Quiet {
		d.sealings.add(d.id, d.now)
	}
}

// live lets the next incarnation begin, or ends a process that leaves. The lease of the last incarnation is sealed beside
// the next one, and before an end.
func (d *Driver) live() {
	if d.ended {
		return
	}
	if d.machine != nil {
		if d.leaving && d.now.AtLeast(d.leftAt) >= d.leaveTimeout() { // what is left is found by the peers as after a crash
			d.giveUp(fmt.Errorf("leaving took longer than %v: shards are left to be taken over", d.leaveTimeout()))
		}
		return
	}
	switch {
	case d.id == "" && d.leaving: // nothing has ever begun
		d.end(d.failure, 0)
	case d.id == "" || d.stop != 0: // nothing has begun yet, or something still runs
	case !d.leaving && d.now.AtLeast(d.beginAt) >= 0:
		d.begin()
	case d.leaving && (len(d.sealings.of) == 0 || d.now.Mono >= d.sealUntil()):
		d.end(d.failure, d.took)
	}
}

// sealUntil is when a process ends at the latest though its last lease isn't known to be sealed. It isn't worth the wait
// for longer than until its peers seal it themselves.
func (d *Driver) sealUntil() time.Duration {
	return max(d.stoppedAt.Mono, d.leftAt.Mono) + max(d.cfg.Protocol.LeaseDuration/2, leastSealPatience)
}

// giveUp ends the process in order though the incarnation can't leave: all that runs is stopped, and if nothing of it can
// write any more its lease is sealed, so that its peers need not wait for it.
func (d *Driver) giveUp(failure error) {
	if !d.leaving {
		d.leaving, d.leftAt = true, d.now
	}
	d.failure = failure
	if d.machine != nil {
		d.lapse("the process ends")
	}
}

// left takes the answer to the last act of a clean exit. A lease that couldn't be dropped is sealed.
func (d *Driver) left(dropped bool) {
	d.machine, d.took, d.stoppedAt = nil, d.now.AtLeast(d.leftAt), d.now
	if !dropped {
		d.sealings.add(d.id, d.now.Add(d.cfg.Protocol.RetryEvery))
	}
}

func (d *Driver) leaveTimeout() time.Duration {
	return d.cfg.DrainTimeout + d.cfg.Protocol.LeaseDuration
}

func (d *Driver) end(err error, took time.Duration) {
	d.ended, d.machine = true, nil
	d.emit(End{ID: d.id, Err: err, Took: took})
}

// sealings are the incarnations of this process that have stopped for certain, and whose leases aren't known to be sealed.
// One at a time is tried until it is, whatever becomes of the next ones. (A renewal of it may yet arrive, and let its lease
// look alive.) The latest goes first, then the others in turn.
type sealings struct {
	of    []ownership.Incarnation
	asked bool              // a request is on its way
	at    ownership.Instant // when the next one is
	tries int               // since one was last sealed
}

// add has one more sealed, not before the given time.
func (s *sealings) add(id ownership.Incarnation, at ownership.Instant) {
	s.of, s.at = append(s.of, id), at
}

// sealAgain begins to seal what isn't sealed yet: by a live read, since the lease may have been renewed late.
func (d *Driver) sealAgain() {
	if s := &d.sealings; !s.asked && d.now.AtLeast(s.at) >= 0 {
		s.asked = true
		d.read(pending{why: sealRead}, Subject{Lease: s.of[len(s.of)-1]})
	}
}

// sealFound seals a lease that was read, if it is there and isn't sealed.
func (d *Driver) sealFound(id ownership.Incarnation, what ownership.Input) {
	seen, ok := what.(ownership.LeaseSeen)
	if what == nil || !ok || seen.Lease.Sealed {
		d.sealTold(id, what != nil, ownership.Lost, 0)
		return
	}
	seal := ownership.SealLease{Base: seen.Lease.Version, ID: id}
	d.write(pending{why: sealed, effect: seal, of: Subject{Lease: id}}, d.patience())
}

// sealTold takes note of whether a lease is sealed.
func (d *Driver) sealTold(id ownership.Incarnation, done bool, cause ownership.Cause, after time.Duration) {
	s := &d.sealings
	s.asked = false
	s.of = slices.DeleteFunc(s.of, func(other ownership.Incarnation) bool { return other == id })
	if done {
		s.at, s.tries = d.now, 0
		return
	}
	s.of = slices.Insert(s.of, 0, id)
	s.at = d.now.Add(d.cfg.Protocol.Backoff(s.tries, cause, after))
	s.tries++
}
