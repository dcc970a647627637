package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/keyspace"
)

// liveness is what is judged after the last fault.
type liveness struct {
	served []bool        // per shard: seen active since
	fresh  []bool        // per shard: nobody had held it when the faults ended
	since  time.Duration // when the faults ended
	last   time.Duration // as since, or when a clean exit that took longer was over
	stage  int           // 0 serving, 1 settling, 2 quiet
	writes int           // at the start of the quiet
	log    [streams]int
}

// poll looks at liveness (I3) while nothing is wrong any more: first every shard must be served again within a lease
// duration and a second, then the shards must be spread evenly, then nothing but renewals may be written.
func (w *world) poll() {
	if w.now == w.since {
		w.mend()
	}
	again := leaseDuration / 20
	switch w.stage {
	case 0:
		missing := w.unserved()
		if missing < 0 {
			if !w.schedule.LongRun {
				w.judged = true
				return
			}
			w.stage = 1
		} else if w.now >= w.last+w.deadline(missing) {
			w.fail(nil, "I3: shard %s isn't served %v after the last fault", w.ids[missing], w.now-w.last)
		}
	case 1:
		if due := w.last + w.settling(); w.now < due {
			again = due - w.now // a clean exit was over only after the shards had been served
			break
		}
		w.checkBalance()
		w.checkRest()
		w.stage = 2
		w.writes = w.Writes
		for s := range streams {
			w.log[s] = len(w.store.log[s])
		}
		again = leaseDuration
	case 2:
		w.checkQuiet()
		w.judged = true
		return
	}
	w.push(event{at: w.now + again, kind: evPoll, node: -1})
}

// deadline is the lease duration, on the slowest clock of the fleet, and a second. Where users deleted records, and for
// shards that nobody has held yet, it is three and a half: a new coordinator looks for two and a half (BuryTime) before
// it makes records that it doesn't know, and a record made by hand is left alone for as long. Where the store's history
// is replaced, or may have been by all that a process can find out, what was found is watched for a lease duration
// first. Where records are missing and the coordinator doesn't know the cluster, another takes the role after three and
// a half.
func (w *world) deadline(shard int) time.Duration {
	slowest := 1.0
	for _, r := range w.schedule.Rates {
		slowest = min(slowest, r)
	}
	lease := time.Duration(float64(leaseDuration) / slowest)
	recordsMayMiss := w.fresh[shard] || w.lost || w.schedule.meddled() || w.schedule.divided()
	switch {
	case w.schedule.unfair() && recordsMayMiss:
		return 8*lease + time.Second
	case w.schedule.unfair(), w.Restores > 1: // who finds out late that it was set back again waits again
		return lease*9/2 + time.Second
	case recordsMayMiss:
		return lease*7/2 + time.Second
	case w.schedule.replaced(), w.schedule.deletes():
		return 2 * lease
	}
	return lease + time.Second
}

// settling is how long the fleet needs, once all shards are served, until nothing changes any more. Where some process
// can't reach some cluster, another may take the coordinator's role for that, and moves shards after it.
func (w *world) settling() time.Duration {
	if w.schedule.unfair() {
		return 12 * leaseDuration
	}
	return 4 * leaseDuration
}

// mend ends all faults that could last, and makes sure that somebody lives.
func (w *world) mend() {
	w.fresh = w.fresh[:0]
	for i := range w.tallies {
		w.fresh = append(w.fresh, w.tallies[i].highest == 0)
	}
	alive := false
	for i := range w.nodes {
		n := &w.nodes[i]
		n.slowWarm, n.slowDrain = 0, 0
		alive = alive || (n.up && !n.leaving())
	}
	if n := &w.nodes[0]; !alive && !n.up {
		w.push(event{at: w.now, kind: evStart, node: 0})
	} else if !alive {
		n.backIn = time.Millisecond
	}
}

// unserved returns a shard that nobody has served since the faults ended, or -1.
func (w *world) unserved() int {
	missing := -1
	for i, id := range w.ids {
		if !w.expected(id) || w.served[i] || !w.servable(id.Cluster) || w.waits(id.Cluster) {
			continue
		}
		for j := range w.nodes {
			n := &w.nodes[j]
			if n.gates[i].state == open && n.valid() && n.to(id.Cluster).awayTill <= w.now {
				w.served[i] = true
			}
		}
		if !w.served[i] {
			missing = i
		}
	}
	return missing
}

// expected reports whether a shard is to be served: one that the layout of a cluster lists.
func (w *world) expected(id keyspace.ShardID) bool {
	bits, wanted := w.clusters[id.Cluster]
	if l := w.store.layout(id.Cluster); wanted && l != nil {
		return l.Lists(id)
	}
	if w.previousRuns() && w.named(id) { // no layout is made, and the records count
		return wanted && w.store.shard(id) != nil
	}
	return wanted && id.Prefix.Bits() == bits && id.Generation == 0
}

// checkBalance: equal replicas hold equal numbers of shards, give or take one. Pins set aside.
func (w *world) checkBalance() {
	least, most := 1<<30, 0
	for j := range w.nodes {
		n := &w.nodes[j]
		if !n.up || n.leaving() {
			continue
		}
		held := 0
		for i := range n.gates {
			if n.gates[i].state == open {
				held++
			}
		}
		least, most = min(least, held), max(most, held)
	}
	for i := range w.store.shards {
		if w.store.shards[i].Pin != "" {
			return
		}
	}
	unfair := w.schedule.unfair() || slices.ContainsFunc(w.names, w.waits)
	if most > least+1 && !unfair { // else some may get nothing of a cluster for a while
		w.fail(nil, "balance: one replica holds %d shards and another %d, %v after the last fault",
			least, most, w.now-w.since)
	}
	for i := range w.served {
		w.served[i] = false
	}
	if missing := w.unserved(); missing >= 0 {
		w.fail(nil, "I3: shard %s isn't served %v after the last fault", w.ids[missing], w.now-w.since)
	}
}

// checkRest: no record tells of a move that nobody makes any more. Those of a cluster that is gone, or that nobody
// reaches, are nobody's to write.
func (w *world) checkRest() {
	for i := range w.store.shards {
		s := &w.store.shards[i]
		_, wanted := w.clusters[s.ID.Cluster]
		// what nobody can serve stays as it is
		if wanted && s.Warm != "" && w.servable(s.ID.Cluster) && !w.waits(s.ID.Cluster) {
			w.fail(nil, "rest: the record of %s calls %s warm, %v after the last fault", s.ID, s.Warm, w.now-w.since)
		}
	}
}

// checkQuiet: once settled, only leases are renewed, and sizes reported.
func (w *world) checkQuiet() {
	alive := 0
	for j := range w.nodes {
		if w.nodes[j].up {
			alive++
		}
	}
	if rate := float64(w.Writes-w.writes) / leaseDuration.Seconds(); rate > 0.6*float64(alive) {
		w.fail(nil, "quiet: %.2f writes a second by %d replicas", rate, alive)
	}
	if news := w.store.log[leads][w.log[leads]:]; len(news) > 0 {
		w.fail(nil, "quiet: the lead record still changes")
	}
	for _, e := range w.store.log[shards][w.log[shards]:] {
		of, deleted := identity(e)
		if deleted {
			w.fail(nil, "quiet: a record is deleted")
			continue
		}
		if t := w.tallies[w.shardIndex(of.Shard)]; t.writes > 0 || t.plans > 0 {
			w.fail(nil, "quiet: the record of %s still changes", of.Shard)
		}
	}
}
