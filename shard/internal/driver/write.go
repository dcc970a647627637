package driver

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// pending is a request that will be answered, or a write that waits for its turn.
type pending struct {
	number uint64
	why    purpose
	effect ownership.Effect
	seq    uint64            // the machine's own number of the write
	answer Written           // to the write that is read after
	of     Subject           // what is read
	lead   ownership.Version // the coordinator's record as it was known then
	asked  ownership.Instant // when it was sent
	// patience is how long it is waited for.
	patience time.Duration
}

// purpose is what an answer is for.
type purpose uint8

const (
	written  purpose = iota // a write of the machine's
	reread                  // the read after one that wasn't committed
	found                   // a read that the machine asked for
	confirm                 // whether a record was deleted
	sealRead                // the lease of an incarnation of this process that is over
	sealed                  // the sealing of that
	left                    // the last act of a clean exit
)

// write sends a write.
func (d *Driver) write(p pending, patience time.Duration) {
	p.number, p.asked, p.patience = d.next(), d.now, patience
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

// read asks for a record as it is now.
func (d *Driver) read(p pending, of Subject) {
	p.number, p.of, p.asked, p.patience = d.next(), of, d.now, d.patience()
	if d.machine != nil {
		p.lead = d.machine.LeadVersion()
	}
	if of.All { // the largest answer, and nothing waits for it
		p.patience = max(p.patience, d.cfg.Protocol.LeaseDuration/2)
	}
	d.pending = append(d.pending, p)
	d.emit(Read{Number: p.number, Of: of, Patience: p.patience})
}

// take returns what an answer is for; ok is false where it is none to wait for any more.
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

// written takes the answer to a write. Where it wasn't committed the record is read afresh first, so that the machine
// decides on what is true now. After a lost renewal it isn't: its repeat tells, too, and may be the one that is committed.
// Nor is it where the API server has too much to do.
func (d *Driver) written(e Written) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	of, _, _ := about(p.effect)
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
		if e.Outcome == ownership.Committed {
			d.committed(p.effect, e.Version, p.asked)
		}
		p.answer = e
		if e.Outcome == ownership.Committed || e.Cause == ownership.Overloaded || (renewal && e.Outcome == ownership.Unknown) {
			d.answer(p)
			return
		}
		p.why = reread
		d.read(p, of)
	case sealed:
		d.sealTold(p.of.Lease, e.Outcome == ownership.Committed, e.Cause, e.After)
	case left:
		d.left(e.Outcome == ownership.Committed)
	}
}

// found takes the answer to a read.
func (d *Driver) found(e Found) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	d.measurePace(p, false)
	what := e.What
	switch seen := what.(type) {
	case ownership.ShardGone:
		seen.Asked = p.asked.Add(1) // it was sent after all that had been seen in that instant
		what = seen
	case ownership.LeadSeen:
		if p.why == found {
			what = ownership.LeadFound(seen)
		}
	case ownership.LeadGone:
		if d.machine != nil && d.machine.LeadVersion() > p.lead {
			what = nil // it was made since
		}
	case ownership.Listing:
		seen.Asked = p.asked.Add(1)
		what = seen
	case ownership.LayoutRead:
		if p.why == found {
			seen.Ask = p.seq
		}
		what = seen
	}
	switch p.why {
	case confirm:
		if what == nil {
			d.unconfirmed = append(d.unconfirmed, deletion{p.of.Shard, d.now.Add(confirmEvery)})
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

// answer tells the machine what became of a write, and makes room for the next.
func (d *Driver) answer(p pending) {
	if d.machine == nil {
		return // what was read has ended the incarnation
	}
	d.free(p.effect)
	a := p.answer
	d.step(ownership.Written{Seq: p.seq, Outcome: a.Outcome, Version: a.Version, Cause: a.Cause, After: a.After})
}

// deletion is a record that the watch showed to be gone, which couldn't be confirmed.
type deletion struct {
	shard keyspace.ShardID
	at    ownership.Instant // when it is tried again
}

// confirm reads a record that is said to be gone before that is believed: it makes a holder stop.
func (d *Driver) confirm(id keyspace.ShardID) {
	if d.machine != nil { // else the next incarnation's listing tells
		d.read(pending{why: confirm}, Subject{Shard: id})
	}
}

func (d *Driver) confirmAgain() {
	later := d.unconfirmed[:0]
	for _, u := range d.unconfirmed {
		if d.now.AtLeast(u.at) < 0 {
			later = append(later, u)
			continue
		}
		d.confirm(u.shard)
	}
	d.unconfirmed = later
}
