package driver

import (
	"maps"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
	"github.com/tenure-dev/tenure/shard/protocol"
)

// engaged is what the driver knows about one shard in this incarnation.
type engaged struct {
	warming   uint64    // the number of the Warm whose answers count, 0 for none
	draining  uint64    // the number of the Drain whose answer counts, 0 for none
	clusterNo uint64    // of the cluster that its caches are built over, 0 for none
	ended     time.Time // when its last tenure here ended; zero if none was drained

	claimed   ownership.Epoch // epoch of the latest tenure that began with a claim of ours, 0 for none
	kind      protocol.MoveKind
	from      ownership.Incarnation // the holder before that claim
	announced ownership.Epoch       // epoch of the latest tenure that was opened, 0 for none
}

func (d *Driver) shard(id keyspace.ShardID) *engaged {
	s := d.shards[id]
	if s == nil {
		s = &engaged{}
		d.shards[id] = s
	}
	return s
}

func (d *Driver) uid(id keyspace.ShardID) string {
	rec, _ := d.machine.Record(id)
	return rec.UID
}

func (d *Driver) warm(id keyspace.ShardID) {
	s := d.shard(id)
	s.warming = d.next()
	d.emit(Warm{Number: s.warming, ID: id, Record: d.uid(id)})
}

func (d *Driver) opened(e Opened) {
	if s := d.shards[e.ID]; s != nil && s.warming == e.Number {
		before := d.replaced(e.ID, s)
		s.clusterNo = e.ClusterNo
		// The cluster may have been replaced since. If not, the machine gets no input: each time it decides on all shards.
		d.stale = d.stale || before || d.replaced(e.ID, s)
	}
}

func (d *Driver) warmed(e Warmed) {
	if s := d.shards[e.ID]; s != nil && s.warming == e.Number {
		d.step(ownership.Warmed{ID: e.ID})
	}
}

func (d *Driver) drain(id keyspace.ShardID) {
	s := d.shard(id)
	s.draining = d.next()
	d.emit(Drain{Number: s.draining, ID: id, Record: d.uid(id)})
}

// drained handles the end of a drain.
func (d *Driver) drained(e Drained) {
	s := d.shards[e.ID]
	if s == nil || s.draining != e.Number {
		return
	}
	s.draining, s.ended = 0, e.Ended
	d.step(ownership.Drained{ID: e.ID})
}

// close drops a shard that isn't ours any more. The machine may close a shard that was never engaged. If the shard's
// cluster was replaced, the new one of that name may become usable.
func (d *Driver) close(id keyspace.ShardID) {
	s := d.shards[id]
	delete(d.shards, id)
	if s == nil || s.warming == 0 {
		return
	}
	d.stale = d.stale || d.replaced(id, s)
	d.emit(Close{ID: id})
}

// noteClaim remembers how a claimed shard came here: it may be opened before the watch shows the record.
func (d *Driver) noteClaim(e ownership.WriteShard) {
	if e.Kind.Claims() {
		s := d.shard(e.Shard.ID)
		s.claimed, s.kind, s.from = e.Shard.Epoch, e.Kind.Move(), e.From
	}
}

// open begins a tenure and says how the shard came here.
func (d *Driver) open(e ownership.Activate) {
	s := d.shard(e.ID)
	rec, _ := d.machine.Record(e.ID)
	o := Open{ID: e.ID, Epoch: e.Epoch, Record: rec.UID}
	switch {
	case s.announced == e.Epoch: // it had begun to drain, and kept the shard after all: no move was made
		o.Kind, o.Since = protocol.Resumed, s.ended
	case s.claimed == e.Epoch:
		o.Kind, o.From = s.kind, s.from
	case rec.Moved != nil && rec.Moved.To == d.id:
		o.Kind, o.From = rec.Moved.Kind, rec.Moved.From
		if o.Kind == protocol.Planned || o.Kind == protocol.Exit {
			o.Since = rec.Moved.At
		}
	}
	s.announced = e.Epoch
	d.emit(o)
}

// replaced reports whether a shard's caches are those of a cluster that isn't the present one of its name.
func (d *Driver) replaced(id keyspace.ShardID, s *engaged) bool {
	return s.clusterNo != 0 && d.known.ClusterNos[id.Cluster] != s.clusterNo
}

// clustersKnown records which clusters exist. What is known about the health of those that are gone is forgotten, since
// they aren't looked at any more.
func (d *Driver) clustersKnown(e Clusters) {
	d.known, d.stale = e, true
	maps.DeleteFunc(d.unusable, func(c keyspace.ClusterName, _ bool) bool {
		_, there := e.Bits[c]
		return !there
	})
}

// feedClusters tells the machine which clusters exist. A cluster that was replaced counts as gone until the last shard
// over the old one is closed.
func (d *Driver) feedClusters() {
	d.stale = false
	bits := maps.Clone(d.known.Bits)
	for id, s := range d.shards {
		if d.replaced(id, s) {
			delete(bits, id.Cluster)
		}
	}
	d.step(ownership.Clusters{Bits: bits, UIDs: d.known.UIDs, Unmet: d.known.Unmet})
}
