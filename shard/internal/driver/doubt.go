package driver

import (
	"fmt"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// doubts are records that are read live, one after the other, because the home cluster may have gone back: a watch
// shows an older version than before, or was interrupted, or a write was committed with a lower version than one seen
// before it was sent. None of these is evidence, since one API server may lag behind another. The live read gives
// evidence. Of the functions here, contradicts and fellBelow end the incarnation. The others only queue reads.
type doubts struct {
	of     []Subject        // records to read, in order
	queued map[Subject]bool // the same
	odd    int              // how many were added because a watch showed older versions, since the list was last empty
	at     ownership.Instant
	newest ownership.Version // the highest version seen of any record
}

// add queues a record, unless it is queued already.
func (d *doubts) add(of Subject) (added bool) {
	if d.queued[of] {
		return false
	}
	if d.queued == nil {
		d.queued = map[Subject]bool{}
	}
	d.queued[of] = true
	d.of = append(d.of, of)
	return true
}

// newest returns the newest version of a record that was seen.
func (d *Driver) newest(of Subject) ownership.Version {
	switch {
	case d.machine == nil:
		if d.memory == nil || d.afresh {
			return 0
		}
		return d.memory.NewestLease(of.Lease) // between two incarnations only leases are read
	case of.Lease != "":
		return d.machine.NewestLease(of.Lease)
	case of.Shard != (keyspace.ShardID{}):
		return d.machine.NewestShard(of.Shard)
	case of.Layout != "":
		return d.machine.NewestLayout(of.Layout)
	}
	return d.machine.NewestLead()
}

// version returns the record that an input is about, and its version; ok is false if it is about none.
func version(what ownership.Input) (of Subject, v ownership.Version, ok bool) {
	switch in := what.(type) {
	case ownership.LeaseSeen:
		return Subject{Lease: in.Lease.ID}, in.Lease.Version, true
	case ownership.ShardSeen:
		return Subject{Shard: in.Shard.ID}, in.Shard.Version, true
	case ownership.LayoutSeen:
		return Subject{Layout: in.Layout.Cluster}, in.Layout.Version, true
	case ownership.LayoutRead:
		return Subject{Layout: in.Cluster}, in.Layout.Version, in.Layout.Version != 0
	case ownership.LeadSeen:
		return Subject{}, in.Lead.Version, true
	case ownership.LeadFound:
		return Subject{}, in.Lead.Version, true
	}
	return Subject{}, 0, false
}

// mostDoubts bounds the records that are read because a watch shows older versions: a few are enough.
const mostDoubts = 8

// noteOlder checks an input from a watch for signs that the home cluster went back.
func (d *Driver) noteOlder(what ownership.Input) {
	of, v, ok := version(what)
	if !ok || d.machine == nil {
		return
	}
	if v < d.newest(of) && d.doubts.odd < mostDoubts && d.doubts.add(of) {
		d.doubts.odd++
	}
	if seen, ok := what.(ownership.LayoutSeen); ok && d.machine.Regresses(seen.Layout) {
		d.doubtAll()
	}
	d.doubts.newest = max(d.doubts.newest, v)
}

// noteOlderOf checks a live list. A record that is older in the list is read once more, since a newer version may have
// been seen while the list was in flight.
func (d *Driver) noteOlderOf(l ownership.Listing) {
	for _, lease := range l.Leases {
		d.noteOlder(ownership.LeaseSeen{Lease: lease})
	}
	for _, s := range l.Shards {
		d.noteOlder(ownership.ShardSeen{Shard: s})
	}
	for _, n := range l.Layouts {
		d.noteOlder(ownership.LayoutSeen{Layout: n})
	}
}

// checkCommitted checks the version of a committed write. Versions only rise in one history. So a version below the
// record's previous one proves that the home cluster went back. One below another record's version only raises doubts.
func (d *Driver) checkCommitted(p pending, e Written) (back bool) {
	if e.Outcome != ownership.Committed || e.Version == 0 || d.machine == nil {
		return false
	}
	if e.Version < p.newest {
		d.doubts.newest, d.echoes = 0, echoes{} // what the watch showed may be of another history
		d.doubtAll()
	}
	d.doubts.newest = max(d.doubts.newest, e.Version)
	return d.fellBelow(p.of, e.Version, p.known)
}

// doubtAll reads what this incarnation relies on: its lease, the lead record, and the records of shards that it holds
// or prepares.
func (d *Driver) doubtAll() {
	if d.machine == nil {
		return
	}
	d.doubts.add(Subject{Lease: d.id})
	d.doubts.add(Subject{})
	for _, h := range d.machine.Holdings() {
		d.doubts.add(Subject{Shard: h.ID})
	}
}

// settleDoubts sends the next read.
func (d *Driver) settleDoubts() {
	if d.machine == nil || d.awaits(doubted) || d.now.AtLeast(d.doubts.at) < 0 {
		return
	}
	d.read(pending{why: doubted}, d.doubts.of[0])
}

// doubtSettled goes on to the next record. A record that couldn't be read moves to the end: it may be unreadable.
func (d *Driver) doubtSettled(p pending, found bool) {
	first := len(d.doubts.of) > 0 && d.doubts.of[0] == p.of // otherwise the list has begun again
	if first {
		d.doubts.of = d.doubts.of[1:] // not copied: thousands may wait
	}
	if !found {
		d.doubts.at = d.now.Add(d.patience() / 2)
		if first {
			d.doubts.of = append(d.doubts.of, p.of)
		}
		if len(d.doubts.of) == 1 {
			d.doubts.odd = 0 // all others have been read
		}
		return
	}
	if first {
		delete(d.doubts.queued, p.of)
	}
	if len(d.doubts.of) == 0 {
		d.doubts.odd = 0
		d.doubts.at = d.now.Add(d.cfg.Protocol.RetryEvery) // a watch that lags shows old versions of many records
	}
}

// contradicts checks a live read. It never shows an older version than one seen before the read was sent, nor an older
// renewal of an earlier incarnation, unless the home cluster went back. That ends the incarnation.
func (d *Driver) contradicts(p pending, what ownership.Input) bool {
	of, v, ok := version(what)
	older := d.olderRenewal(what)
	if !ok || v >= p.known && older == "" {
		return false
	}
	ran := d.machine != nil
	if older != "" {
		d.goneBack("%s", older)
	} else {
		d.fellBelow(of, v, p.known)
	}
	return ran || p.seals()
}

// goneBack ends the incarnation because the home cluster went back.
func (d *Driver) goneBack(format string, args ...any) {
	d.lapseAfresh("the home cluster went back: " + fmt.Sprintf(format, args...))
}

// lapseAfresh ends the incarnation because the home cluster went back, or may have. One that ends for another reason at
// this moment, or has ended, forgets what it knows all the same.
func (d *Driver) lapseAfresh(reason string) {
	d.step(ownership.WentBack{Reason: reason})
	if d.afresh {
		return
	}
	if d.memory != nil {
		d.memory.GoBack()
	}
	d.afresh = true
	d.forgetPast()
}

// olderRenewal says how the Lease of an earlier incarnation contradicts its last renewal; "" if it doesn't.
func (d *Driver) olderRenewal(what ownership.Input) string {
	seen, ok := what.(ownership.LeaseSeen)
	if !ok || seen.Lease.Renewal == 0 {
		return ""
	}
	for _, p := range d.past {
		if p.id == seen.Lease.ID && seen.Lease.Renewal < p.renewal {
			return fmt.Sprintf("lease %s shows renewal %d, but renewal %d was committed", p.id, seen.Lease.Renewal, p.renewal)
		}
	}
	return ""
}

// fellBelow ends the incarnation if v is lower than a version that is known to have existed.
func (d *Driver) fellBelow(of Subject, v, known ownership.Version) bool {
	if v >= known {
		return false
	}
	name := "the lead record"
	switch {
	case of.Lease != "":
		name = "lease " + string(of.Lease)
	case of.Shard != (keyspace.ShardID{}):
		name = "the record of " + of.Shard.String()
	case of.Layout != "":
		name = "the layout of " + string(of.Layout)
	}
	d.goneBack("%s is at version %d, but was at version %d", name, v, known)
	return true
}
