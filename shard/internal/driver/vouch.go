package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// A compare-and-swap protects a record only within one history of the home cluster. A replica that doesn't know yet
// that the home cluster was restored could claim what it saw unheld and what another replica claimed in the lost
// history. So a write that takes something (a claim, a seal, a clearing), makes a record, or can't be undone (a layout,
// a retirement) is sent only right after the home cluster has shown this incarnation's last renewal: by a live read of
// its Lease, or by committing the next renewal. So is the repeat of a write that gives a shard away: perhaps the first
// was committed, and only the history with it was lost. A new incarnation first needs a Lease of its own. Then the home
// cluster must show the Leases of the process's earlier incarnations, in the versions that they knew or later ones,
// with no older renewal.

// vouchFor is how long such a proof counts, from the answer on. A home cluster that answers hasn't been stopped since
// it looked, and it can't be stopped, restored and started again within this time, nor within twice this time. If the
// process stood still for as long as this since it asked, the answer may have come at any time since then, so the proof
// counts from when it asked.
const vouchFor = 500 * time.Millisecond

// vouch is the state of these proofs.
type vouch struct {
	until ownership.Instant // when the last proof expires
	at    ownership.Instant // when the next read may be sent
	tries int               // unanswered reads in a row
}

// past is an earlier incarnation of this process, with the newest version that it knew of its Lease, and its last
// renewal. In another history a user's write may have given the Lease a newer version than that, with an older renewal.
type past struct {
	id      ownership.Incarnation
	version ownership.Version
	renewal uint64
}

// needsProof reports whether a write needs such a proof (rule R5); again says that it was sent before, without a
// result.
func needsProof(e ownership.Effect, again bool) bool {
	switch e := e.(type) {
	case ownership.SealLease, ownership.CreateShard, ownership.WriteLayout:
		return true
	case ownership.WriteShard:
		return e.Kind.Claims() || e.Kind == ownership.Retire || e.Kind == ownership.Clear ||
			(again && e.Shard.Holder != e.From)
	}
	return false
}

// vouched reports whether such a write may be sent now. If not, it requests the proof.
func (d *Driver) vouched() bool {
	if d.now.AtMost(d.vouch.until) < 0 {
		return true
	}
	d.requestProof()
	return false
}

// vouchAhead requests the next proof if half of the time of the last is over. It is called at each event while writes
// wait for room: if the next were requested only when the last has expired, nothing could be sent until a slow home
// cluster answers. Nothing wakes the driver for it, so if no write is answered in that half, the read is waited for.
func (d *Driver) vouchAhead() {
	if d.now.AtMost(d.vouch.until) >= -vouchFor/2 {
		d.requestProof()
	}
}

// requestProof requests a proof, unless one is under way: first for the Leases of earlier incarnations, then for this
// incarnation's own.
func (d *Driver) requestProof() {
	// The own Lease must exist before earlier ones are read.
	if d.now.AtLeast(d.vouch.at) < 0 || !d.Valid(d.now) || d.awaits(vouching) {
		return
	}
	if len(d.past) > 0 {
		d.read(pending{why: vouching, known: d.past[0].version}, Subject{Lease: d.past[0].id})
	} else {
		d.read(pending{why: vouching}, Subject{Lease: d.id})
	}
}

// vouches extends the proof after an answer that a restored home cluster couldn't have given. came is when it came
// (zero: just now), asked when the request for it was sent.
func (d *Driver) vouches(asked, came ownership.Instant) {
	if len(d.past) > 0 {
		return
	}
	switch {
	case d.stoodStill.AtLeast(asked) > 0:
		came = asked
	case came.IsZero():
		came = d.now
	}
	if until := came.Add(vouchFor); until.AtLeast(d.vouch.until) > 0 { // each is a proof by itself
		d.vouch.until = until
	}
}

// vouchAnswered handles the read of a Lease of this process. (A Lease that is too old has ended the incarnation before
// this.) If the Lease of an earlier incarnation is missing, peers may have sealed and removed it, or the history may be
// another. These can't be told apart, so this incarnation, which has only just begun, starts over.
func (d *Driver) vouchAnswered(p pending, what ownership.Input, came ownership.Instant) {
	if what != nil {
		d.vouch.tries = 0
	}
	switch _, found := what.(ownership.LeaseSeen); {
	case what == nil:
		d.vouch.at = d.now.Add(d.cfg.Protocol.Backoff(d.vouch.tries, ownership.Lost, 0))
		d.vouch.tries++
	case p.of.Lease == d.id:
		if found {
			d.vouches(p.asked, came)
		}
	case len(d.past) == 0 || d.past[0].id != p.of.Lease: // forgotten meanwhile, since the home cluster went back
	default:
		d.past = d.past[1:]
		if !found {
			d.blank = !slices.ContainsFunc(d.Holdings(), func(h ownership.Holding) bool { return h.Held })
			d.pause = 0 // the doubt began with this incarnation, and peers may wait for the next
			d.lapseAfresh(fmt.Sprintf("lease %s of an earlier incarnation of this process is missing: peers have removed it, "+
				"or the home cluster went back", p.of.Lease))
		}
	}
}

// vouchDue returns when to ask the home cluster again; ok is false if no write waits for a proof.
func (d *Driver) vouchDue() (at time.Duration, ok bool) {
	if !d.Valid(d.now) || d.now.AtMost(d.vouch.until) < 0 || d.awaits(vouching) {
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
