package driver

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// pending is a request that will be answered.
type pending struct {
	number uint64
	why    purpose
	effect ownership.Effect
	seq    uint64            // the machine's own number of the write
	answer Written           // the answer to the write, while its record is read
	of     Subject           // what is read or written
	asked  ownership.Instant // when it was sent
	// patience is the request's timeout.
	patience time.Duration
	known    ownership.Version // newest version of the record that was known when the request was sent
	newest   ownership.Version // newest version of any record that was known then
}

// seals reports whether the request is for sealing the lease of an earlier incarnation.
func (p pending) seals() bool { return p.why == sealRead || p.why == sealed }

// purpose is what an answer is for.
type purpose uint8

const (
	written  purpose = iota // a write of the machine's
	reread                  // the read after a write that wasn't committed
	found                   // a read that the machine requested
	confirm                 // a check whether a record was deleted
	sealRead                // the lease of an earlier incarnation of this process
	sealed                  // the seal of such a lease
	doubted                 // a check whether the home cluster went back
	vouching                // the proof that rule R5 needs
	left                    // the last write of a clean exit
)

// write sends a write.
func (d *Driver) write(p pending, patience time.Duration) {
	p.number, p.of, p.asked, p.patience = d.next(), About(p.effect), d.now, patience
	p.known, p.newest = d.newest(p.of), d.doubts.newest
	d.pending = append(d.pending, p)
	w := Write{Number: p.number, Effect: p.effect, Patience: patience}
	switch e := p.effect.(type) {
	case ownership.WriteAssignee:
		if rec, ok := d.machine.Record(e.ID); ok {
			w.Of = &Tenure{Record: rec.UID, Epoch: rec.Epoch + 1}
		}
	case ownership.WriteShard:
		if s := d.shards[e.Shard.ID]; s != nil && e.From == d.id && !s.ended.IsZero() {
			w.Of = &Tenure{Record: e.Shard.UID, Epoch: s.announced, Ended: s.ended}
		}
	}
	d.emit(w)
}

// read requests a live read of a record.
func (d *Driver) read(p pending, of Subject) {
	p.number, p.of, p.asked, p.patience = d.next(), of, d.now, d.patience()
	if of.All { // the largest answer: where there are thousands of records, an overloaded API server takes seconds
		p.patience = max(p.patience, d.cfg.Protocol.LeaseDuration)
	}
	p.known = max(p.known, d.newest(of))
	d.pending = append(d.pending, p)
	d.emit(Read{Number: p.number, Of: of, Patience: p.patience})
}

// take removes and returns the request that an answer belongs to; ok is false if none waits for it.
func (d *Driver) take(number uint64) (p pending, ok bool) {
	for i := range d.pending {
		if d.pending[i].number == number {
			p = d.pending[i]
			d.pending[i] = d.pending[len(d.pending)-1]
			d.pending = d.pending[:len(d.pending)-1]
			return p, true
		}
	}
	return pending{}, false
}

// awaits reports whether a request for one of these purposes is in flight.
func (d *Driver) awaits(why ...purpose) bool {
	for i := range d.pending { // by index: there may be thousands, and this is asked at each event
		if slices.Contains(why, d.pending[i].why) {
			return true
		}
	}
	return false
}

