package shardtest

import (
	"slices"
	"time"

	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// liveness is the state of the checks after the last fault.
type liveness struct {
	served []bool        // per shard: a process has served it since
	fresh  []bool        // per shard: no replica had ever held it when the faults ended
	empty  bool          // no process that stays had joined when the faults ended
	since  time.Duration // when the faults ended
	last   time.Duration // as since, or later: when a longer clean exit or outage was over
	stage  int           // 0 serving, 1 settling, 2 quiet, 3 balance once no replica is held back any more
	writes int           // how many there were when stage 2 began
	log    [streams]int
}

// poll judges liveness (I3) after the last fault. First every shard must be served again within its deadline. In a
// LongRun the shards must then be spread evenly, and then only renewals and reports may be written. Where faults were
// unfair, the spread is judged last.
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
			again = due - w.now // last may grow meanwhile, by a clean exit
			break
		}
		w.checkBalance()
		w.checkRest()
		w.stage = 2
		w.writes = w.Writes
		for i := range w.tallies { // a plan that confirmed the holder counts until the next move
			w.tallies[i].settle()
			w.tallies[i].taken = 0
		}
		for s := range streams {
			w.log[s] = len(w.store.log[s])
		}
		again = leaseDuration
	case 2:
		w.checkQuiet()
		if !w.schedule.unfair() || w.schedule.parts() {
			w.judged = true
			return
		}
		w.stage = 3
		again = heldBack
	case 3:
		w.checkBalance()
		w.judged = true
		return
	}
	w.push(event{at: w.now + again, kind: evPoll, node: -1})
}

// deadline returns how long a shard may stay unserved after the last fault.
func (w *world) deadline(shard int) time.Duration {
	slowest := 1.0
	for _, r := range w.schedule.Rates {
		slowest = min(slowest, r)
	}
	lease := time.Duration(float64(leaseDuration) / slowest) // on the slowest clock of the fleet
	return w.claimed(shard, lease) + w.filled(lease)
}

// claimed returns the part of the deadline until a process has the shard: in lease durations, and mostly a second more.
//
//   - 1: the usual case.
//   - 1.2: no process had joined. A join whose answer was lost is repeated within a fifth of a lease duration, and only
//     then is it seen that a holder's Lease is gone.
//   - 2: the store's history was replaced, or a process may have to assume that. What is found is then watched for a
//     lease duration before it is claimed.
//   - 3.5: the shard's record may be missing, because records were deleted or the shard was never held. A new
//     coordinator waits for 2.5 (BuryTime) before it makes it, and a record made by hand is left alone for as long.
//   - 4.5: some process can't reach some cluster, or the store was set back more than once.
//   - 6.5: records may be missing, and the store's history was replaced more than once. A process that notices the
//     second time only by the records that it makes waits for BuryTime again.
//   - 8: some process can't reach some cluster, and records may be missing. Another replica takes the role of a
//     coordinator that doesn't know the cluster after 3.5.
func (w *world) claimed(shard int, lease time.Duration) time.Duration {
	recordsMayMiss := w.fresh[shard] || w.lost || w.schedule.meddled() || w.schedule.divided()
	switch {
	case w.schedule.unfair() && recordsMayMiss:
		return 8*lease + time.Second
	case w.replaced > 1 && recordsMayMiss:
		return lease*13/2 + time.Second
	case w.schedule.unfair(), w.Restores > 1: // a process that notices the second restore late waits again
		return lease*9/2 + time.Second
	case recordsMayMiss:
		return lease*7/2 + time.Second
	case w.schedule.replaced(), w.schedule.deletes(), w.doubted:
		return 2 * lease
	case w.empty:
		return lease*6/5 + time.Second
	}
	return lease + time.Second
}

// filled returns the part of the deadline for filling caches that take long. Before the warm-up that ends, each process
// may have some that ran out of time, which is three of its lease durations at first. Their times double, so all of a
// process are shorter than two fills, or four if each goes on until another process can take the shard. In between, a
// process that had trouble gets no shards of the cluster for 16 lease durations at most.
func (w *world) filled(lease time.Duration) time.Duration {
	fill := w.schedule.Fill
	if fill < 2*lease { // less than three by the fastest clock
		return fill
	}
	return time.Duration(4*w.schedule.Nodes+1)*fill + 16*lease
}

// settling returns how long the fleet may take, once all shards are served, until nothing changes any more. If some
// process can't reach some cluster, another may take the coordinator's role because of that, and then move shards.
// If a process of the previous version runs, the shards of a cluster that waits may all come late, and then be moved.
// A cluster that is gone counts as removed some time later, and then its records are cleared.
func (w *world) settling() time.Duration {
	if w.schedule.unfair() || len(w.clusters) < len(w.names) || slices.ContainsFunc(w.names, w.waits) {
		return 12*leaseDuration + w.filled(leaseDuration)
	}
	return 4*leaseDuration + w.filled(leaseDuration)
}

