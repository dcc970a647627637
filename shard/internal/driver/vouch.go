package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// A compare-and-swap protects a record only within one history of the home cluster. A replica that doesn't know yet that
// the home cluster went back would claim what it saw unheld, and what another has claimed in the history that is lost. So a
// write that takes something, makes a record, or can't be undone (a layout, a retirement), is sent only right after the home cluster has shown this incarnation's
// last renewal: by a live read of its Lease, or by committing the next renewal. What an earlier incarnation of the process
// knew, its Lease has to show first, after the present one has one.

// vouchFor is how long that counts, from the answer on. What answers hasn't been stopped since it looked, and it can't be
// stopped, set back and started again within that.
const vouchFor = 500 * time.Millisecond

// vouch is when the home cluster last showed that it hasn't gone back.
type vouch struct {
	until ownership.Instant // when that no longer counts
	asked bool              // a read is on its way
	at    ownership.Instant // when the next one may be sent
	tries int               // that weren't answered, since one was
}

// past is an incarnation of this process that has ended, and the newest version that it knew of its Lease.
type past struct {
	id      ownership.Incarnation
	version ownership.Version
}

// takes tells the writes that need it.
func takes(e ownership.Effect) bool {
	switch e := e.(type) {
	case ownership.SealLease, ownership.CreateShard, ownership.WriteLayout:
		return true
	case ownership.WriteShard:
		return e.Kind.Claims() || e.Kind == ownership.Retire
	}
	return false
}

// vouched reports whether what takes may be sent now. If not, it asks the home cluster: whether it still shows what
// earlier incarnations knew, and then for the own Lease.
func (d *Driver) vouched() bool {
	v := &d.vouch
	if d.now.AtMost(v.until) < 0 {
		return true
	}
	if v.asked || d.now.AtLeast(v.at) < 0 || !d.Valid(d.now) { // its own Lease comes before it looks for earlier ones
		return false
	}
	v.asked = true
	if len(d.past) > 0 {
		d.read(pending{why: vouching, known: d.past[0].version}, Subject{Lease: d.past[0].id})
	} else {
		d.read(pending{why: vouching}, Subject{Lease: d.id})
	}
	return false
}

// vouches takes an answer as only a home cluster gives it that hasn't gone back.
func (d *Driver) vouches() {
	if len(d.past) == 0 {
		d.vouch.until = d.now.Add(vouchFor)
	}
}

// vouchAnswered takes the answer to a read of a Lease of this process. One that shows too old a Lease has ended the
// incarnation. Where that of an earlier incarnation is gone, others may have sealed and removed it. Nothing tells that from
// another history, so this one begins anew, too; it has only just begun.
func (d *Driver) vouchAnswered(p pending, what ownership.Input) {
	d.vouch.asked = false
	if what != nil {
		d.vouch.tries = 0
	}
	switch _, found := what.(ownership.LeaseSeen); {
	case what == nil:
		d.vouch.at = d.now.Add(d.cfg.Protocol.Backoff(d.vouch.tries, ownership.Lost, 0))
		d.vouch.tries++
	case p.of.Lease == d.id:
		if found {
			d.vouches()
		}
	default:
		d.past = d.past[1:]
		if !found {
			d.blank = !slices.ContainsFunc(d.Holdings(), func(h ownership.Holding) bool { return h.Held })
			d.step(ownership.WentBack{What: fmt.Sprintf("lease %s, of an earlier incarnation, isn't there", p.of.Lease)})
		}
	}
}

// vouchDue is when the home cluster is to be asked again, where writes wait for that.
func (d *Driver) vouchDue() (at time.Duration, ok bool) {
	if !d.Valid(d.now) || d.vouch.asked || d.now.AtMost(d.vouch.until) < 0 {
		return 0, false
	}
	if len(d.past) > 0 {
		return d.vouch.at.Mono, true
	}
	for i := range d.lanes {
		if l := &d.lanes[i]; len(l.waiting) > 0 && l.inFlight < room[i] {
			return d.vouch.at.Mono, true
		}
	}
	return 0, false
}
