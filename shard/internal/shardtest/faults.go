package shardtest

import (
	"time"

	"github.com/tenure-dev/tenure/shard/internal/driver"
	"github.com/tenure-dev/tenure/shard/internal/ownership"
	"github.com/tenure-dev/tenure/shard/keyspace"
)

// felt counts a fault, once, when it has had an effect: only what has shows anything. It takes nil for no fault.
func (w *world) felt(f *Fault) {
	if f != nil && !f.felt {
		f.felt = true
		w.Faults[f.Kind]++
	}
}

// lasts lets a fault last from now on. by is the fault that lasts until till.
func (w *world) lasts(f *Fault, till *time.Duration, by **Fault) {
	if end := w.now + f.For; end > *till {
		*till, *by = end, f
	}
}

// after returns when something happens that would happen at a time, and that a fault holds up until till.
func (w *world) after(at, till time.Duration, by *Fault) time.Duration {
	if till <= at {
		return at
	}
	w.felt(by)
	return till
}

// slow returns how much longer something takes that a fault slows down; nil is no fault.
func (w *world) slow(f *Fault) time.Duration {
	if f == nil {
		return 0
	}
	w.felt(f)
	return f.For
}

// strike carries out one fault of the schedule.
func (w *world) strike(f *Fault) {
	n := &w.nodes[f.Node]
	if w.out != nil && !w.script {
		w.say(nil, "! %v", f)
	}
	switch f.Kind {
	case Crash:
		if n.up {
			w.felt(f)
		}
		n.crash(f.For)
	case CrashLeader:
		for i := range w.nodes {
			if w.nodes[i].up && w.nodes[i].driver.Leads() {
				w.felt(f)
				w.nodes[i].crash(f.For)
				break
			}
		}
	case Pause:
		n.pause(f)
	case Sleep:
		if w.now >= n.stoppedTill { // a machine that is paused is not put to sleep as well
			n.clock.fallAsleep(w.now)
			n.pause(f)
		}
	case Jump:
		if n.up {
			w.felt(f)
		}
		n.clock.jumped += f.For
		n.work()
		n.tickSoon()
	case Cut:
		w.lasts(f, &n.cutTill, &n.cutFault)
		n.cutKind = f.N
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
			w.lasts(f, &n.listlessTill, &n.listlessFault)
		}
	case SlowHome:
		w.lasts(f, &w.slowTill, &w.slowFault)
		w.slowBy = time.Duration(f.N) * leaseDuration / 20
	case Refusing:
		w.lasts(f, &w.refusesTill, &w.refusesFault)
		w.refuses = refusal(f.N)
	case HomeAway:
		w.lasts(f, &w.awayTill, &w.awayFault)
	case Exit:
		if n.up && w.now >= n.stoppedTill {
			if !n.leaving() {
				w.felt(f)
			}
			n.backIn = f.For
			n.handle(driver.Leave{})
		}
	case Upgrade:
		n.upgrade(f)
	case SlowWarm:
		n.slowWarm = f
	case Unreach:
		n.unreach(f)
	case HangWarm:
		r := &n.reaches[f.N%len(w.names)]
		w.lasts(f, &r.hangTill, &r.hangFault)
	case SlowDrain:
		n.slowDrain = f
	case Restore, Rebuild, LoseLeases, LoseRecords:
		w.replaceHistory(f)
	case Misreport:
		n.misreport(f)
	default:
		w.meddle(f, n)
	}
}

// freeze lets a watch show nothing for a while.
func (n *node) freeze(s stream, f *Fault) {
	if n.unaware && n.reconnect[s] {
		return // the protocol promises nothing then: see outOfContact
	}
	n.w.lasts(f, &n.frozenTill[s], &n.frozenFault[s])
	n.relist[s] = f.Relist
}

// meddle carries out what users and operators do.
func (w *world) meddle(f *Fault, n *node) {
	id := w.ids[f.N%len(w.ids)]
	sh := w.store.shard(id)
	if w.givesUpNames(f, id) || f.Kind == DeleteShard && sh != nil && w.unheardOf(*sh) {
		return
	}
	switch f.Kind {
	case DeleteLease:
		if n.up && !w.script && !n.valid() {
			return // a process that hasn't joined would notice only at its next renewal
		}
		l := w.store.lease(n.id)
		if l == nil {
			break
		}
		w.felt(f)
		if f.labels() {
			w.store.putLease(*l)
		} else {
			w.store.deleteLease(n.id)
		}
	case DeleteShard:
		if w.store.deleteShard(id) {
			w.felt(f)
		}
	case Replace:
		if w.store.deleteShard(id) {
			w.felt(f)
			w.store.putShard(ownership.Shard{ID: id, UID: w.store.newUID()})
		}
	case RemoveCluster:
		name := w.names[f.N%len(w.names)]
		bits, there := w.clusters[name]
		switch {
		case f.For < 0:
			w.clusters[name] = int(-f.For - 1)
		case !there:
			return
		default:
			delete(w.clusters, name)
			w.changed[name] = f
			if f.For == 0 {
				break
			}
			back := *f
			back.For = -time.Duration(bits) - 1
			w.schedule.Faults = append(w.schedule.Faults, back)
			at := min(w.now+f.For, max(w.now, w.schedule.Faulty))
			w.push(event{at: at, kind: evFault, node: -1, n: int32(len(w.schedule.Faults) - 1)})
		}
		w.tellClusters()
	case ForeignShard, DeleteLayout, EditLayout, ReplaceLayout, RemakeCluster:
		w.redivide(f, id)
	case Exchange:
		a, b := w.names[f.N%len(w.names)], w.names[(f.N+1)%len(w.names)]
		w.alias[a], w.alias[b] = w.lead(b), w.lead(a)
		w.changed[a], w.changed[b] = f, f
		w.tellClusters()
	case PinShard:
		if sh := w.store.shard(id); sh != nil {
			next := *sh
			if next.Pin != n.name {
				w.felt(f)
			}
			next.Pin = n.name
			w.store.putShard(next)
		}
	case ReportLoad:
		for i := range w.nodes {
			if m := &w.nodes[i]; m.up && w.now >= m.stoppedTill && m.gates[f.N%len(w.ids)].state == open {
				w.felt(f)
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
		if f.Kind == DeleteLayout || f.Kind == EditLayout || f.Kind == ReplaceLayout {
			w.felt(f)
		}
	}
	switch f.Kind {
	case ForeignShard:
		if digits := id.Prefix.String(); digits != "" && f.Relist {
			id.Prefix, _ = keyspace.ParsePrefix(digits[:len(digits)-1]) // the parent
		} else if lower, _, err := id.Prefix.Split(); err == nil && !w.script {
			id.Prefix = lower
		}
		if w.store.shard(id) == nil {
			w.felt(f)
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
		w.made[w.lead(name)]++
		if _, there := w.clusters[name]; there {
			w.changed[name] = f
		}
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

func (n *node) pause(f *Fault) {
	w := n.w
	n.work()
	w.lasts(f, &n.stoppedTill, &n.stoppedFault)
	w.push(event{at: n.stoppedTill, kind: evResume, node: int8(n.index)})
}
