package ownership

import "math"

// report writes the size and load of one held shard at a time, so that the number of writes doesn't grow with the
// number of shards. Where a list of all records costs more, it writes something even if nothing has changed. Shards
// that are about to move are left out: a planned move costs three writes, however long it takes.
func (r *Replica) report() {
	if r.now.AtLeast(r.reportAt) < 0 {
		return
	}
	r.reportAt = r.now.Add(r.cfg.ReportEvery)
	var oldest, quiet *shardState
	for _, t := range r.order {
		if t.phase != active || t.w != nil || t.rec.Assignee != r.cfg.ID {
			continue
		}
		of := &oldest
		if t.objects == t.rec.Objects && t.load == t.rec.Load {
			of = &quiet
		}
		if *of == nil || t.reportedAt.Mono < (*of).reportedAt.Mono {
			*of = t
		}
	}
	if oldest == nil && quiet != nil && r.listsCostMore() {
		// Only a write that changes something comes back through the watch. The next measurement takes this back.
		oldest, quiet.load = quiet, asRecorded(quiet.load+0.001)
	}
	if oldest != nil {
		oldest.reportedAt = r.now
		r.writeShard(oldest, Report, oldest.rec)
	}
}

// listsCostMore reports whether a live list of all records costs more than a write. Without a write, only lists prove
// that the watches were complete until recently. Every live replica gets the event of a write.
func (r *Replica) listsCostMore() bool {
	replicas := 1
	for _, p := range r.peerOrder {
		if p.lease.Version != 0 && !p.lease.Sealed {
			replicas++
		}
	}
	return len(r.order)+len(r.layoutOrder) > listedPerWrite+listedPerEvent*replicas
}

// By estimate, a write costs as much as a list of listedPerWrite records, and each event of it as one of
// listedPerEvent.
const (
	listedPerWrite = 8
	listedPerEvent = 4
)

// asRecorded rounds a load to thousandths, as a record holds it. The load of an idle shard falls for hours. Without
// rounding, its reports would change nothing in the record and delay the reports of other shards.
func asRecorded(load float64) float64 { return math.Round(load*1000) / 1000 }