// heldBack is the longest time in which a replica that had trouble gets no shards of a cluster: 16 lease durations, by
// the slowest clock.
const heldBack = 18 * leaseDuration

// mend ends the faults that would slow down caches and drains for ever, or lose a later read. It ensures that some
// process is up or comes back, and records which shards were never held.
func (w *world) mend() {
	w.fresh = w.fresh[:0]
	for i := range w.tallies {
		w.fresh = append(w.fresh, w.tallies[i].highest == 0)
	}
	alive := false
	w.empty = true
	for i := range w.nodes {
		n := &w.nodes[i]
		n.slowWarm, n.slowDrain, n.deaf = nil, nil, nil
		stays := n.up && !n.leaving()
		alive = alive || stays
		w.empty = w.empty && !(stays && n.joined)
	}
	if n := &w.nodes[0]; !alive && !n.up {
		w.push(event{at: w.now, kind: evStart, node: 0})
	} else if !alive {
		n.backIn = time.Millisecond
	}
}

// unserved returns the index of a shard that should have been served since the faults and wasn't; -1 for none.
func (w *world) unserved() int {
	for _, l := range w.store.layouts.all { // also of shards that nobody has heard of
		for _, p := range l.Prefixes {
			w.shardIndex(l.ID(p))
		}
	}
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

// expected reports whether a shard should be served: its cluster exists, and the cluster's layout lists it.
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

// checkBalance fails the run if two replicas serve numbers of shards that differ by more than one, or if a shard
// isn't served at this moment. The numbers aren't judged
//
//   - if a shard is pinned.
//   - while shards may wait for processes of the previous version to go.
//   - while a replica that had trouble with a cluster may be held back from it (see heldBack).
//   - if a process never reaches some cluster again. It gets nothing of that cluster, so its fair share depends on how
//     many shards the other clusters have.
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
	pinned := slices.ContainsFunc(w.store.shards.all, func(s ownership.Shard) bool { return s.Pin != "" })
	unfair := w.schedule.unfair() && w.stage < 3 || w.schedule.parts() || slices.ContainsFunc(w.names, w.waits)
	if most > least+1 && !unfair && !pinned {
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

// checkRest fails the run if a record still calls a replica warm, although nothing moves any more, or if a record of
// a cluster that is gone still has a holder. (While a process of the previous version runs, no record is cleared.) It
// leaves out clusters that no process can serve, since no replica writes their records.
func (w *world) checkRest() {
	for i := range w.store.shards.all {
		s := &w.store.shards.all[i]
		_, wanted := w.clusters[s.ID.Cluster]
		if !wanted && s.Holder != "" && !w.previousRuns() {
			w.fail(nil, "rest: the record of %s names %s, though its cluster is gone, %v after the last fault", s.ID, s.Holder,
				w.now-w.since)
		}
		// what no process can serve stays as it is
		if wanted && s.Warm != "" && w.servable(s.ID.Cluster) && !w.waits(s.ID.Cluster) {
			w.fail(nil, "rest: the record of %s calls %s warm, %v after the last fault", s.ID, s.Warm, w.now-w.since)
		}
	}
}

// checkQuiet fails the run if anything but renewals and reports was written in stage 2. By a fast clock, five renewals
// and two reports fit into a lease duration.
func (w *world) checkQuiet() {
	alive := 0
	for j := range w.nodes {
		if w.nodes[j].up {
			alive++
		}
	}
	if rate := float64(w.Writes-w.writes) / leaseDuration.Seconds(); rate > 0.7*float64(alive) {
		w.fail(nil, "quiet: %.2f writes a second by %d replicas", rate, alive)
	}
	// A process of the previous version doesn't know that a record is retired. It plans it, and claims it in vain. After
	// refused claims it gets no shards of the cluster for a while, and then some again.
	taken := 0
	for i := range w.tallies {
		if !w.waits(w.ids[i].Cluster) {
			taken += w.tallies[i].taken
		}
	}
	if taken > 0 {
		w.fail(nil, "quiet: shards still change hands (%d)", taken)
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
		if w.waits(of.Shard.Cluster) {
			continue
		}
		if t := w.tallies[w.shardIndex(of.Shard)]; t.writes > 0 || t.plans > 0 {
			w.fail(nil, "quiet: the record of %s still changes", of.Shard)
		}
	}
}
