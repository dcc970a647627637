package shardtest

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// strike carries out one fault of the schedule.
func (w *world) strike(f *Fault) {
	w.Faults[f.Kind]++
	n := &w.nodes[f.Node]
	if w.out != nil && !w.script {
		w.say(nil, "! %v", f)
	}
	switch f.Kind {
	case Crash:
		n.crash(f.For)
	case CrashLeader:
		for i := range w.nodes {
			if w.nodes[i].up && w.nodes[i].driver.Leads() {
				w.nodes[i].crash(f.For)
				break
			}
		}
	case Pause:
		n.pause(f.For)
	case Sleep:
		if w.now >= n.stoppedTill { // a machine that is paused is not put to sleep as well
			n.clock.fallAsleep(w.now)
			n.pause(f.For)
		}
	case Jump:
		n.clock.jumped += f.For
		n.work()
		n.tickSoon()
	case Cut:
		n.cutTill, n.cutKind = max(n.cutTill, w.now+f.For), f.N
	case Freeze:
		n.freeze(stream(f.N), f)
	case Deaf:
		for i := range w.nodes {
			for s := range streams {
				if i == f.Node || f.N == 0 {
					w.nodes[i].freeze(s, f)
				}
			}
		}
		if f.N == 2 {
			n.listlessTill = max(n.listlessTill, w.now+f.For)
		}
	case SlowHome:
		w.slowTill, w.slowBy = max(w.slowTill, w.now+f.For), time.Duration(f.N)*leaseDuration/20
	case Refusing:
		w.refusesTill, w.refuses = max(w.refusesTill, w.now+f.For), refusal(f.N)
	case HomeAway:
		w.awayTill = max(w.awayTill, w.now+f.For)
	case Exit:
		if n.up && w.now >= n.stoppedTill {
			n.backIn = f.For
			n.handle(driver.Leave{})
		}
	case Upgrade:
		n.upgrade(f)
	case SlowWarm:
		n.slowWarm = f.For
	case Unreach:
		n.unreach(f)
	case HangWarm:
		r := &n.reaches[f.N%len(w.names)]
		r.hangTill = max(r.hangTill, w.now+f.For)
	case SlowDrain:
		n.slowDrain = f.For
	case Restore, Rebuild, LoseLeases, LoseRecords:
		w.replaceHistory(f)
	case Misreport:
		n.misreport(f.N)
	default:
		w.meddle(f, n)
	}
}

// freeze lets a watch show nothing for a while.
func (n *node) freeze(s stream, f *Fault) {
	if n.unaware && n.reconnect[s] {
		return // the protocol promises nothing then: see outOfContact
	}
	n.frozenTill[s], n.relist[s] = max(n.frozenTill[s], n.w.now+f.For), f.Relist
}

// meddle carries out what users and operators do.
func (w *world) meddle(f *Fault, n *node) {
	id := w.ids[f.N%len(w.ids)]
	sh := w.store.shard(id)
	if w.givesUpNames(f, id) || f.Kind == DeleteShard && sh != nil && w.unheardOf(*sh) {
		w.Faults[f.Kind]-- // only what is carried out shows anything
		return
	}
	switch f.Kind {
	case DeleteLease:
		if n.up && !w.script && !n.valid() {
			return // a process that hasn't joined would notice only at its next renewal
		}
		if l := w.store.lease(n.id); l != nil && f.labels() {
			w.store.putLease(*l)
			break
		}
		w.store.deleteLease(n.id)
	case DeleteShard:
		w.store.deleteShard(id)
	case Replace:
		if w.store.deleteShard(id) {
			w.store.putShard(ownership.Shard{ID: id, UID: w.store.newUID()})
		}
	case RemoveCluster:
		if name := w.names[f.N%len(w.names)]; f.For > 0 {
			bits := w.clusters[name]
			if _, there := w.clusters[name]; !there {
				return
			}
			delete(w.clusters, name)
			back := *f
			back.For, back.N = -time.Duration(bits)-1, f.N
			w.schedule.Faults = append(w.schedule.Faults, back)
			at := min(w.now+f.For, max(w.now, w.schedule.Faulty))
			w.push(event{at: at, kind: evFault, node: -1, n: int32(len(w.schedule.Faults) - 1)})
		} else if f.For < 0 {
			w.clusters[name] = int(-f.For - 1)
		}
		w.tellClusters()
	case ForeignShard, DeleteLayout, EditLayout, ReplaceLayout, RemakeCluster:
		w.redivide(f, id)
	case PinShard:
		if sh := w.store.shard(id); sh != nil {
			next := *sh
			next.Pin = n.name
			w.store.putShard(next)
		}
	case ReportLoad:
		for i := range w.nodes {
			if m := &w.nodes[i]; m.up && w.now >= m.stoppedTill && m.gates[f.N%len(w.ids)].state == open {
				m.handle(driver.Measured{ID: id, Objects: int64(f.For / time.Millisecond), Load: f.For.Seconds()})
			}
		}
	}
	w.pumpAll()
}

// redivide changes layouts, makes records that a layout doesn't list, and makes clusters anew.
func (w *world) redivide(f *Fault, id keyspace.ShardID) {
	name := w.names[f.N%len(w.names)]
	next := ownership.Layout{Cluster: name, Generation: 1, UID: w.uid(name), Prefixes: keyspace.Partition(f.N % 3)}
	if old := w.store.layout(name); old != nil {
		next.Generation, next.UID = old.Generation, old.UID
	}
	switch f.Kind {
	case ForeignShard:
		if parent, ok := id.Prefix.Parent(); ok && f.Relist {
			id.Prefix = parent
		} else if lower, _, err := id.Prefix.Split(); err == nil && !w.script {
			id.Prefix = lower
		}
		if w.store.shard(id) == nil {
			w.shardIndex(id)
			w.store.putShard(ownership.Shard{ID: id, UID: w.store.newUID()})
		}
	case DeleteLayout:
		w.store.deleteLayout(name)
	case EditLayout:
		next.Generation++
		w.store.putLayout(next)
	case ReplaceLayout:
		w.store.deleteLayout(name)
		w.store.putLayout(next)
	case RemakeCluster:
		w.made[name]++
		w.tellClusters()
	}
}

// tellClusters lets every process learn which clusters exist, each in its own time.
func (w *world) tellClusters() {
	for i := range w.nodes {
		if n := &w.nodes[i]; n.up {
			w.push(event{at: w.now + time.Millisecond + w.upTo(leaseDuration/10), kind: evCluster, node: int8(i), life: n.life})
		}
	}
}

func (n *node) crash(backIn time.Duration) {
	if n.up {
		n.stop()
	}
	n.clock.wakeUp(n.w.now)
	n.stoppedTill = 0
	if backIn > 0 {
		at := n.w.now + backIn
		if !n.w.script {
			at = min(at, max(n.w.now, n.w.schedule.Faulty))
		}
		n.w.push(event{at: at, kind: evStart, node: int8(n.index)})
	}
}

// tickSoon queues the regular tick of the driver after its clocks changed in a way that it couldn't foresee.
func (n *node) tickSoon() {
	if !n.up {
		return
	}
	at := n.w.now + n.w.upTo(n.driver.TickEvery())
	if n.wakeAt != 0 && n.wakeAt <= at {
		return
	}
	n.wakeAt = at
	n.w.push(event{at: n.wakeAt, kind: evWake, node: int8(n.index), life: n.life})
}

func (n *node) pause(d time.Duration) {
	w := n.w
	n.work()
	n.stoppedTill = max(n.stoppedTill, w.now+d)
	w.push(event{at: n.stoppedTill, kind: evResume, node: int8(n.index)})
}
