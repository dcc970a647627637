package driver

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// pending is a request that will be answered, or a write that waits for its turn.
type pending struct {
	number  uint64
	why     purpose
	effect  ownership.Effect
	seq     uint64            // the machine's own number of the write
	outcome ownership.Outcome // of the write that is read after
	of      Subject           // what is read
	asked   ownership.Instant // when it was
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

// patience bounds one request to the home cluster: short enough for several tries within a lease.
func (d *Driver) patience() time.Duration {
	return max(d.cfg.Protocol.LeaseDuration/8, leastPatience)
}

// leasePatience bounds a renewal. A home cluster that is slow gets half of the time that is left to answer: giving up
// sooner would make it do the same work again, and a lost request leaves time for another.
func (d *Driver) leasePatience() time.Duration {
	patience := d.patience()
	if d.Valid(d.now) {
		patience = max(patience, (d.machine.ValidUntil().Mono-d.now.Mono)/2)
	}
	return patience
}

// queue sends a write of a record, or has it wait until there is room for it.
func (d *Driver) queue(effect ownership.Effect) {
	_, seq, _ := about(effect)
	d.waiting = append(d.waiting, pending{why: written, effect: effect, seq: seq})
	d.release()
}

// release sends the writes that there is room for.
func (d *Driver) release() {
	sent := 0
	for ; sent < len(d.waiting) && d.inFlight < writesAtOnce; sent++ {
		d.inFlight++
		d.write(d.waiting[sent], d.patience())
	}
	d.waiting = d.waiting[:copy(d.waiting, d.waiting[sent:])]
}

// write sends a write.
func (d *Driver) write(p pending, patience time.Duration) {
	p.number = d.next()
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
	p.number, p.of, p.asked = d.next(), of, d.now
	d.pending = append(d.pending, p)
	d.emit(Read{Number: p.number, Of: of, Patience: d.patience()})
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
// decides on what is true now. A lost renewal isn't: its repeat tells, too, and may be the one that is committed.
func (d *Driver) written(e Written) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	of, _, name := about(p.effect)
	d.complain(name, e.Err)
	switch p.why {
	case written:
		_, renewal := p.effect.(ownership.WriteLease)
		if renewal && e.Outcome == ownership.Committed && d.Valid(d.now) {
			d.emit(Renewed{Left: d.machine.ValidUntil().Mono - d.now.Mono})
		}
		if claim, ok := p.effect.(ownership.WriteShard); ok && e.Outcome == ownership.Committed {
			d.noteClaim(claim)
		}
		p.outcome = e.Outcome
		if e.Outcome == ownership.Committed || (renewal && e.Outcome == ownership.Unknown) {
			d.answer(p, e.Version)
			return
		}
		p.why = reread
		d.read(p, of)
	case sealed:
		d.sealTold(p.of.Lease, e.Outcome == ownership.Committed)
	case left:
		d.end(nil, d.now.AtLeast(d.leftAt))
	}
}

// found takes the answer to a read.
func (d *Driver) found(e Found) {
	p, ok := d.take(e.Number)
	if !ok {
		return
	}
	what := e.What
	switch seen := what.(type) {
	case ownership.ShardGone:
		seen.Asked = p.asked.Add(1) // it was sent after all that had been seen in that instant
		what = seen
	case ownership.LeadSeen:
		if p.why == found {
			what = ownership.LeadFound(seen)
		}
	}
	switch p.why {
	case confirm:
		if what == nil {
			d.complain("Confirm", e.Err)
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
		d.answer(p, 0)
	}
}

// answer tells the machine what became of a write, and makes room for the next.
func (d *Driver) answer(p pending, version ownership.Version) {
	if d.machine == nil {
		return // what was read has ended the incarnation
	}
	if _, renewal := p.effect.(ownership.WriteLease); !renewal {
		d.inFlight--
	}
	d.step(ownership.Written{Seq: p.seq, Outcome: p.outcome, Version: version})
}

// complain tells of a request that failed, but not more often than every few seconds, since it is tried again all the
// time.
func (d *Driver) complain(what string, err error) {
	if err == nil {
		return
	}
	if last, ok := d.complained[what]; ok && d.now.AtLeast(last) < complainEvery {
		return
	}
	d.complained[what] = d.now
	d.emit(Complain{What: what, Err: err})
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
