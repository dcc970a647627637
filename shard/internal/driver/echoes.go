package driver

import (
	"slices"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
)

// echoes are this incarnation's writes of shard records that haven't come back through the watch yet. A watch shows
// writes in the order in which they were committed. So one that comes back shows that the watch was complete up to it.
type echoes struct {
	shown ownership.Version // newest version of a shard's record that the watch has shown
	due   []echo            // the oldest that are awaited, at most mostEchoes
}

// mostEchoes bounds the writes that are awaited: a few are enough.
const mostEchoes = 4

type echo struct {
	version ownership.Version
	sent    ownership.Instant
}

// committed records a committed write of a shard's record. A write that changed nothing makes no version and never
// comes back through the watch.
func (d *Driver) committed(effect ownership.Effect, version ownership.Version, sent ownership.Instant) {
	var base ownership.Version
	switch w := effect.(type) {
	case ownership.CreateShard:
	case ownership.WriteAssignee:
		base = w.Base
	case ownership.WriteShard:
		base = w.Shard.Version
	default:
		return
	}
	e := &d.echoes
	switch {
	case version <= base:
	case version <= e.shown: // the watch was faster than the answer
		d.step(ownership.CaughtUp{Watch: ownership.ShardWatch, At: sent})
	case len(e.due) < mostEchoes:
		e.due = append(e.due, echo{version, sent})
	}
}

// watched records up to when the watch is complete, if it shows a write of this incarnation.
func (d *Driver) watched(what ownership.Input) {
	if d.machine == nil {
		return
	}
	switch in := what.(type) {
	case ownership.LeaseSeen:
		if in.Lease.ID != d.id {
			return
		}
		if sent, ok := d.machine.Renewed(in.Lease.Version); ok {
			d.step(ownership.CaughtUp{Watch: ownership.LeaseWatch, At: sent})
		}
	case ownership.ShardSeen:
		e := &d.echoes
		e.shown = max(e.shown, in.Shard.Version)
		var latest ownership.Instant
		e.due = slices.DeleteFunc(e.due, func(awaited echo) bool {
			back := awaited.version <= e.shown
			if back {
				latest = awaited.sent
			}
			return back
		})
		if !latest.IsZero() {
			d.step(ownership.CaughtUp{Watch: ownership.ShardWatch, At: latest})
		}
	}
}

// list requests a live list of all records, unless one is in flight. One that takes long may be lost: then another is
// requested, while the first may still be answered.
func (d *Driver) list() {
	all := Subject{All: true}
	for _, p := range d.pending {
		if p.of == all && d.now.AtLeast(p.asked) < d.cfg.Protocol.LeaseDuration/2 {
			return
		}
	}
	d.read(pending{why: found}, all)
}
