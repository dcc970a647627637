package driver

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// doubts are records that are read live, one after the other, because something looks as if the home cluster had gone
// back: a watch shows an older version than one before, or was broken, or a write was committed with a lower version
// than had been seen when it was sent. None of that is evidence, since an API server may lag behind another. What the
// read shows is.
type doubts struct {
	of     []Subject // to be read
	odd    int       // how many older versions that a watch showed are among them, or were since there was none
	asked  bool      // the first of them is on its way
	at     ownership.Instant
	newest ownership.Version // the highest version seen of any record
}

// newest returns the newest version of a record that was seen.
func (d *Driver) newest(of Subject) ownership.Version {
	switch {
	case d.machine == nil:
		if d.memory == nil || d.afresh {
			return 0
		}
		return d.memory.NewestLease(of.Lease) // nothing else is read between two incarnations
	case of.Lease != "":
		return d.machine.NewestLease(of.Lease)
	case of.Shard != (keyspace.ShardID{}):
		return d.machine.NewestShard(of.Shard)
	case of.Layout != "":
		return d.machine.NewestLayout(of.Layout)
	}
	return d.machine.NewestLead()
}

// version returns what a version that was read or watched is of; ok is false where it is of no record.
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

// mostDoubts is how many records that a watch shows in older versions wait to be read: a few are enough to find out.
const mostDoubts = 8

// look looks at what a watch shows.
func (d *Driver) look(what ownership.Input) {
	of, v, ok := version(what)
	if !ok || d.machine == nil {
		return
	}
	if v < d.newest(of) && d.doubts.odd < mostDoubts && !slices.Contains(d.doubts.of, of) {
		d.doubts.odd++
		d.doubts.of = append(d.doubts.of, of)
	}
	if seen, ok := what.(ownership.LayoutSeen); ok && d.machine.Regresses(seen.Layout) {
		d.doubtAll()
	}
	d.doubts.newest = max(d.doubts.newest, v)
}

// lookAll looks at what a live list shows. What is older there than what was seen is read once more: more may have been seen
// since the list was asked for.
func (d *Driver) lookAll(l ownership.Listing) {
	for _, lease := range l.Leases {
		d.look(ownership.LeaseSeen{Lease: lease})
	}
	for _, s := range l.Shards {
		d.look(ownership.ShardSeen{Shard: s})
	}
	for _, n := range l.Layouts {
		d.look(ownership.LayoutSeen{Layout: n})
	}
}

// suspect looks at the version that a write got. A home cluster counts its versions up: one that is below that of the
// record before proves that it went back, and one that is below that of another record raises doubts.
func (d *Driver) suspect(p pending, e Written) (back bool) {
	if e.Outcome != ownership.Committed || e.Version == 0 || d.machine == nil {
		return false
	}
	if e.Version < p.newest {
		d.doubts.newest, d.echoes = 0, echoes{} // what the watch has shown may be of another history
		d.doubtAll()
	}
	d.doubts.newest = max(d.doubts.newest, e.Version)
	of, _, _ := about(p.effect)
	return d.below(of, e.Version, p.known)
}

// doubtAll reads what this incarnation relies on: its lease and what it holds.
func (d *Driver) doubtAll() {
	if d.machine == nil {
		return
	}
	for _, of := range []Subject{{Lease: d.id}, {}} {
		if !slices.Contains(d.doubts.of, of) {
			d.doubts.of = append(d.doubts.of, of)
		}
	}
	for _, h := range d.machine.Holdings() {
		if of := (Subject{Shard: h.ID}); !slices.Contains(d.doubts.of, of) {
			d.doubts.of = append(d.doubts.of, of)
		}
	}
}

// settleDoubts reads the next record.
func (d *Driver) settleDoubts() {
	if d.machine == nil || d.doubts.asked || d.now.AtLeast(d.doubts.at) < 0 {
		return
	}
	d.doubts.asked = true
	d.read(pending{why: doubted}, d.doubts.of[0])
}

// doubtSettled goes on with the next record, or later with the same one if it couldn't be read.
func (d *Driver) doubtSettled(p pending, found bool) {
	d.doubts.asked = false
	if !found {
		d.doubts.at = d.now.Add(d.patience() / 2)
		return
	}
	if len(d.doubts.of) > 0 && d.doubts.of[0] == p.of { // else they have begun anew meanwhile
		d.doubts.of = d.doubts.of[:copy(d.doubts.of, d.doubts.of[1:])]
	}
	if len(d.doubts.of) == 0 {
		d.doubts.odd = 0
		d.doubts.at = d.now.Add(d.cfg.Protocol.RetryEvery) // a watch that lags shows old versions of many
	}
}

// contradicts looks at what a live read shows: never an older version than one that was seen before it was sent, unless
// the home cluster went back. That ends the incarnation.
func (d *Driver) contradicts(p pending, what ownership.Input) bool {
	of, v, ok := version(what)
	if !ok || v >= p.known {
		return false
	}
	if d.machine == nil {
		if d.memory != nil { // else it has left
			d.memory.GoBack()
			d.afresh, d.past = true, nil
		}
		return false
	}
	return d.below(of, v, p.known) && p.why != sealRead // which goes on beside the incarnations
}

// below ends the incarnation if a version of a record is lower than one that is known to have been before.
func (d *Driver) below(of Subject, v, known ownership.Version) bool {
	if v >= known {
		return false
	}
	name := "the coordinator's record"
	switch {
	case of.Lease != "":
		name = "lease " + string(of.Lease)
	case of.Shard != (keyspace.ShardID{}):
		name = "the record of " + of.Shard.String()
	case of.Layout != "":
		name = "the layout of " + string(of.Layout)
	}
	d.step(ownership.WentBack{What: fmt.Sprintf("%s is at version %d, and was at version %d", name, v, known)})
	return true
}
