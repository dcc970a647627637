package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// begin starts an incarnation, with the memory of the previous one.
func (d *Driver) begin() {
	d.id = d.cfg.Name()
	cfg := d.cfg.Protocol
	cfg.ID = d.id
	d.machine = ownership.New(cfg, d.memory)
	d.began = d.now
	d.emit(Begin{ID: d.id, Afresh: d.afresh})
	d.afresh, d.blank = false, false
	d.feedClusters()
	d.feedHealth()
	d.step(ownership.Tick{})
}

// lapse ends the incarnation. Everything stops, and answers to its requests don't count any more.
func (d *Driver) lapse(reason string) {
	d.memory, d.joined, d.afresh = d.machine.Memory(), d.machine.Asked(), d.afresh || d.machine.Afresh()
	d.doubts, d.vouch = doubts{}, vouch{}
	if version := d.machine.NewestLease(d.id); d.afresh {
		d.forgetPast()
	} else if version > 0 {
		d.past = append(d.past, past{d.id, version, d.machine.Renewal()})
	}
	d.machine = nil
	clear(d.shards)
	d.pending = slices.DeleteFunc(d.pending, func(p pending) bool { return !p.seals() })
	d.lanes, d.unconfirmed, d.echoes = [ownership.Lanes]lane{}, d.unconfirmed[:0], echoes{}
	if lived := d.now.AtLeast(d.began); d.pause == 0 || lived > d.cfg.Protocol.LeaseDuration {
		d.pause = firstPause
	} else {
		d.pause = min(2*d.pause, d.cfg.Protocol.LeaseDuration)
	}
	d.stop = d.next()
	d.emit(Stop{Number: d.stop, ID: d.id, Reason: reason, Blank: d.blank})
}

// forgetPast gives up what is known of earlier incarnations, since the home cluster went back. Their leases aren't
// sealed early any more: a peer that hasn't noticed that yet would claim what they handed off in the lost history.
func (d *Driver) forgetPast() {
	d.past, d.sealings = nil, sealings{}
	d.pending = slices.DeleteFunc(d.pending, pending.seals)
}

// stopped handles the end of the lapsed incarnation's work. If none of it can write any more, its lease is sealed, so
// that peers needn't wait for it to run out. If the home cluster went back, it is sealed only if it held nothing, since
// then it handed nothing off (see forgetPast).
func (d *Driver) stopped(e Stopped) {
	if e.Number != d.stop {
		return
	}
	d.stop, d.stoppedAt, d.beginAt = 0, d.now, d.now.Add(d.pause)
	if d.joined && e.Quiet && (!d.afresh || d.blank) {
		d.sealings.add(d.id, d.now)
	}
}

// live begins the next incarnation, or ends a process that leaves. The last incarnation's lease is sealed while the
// next one runs, or before the process ends.
func (d *Driver) live() {
	if d.ended {
		return
	}
	if d.machine != nil {
		if d.leaving && d.now.AtLeast(d.leftAt) >= d.leaveTimeout() { // peers take over what is left as after a crash
			d.giveUp(fmt.Errorf("leaving took longer than %v: peers take over the remaining shards", d.leaveTimeout()))
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

// sealUntil is when a leaving process ends even if its last lease isn't known to be sealed. Waiting for longer gains
// nothing, since peers seal the lease themselves by then.
func (d *Driver) sealUntil() time.Duration {
	return max(d.stoppedAt.Mono, d.leftAt.Mono) + max(d.cfg.Protocol.LeaseDuration/2, leastSealPatience)
}

// giveUp ends a process that can't leave in order. It stops all work and, if none of it can write any more, seals the
// lease, so that peers needn't wait for it to run out.
func (d *Driver) giveUp(failure error) {
	if !d.leaving {
		d.leaving, d.leftAt = true, d.now
	}
	if d.failure == nil { // the first tells why; the process may be stopped while it ends
		d.failure = failure
	}
	if d.machine != nil {
		d.lapse("the process ends")
	}
}

// left handles the answer to the last write of a clean exit. A lease that couldn't be deleted is sealed, unless the
// home cluster went back meanwhile.
func (d *Driver) left(dropped bool) {
	if !dropped && !d.afresh {
		d.past = append(d.past, past{d.id, d.machine.NewestLease(d.id), d.machine.Renewal()})
		d.sealings.add(d.id, d.now.Add(d.cfg.Protocol.RetryEvery))
	}
	d.machine, d.took, d.stoppedAt = nil, d.now.AtLeast(d.leftAt), d.now
}

func (d *Driver) leaveTimeout() time.Duration {
	return d.cfg.DrainTimeout + max(d.cfg.Protocol.LeaseDuration, leastHandover)
}

func (d *Driver) end(err error, took time.Duration) {
	d.ended, d.machine = true, nil
	d.emit(End{Err: err, Took: took})
}

// sealings are the incarnations of this process that have certainly stopped, and whose leases aren't known to be
// sealed. One at a time is tried, the latest first, then the others in turn, whichever incarnation runs by then. (A
// late renewal may still arrive and make such a lease look alive.)
type sealings struct {
	of    []ownership.Incarnation
	at    ownership.Instant // when the next request is due
	tries int               // failures since one was sealed
}

// add adds an incarnation whose lease must be sealed, at the given time at the earliest.
func (s *sealings) add(id ownership.Incarnation, at ownership.Instant) {
	s.of, s.at = append(s.of, id), at
}

// sealAgain starts the next seal by a live read of the lease, since a late renewal may have changed it.
func (d *Driver) sealAgain() {
	if s := &d.sealings; !d.awaits(sealRead, sealed) && d.now.AtLeast(s.at) >= 0 {
		d.read(pending{why: sealRead}, Subject{Lease: s.of[len(s.of)-1]})
	}
}

// sealFound seals a lease that was read, if it exists and isn't sealed.
func (d *Driver) sealFound(id ownership.Incarnation, what ownership.Input) {
	seen, ok := what.(ownership.LeaseSeen)
	if what == nil || !ok || seen.Lease.Sealed {
		d.sealTold(id, what != nil, ownership.Lost, 0)
		return
	}
	seal := ownership.SealLease{Base: seen.Lease.Version, ID: id}
	d.write(pending{why: sealed, effect: seal}, d.patience())
}

// sealTold records whether a lease is done: sealed or gone.
func (d *Driver) sealTold(id ownership.Incarnation, done bool, cause ownership.Cause, after time.Duration) {
	s := &d.sealings
	s.of = slices.DeleteFunc(s.of, func(other ownership.Incarnation) bool { return other == id })
	if done {
		s.at, s.tries = d.now, 0
		return
	}
	s.of = slices.Insert(s.of, 0, id)
	s.at = d.now.Add(d.cfg.Protocol.Backoff(s.tries, cause, after))
	s.tries++
}