// written handles the answer to a write. If the write wasn't committed, the record is read live first, so that the
// machine decides on its present state. Two cases need no read: after a lost renewal, its repeat also settles the first
// attempt and may be committed itself; and an overloaded API server should get fewer requests.
func (d *Driver) written(e Written) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	_, renewal := p.effect.(ownership.WriteLease)
	d.measurePace(p, renewal)
	switch p.why {
	case written:
		if renewal && e.Outcome == ownership.Committed && d.Valid(d.now) {
			d.emit(Renewed{Left: d.machine.ValidUntil().Mono - d.now.Mono})
		}
		if claim, ok := p.effect.(ownership.WriteShard); ok && e.Outcome == ownership.Committed {
			d.noteClaim(claim)
		}
		if d.checkCommitted(p, e) {
			return
		}
		if e.Outcome == ownership.Committed {
			d.committed(p.effect, e.Version, p.asked)
			if renewal {
				d.vouches(p.asked, e.At)
			}
		}
		p.answer = e
		if e.Outcome == ownership.Committed || e.Cause == ownership.Overloaded ||
			(renewal && e.Outcome == ownership.Unknown) {
			d.answer(p)
			return
		}
		p.why = reread
		d.read(p, p.of)
	case sealed:
		d.sealTold(p.of.Lease, e.Outcome == ownership.Committed, e.Cause, e.After)
	case left:
		d.left(e.Outcome == ownership.Committed)
	}
}

// found handles the answer to a read.
func (d *Driver) found(e Found) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	d.measurePace(p, false)
	what := d.interpret(p, e.What)
	if list, ok := what.(ownership.Listing); ok {
		d.pending = slices.DeleteFunc(d.pending, func(q pending) bool { // what it shows would be older
			return q.of.All && q.asked.AtLeast(p.asked) <= 0
		})
		d.noteOlderOf(list)
	}
	if d.contradicts(p, what) {
		return
	}
	switch p.why {
	case doubted:
		d.doubtSettled(p, what != nil)
	case vouching:
		d.vouchAnswered(p, what, e.At)
	case confirm:
		if what == nil {
			d.unconfirmed = append(d.unconfirmed, deletion{p.of, d.now.Add(confirmEvery)})
		}
	case sealRead:
		d.sealFound(p.of.Lease, what)
		return
	}
	if what != nil {
		d.step(what)
	}
	if p.why == reread {
		d.answer(p)
	}
}

// interpret returns what the answer to a read says to the machine; nil if the read failed, or if it found nothing and a
// newer version was seen since it was sent.
func (d *Driver) interpret(p pending, what ownership.Input) ownership.Input {
	outdated := d.newest(p.of) > p.known
	switch seen := what.(type) {
	case ownership.ShardGone:
		seen.Asked = p.asked.Add(1) // it was sent after all that had been seen in that instant
		return seen
	case ownership.LeadSeen:
		if p.why == found {
			return ownership.LeadFound(seen)
		}
	case ownership.Listing:
		seen.Asked = p.asked.Add(1)
		return seen
	case ownership.LeadGone, ownership.LeaseGone:
		if outdated {
			return nil
		}
	case ownership.LayoutRead:
		gone := p.why == confirm && seen.Layout.Version == 0
		switch {
		case gone && outdated:
			return nil
		case gone:
			return ownership.LayoutGone{Cluster: seen.Cluster}
		case p.why == found:
			seen.Ask = p.seq
		}
		return seen
	}
	return what
}

// answer tells the machine the outcome of a write, and makes room for the next.
func (d *Driver) answer(p pending) {
	if d.machine == nil {
		return // the record that was read has ended the incarnation
	}
	d.free(p.effect)
	a := p.answer
	d.step(ownership.Written{Seq: p.seq, Outcome: a.Outcome, Version: a.Version, Cause: a.Cause, After: a.After})
}

// deletion is a record that a watch showed to be deleted and that couldn't be read yet.
type deletion struct {
	of Subject
	at ownership.Instant // when to read it again
}

// confirm reads a record live before its deletion is believed: a holder stops when its record is deleted.
func (d *Driver) confirm(of Subject) {
	if d.machine != nil { // otherwise the next incarnation's listing shows it
		d.read(pending{why: confirm}, of)
	}
}

func (d *Driver) confirmAgain() {
	later := d.unconfirmed[:0]
	for _, u := range d.unconfirmed {
		if d.now.AtLeast(u.at) < 0 {
			later = append(later, u)
			continue
		}
		d.confirm(u.of)
	}
	d.unconfirmed = later
}
